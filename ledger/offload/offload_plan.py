"""Offload plan: which ledgers are copied, whose primary copy goes, and the changes that do it.

Rule: only whole closed ledgers with entries that have no complete copy yet are copied, the oldest
first. The open ledger never is. Ages are compared by `>=` for a threshold and by `>` for the lag.
Must not know: storage, clocks, tiers. Source: Pulsar's offloadPrefix, maybeOffload,
isOffloadedNeedsDelete, prepareLedgerInfoForOffloaded, completeLedgerInfoForOffloaded.
"""

from collections.abc import Sequence
from dataclasses import replace

from kledger.ledger.errors import OffloadInProgress
from kledger.ledger.metadata.ledger_list_state import LedgerInfo, LedgerListState, MetadataChange
from kledger.ledger.metadata.records import (
    CopyDeletion,
    LedgerRecord,
    ManagedLedgerRecord,
    OffloadContext,
)
from kledger.ledger.offload.offload_policies import OffloadPolicies
from kledger.ledger.position import Position


def copyable_ledgers(
    ledgers: Sequence[LedgerInfo], before: Position | None = None
) -> list[LedgerInfo]:
    """Return the closed ledgers with entries that have no complete copy.

    Args:
        ledgers: the whole list, ascending.
        before: ledgers with entries at or after this are left out; None is no limit.
    """
    return [
        info
        for info in ledgers
        if info.closed_ms is not None
        and info.entries
        and not info.offloaded
        and (before is None or Position(info.ledger_id, info.entries - 1) < before)
    ]


def plan_prefix(
    ledgers: Sequence[LedgerInfo], position: Position, *, before: Position | None = None
) -> tuple[int, ...]:
    """Return the ids of the ledgers to copy that lie before the ledger of a position.

    Args:
        ledgers: the whole list, ascending.
        position: its ledger and all later ones stay.
        before: as for `copyable_ledgers`.
    """
    return tuple(
        info.ledger_id
        for info in copyable_ledgers(ledgers, before)
        if info.ledger_id < position.ledger_id
    )


def plan_copies(
    ledgers: Sequence[LedgerInfo],
    policies: OffloadPolicies,
    *,
    now_ms: int,
    before: Position | None = None,
) -> tuple[int, ...]:
    """Return the ids of the ledgers that a threshold makes due for copying.

    A ledger is due if it and all later closed ones are larger than `threshold_bytes`, or if it was
    closed at least `threshold_ms` ago.

    Args:
        ledgers: the whole list, ascending.
        policies: the thresholds.
        now_ms: wall time, compared with the times of closing.
        before: as for `copyable_ledgers`.
    """
    copyable = {info.ledger_id for info in copyable_ledgers(ledgers, before)}
    due = []
    size = 0
    for info in reversed(ledgers):
        if info.closed_ms is None:
            continue
        size += info.size
        is_behind_bytes = 0 <= policies.threshold_bytes < size
        is_old = 0 <= policies.threshold_ms <= now_ms - info.closed_ms
        if info.ledger_id in copyable and (is_behind_bytes or is_old):
            due.append(info.ledger_id)
    return tuple(reversed(due))


def plan_primary_deletions(
    ledgers: Sequence[LedgerInfo], policies: OffloadPolicies, *, now_ms: int
) -> tuple[int, ...]:
    """Return the ids of the ledgers whose primary copy the deletion lag does not keep."""
    lag_ms = policies.deletion_lag_ms
    if lag_ms is None or lag_ms < 0:
        return ()
    return tuple(
        info.ledger_id
        for info in ledgers
        if has_two_copies(info)
        and info.offload is not None
        and now_ms - info.offload.completed_ms > lag_ms
    )


def has_two_copies(info: LedgerInfo) -> bool:
    """Return whether the tier has all of a ledger, and the primary copy is still there."""
    return info.offloaded and not info.primary_deleted


def first_not_offloaded(ledgers: Sequence[LedgerInfo], last: Position) -> Position:
    """Return the first position of the oldest ledger without a complete copy.

    Args:
        ledgers: the whole list, ascending.
        last: the last entry; the position after it is the answer when all ledgers have a copy.
    """
    for info in ledgers:
        if not info.offloaded and (info.entries or info.closed_ms is None):
            return Position(info.ledger_id, 0)
    return last.successor


# Changes of the metadata


def prepared(
    ledger_id: int, attempt: OffloadContext, head: ManagedLedgerRecord, state: LedgerListState
) -> MetadataChange | None:
    """Return the change that names an attempt; None if the ledger needs no copy, or is gone.

    The row of an earlier attempt is there already, so that its objects are deleted.
    """
    record = state.find(ledger_id)
    if record is None or record.tiered is not None:
        return None
    return MetadataChange(
        head=head.successor(),
        put=(replace(record, offload=attempt),),
        unneeded=(CopyDeletion.of(ledger_id, attempt),),
    )


def completed(
    ledger_id: int, complete: OffloadContext, head: ManagedLedgerRecord, state: LedgerListState
) -> MetadataChange | None:
    """Return the change that completes an attempt; None if the ledger is gone.

    Raises:
        OffloadInProgress: another attempt was named meanwhile.
    """
    record = state.find(ledger_id)
    if record is None:
        return None
    named = record.offload
    if named is None or named.attempt != complete.attempt:
        raise OffloadInProgress(
            f"ledger {ledger_id}: attempt {complete.attempt} was replaced by "
            f"{None if named is None else named.attempt}"
        )
    return MetadataChange(
        head=head.successor(),
        put=(replace(record, offload=complete),),
        needed=(complete.attempt,),
    )


def deleted_primaries(
    head: ManagedLedgerRecord, state: LedgerListState, ledger_ids: Sequence[int]
) -> MetadataChange:
    """Return the change that lets the tier have the only copy of ledgers."""
    return MetadataChange(
        head=head.successor(),
        put=tuple(_without_primary(state.find(each)) for each in ledger_ids),
        primaries=tuple(ledger_ids),
    )


def _without_primary(record: LedgerRecord | None) -> LedgerRecord:
    assert record is not None, "a ledger without a record"
    assert record.tiered is not None, f"ledger {record.ledger_id} has no other copy"
    return replace(record, offload=replace(record.tiered, primary_deleted=True))
