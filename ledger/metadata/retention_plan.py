"""Retention plan: which ledgers can be deleted.

Rule: ledgers are deleted from the oldest on, up to the first that must stay. The last ledger of the
list, which is written to, must stay, and so must a ledger with entries that the slowest durable
cursor has not acknowledged. Time is compared strictly, size is not.
Must not know: storage, clocks, cursors. Theory: Pulsar's internalTrimLedgers.
"""

from collections.abc import Sequence

from kledger.ledger.metadata.ledger_list_state import LedgerInfo
from kledger.ledger.position import Position


def plan_trim(
    ledgers: Sequence[LedgerInfo],
    *,
    now_ms: int,
    retention_ms: int,
    retention_bytes: int,
    slowest: Position | None = None,
) -> tuple[int, ...]:
    """Return the ids of the ledgers that retention does not keep.

    A ledger is deleted if it is expired (closed longer than `retention_ms` ago) or over quota
    (without it at least `retention_bytes` remain). Size 0 therefore deletes at once, whatever the
    time; -1 switches a condition off.

    Args:
        ledgers: the whole list, ascending.
        now_ms: wall time, compared with the times of closing.
        retention_ms: the age, or -1.
        retention_bytes: the quota, or -1.
        slowest: mark-delete position of the slowest durable cursor, None without one.
    """
    remaining = sum(info.size for info in ledgers)
    selected = []
    for info in _before_boundary(ledgers, slowest):
        assert info.closed_ms is not None
        remaining -= info.size
        is_expired = 0 <= retention_ms < now_ms - info.closed_ms
        is_over_quota = 0 <= retention_bytes <= remaining
        if not (is_expired or is_over_quota):
            break
        selected.append(info.ledger_id)
    return tuple(selected)


def plan_truncate(
    ledgers: Sequence[LedgerInfo], slowest: Position | None = None
) -> tuple[int, ...]:
    """Return the ids of all ledgers that no cursor needs, regardless of retention."""
    return tuple(info.ledger_id for info in _before_boundary(ledgers, slowest))


def plan_trim_before(ledgers: Sequence[LedgerInfo], position: Position) -> tuple[int, ...]:
    """Return the ids of the ledgers that lie before `position` entirely, acknowledged or not."""
    return tuple(
        info.ledger_id
        for info in _before_boundary(ledgers, None)
        if Position(info.ledger_id, info.entries - 1) < position
    )


def _before_boundary(
    ledgers: Sequence[LedgerInfo], slowest: Position | None
) -> Sequence[LedgerInfo]:
    """Return the ledgers, without the last one, that the slowest cursor has acknowledged."""
    if slowest is None:
        return ledgers[:-1]
    return [info for info in ledgers[:-1] if Position(info.ledger_id, info.entries - 1) <= slowest]
