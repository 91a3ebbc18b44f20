"""Retention plan: which ledgers may go.

Rule: ledgers go from the oldest on, up to the first that must stay; the last ledger of the list,
which is the one written to, never goes, nor does one of which the slowest durable cursor is owed
something. Time is compared strictly, size is not.
Must not know: storage, clocks, whose cursor it is. Theory: Pulsar's internalTrimLedgers.
"""

from collections.abc import Sequence

from kledger.ledger.config import NO_LIMIT
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
    """Return the ids that retention lets go.

    A ledger goes if it is expired (closed longer than `retention_ms` ago), or over quota (without
    it at least `retention_bytes` remain). Size 0 therefore lets go at once, whatever the time; -1
    switches a condition off.

    Args:
        ledgers: the whole list, ascending.
        now_ms: wall time, to compare with the times of closing.
        retention_ms: -1 or the age.
        retention_bytes: -1 or the quota.
        slowest: mark-delete position of the slowest durable cursor, None without one.
    """
    remaining = sum(info.size for info in ledgers)
    selected = []
    for info in _before_boundary(ledgers, slowest):
        assert info.closed_ms is not None
        remaining -= info.size
        is_expired = retention_ms != NO_LIMIT and now_ms - info.closed_ms > retention_ms
        is_over_quota = retention_bytes != NO_LIMIT and remaining >= retention_bytes
        if not (is_expired or is_over_quota):
            break
        selected.append(info.ledger_id)
    return tuple(selected)


def plan_truncate(
    ledgers: Sequence[LedgerInfo], slowest: Position | None = None
) -> tuple[int, ...]:
    """Return every id before the boundary, regardless of retention."""
    return tuple(info.ledger_id for info in _before_boundary(ledgers, slowest))


def plan_trim_before(ledgers: Sequence[LedgerInfo], position: Position) -> tuple[int, ...]:
    """Return the ids of the ledgers that lie before `position` as a whole, whoever is owed them."""
    return tuple(
        info.ledger_id
        for info in _before_boundary(ledgers, None)
        if Position(info.ledger_id, info.entries - 1) < position
    )


def _before_boundary(
    ledgers: Sequence[LedgerInfo], slowest: Position | None
) -> Sequence[LedgerInfo]:
    """Return the ledgers before the last one, up to where the slowest cursor is owed something."""
    if slowest is None:
        return ledgers[:-1]
    return [info for info in ledgers[:-1] if Position(info.ledger_id, info.entries - 1) <= slowest]
