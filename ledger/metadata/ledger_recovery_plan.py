"""Ledger recovery plan: how the list of ledgers changes when a new handle opens a managed ledger.

Rule: the ledger that the previous handle wrote to is closed with the counts of its stored data, so
that handle cannot append any more; ledgers without entries are removed; a terminated managed ledger
gets no new ledger. Reopening without writing therefore leaves exactly one empty ledger. What an
unfinished compaction wrote is dropped.
Must not know: storage. Theory: Pulsar's ManagedLedgerImpl.initialize.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kledger.ledger.metadata.ledger_list_state import MetadataChange
from kledger.ledger.metadata.records import LedgerRecord, ManagedLedgerRecord


def plan_recovery(
    head: ManagedLedgerRecord,
    ledgers: Sequence[LedgerRecord],
    found: Mapping[int, LedgerRecord],
    *,
    new_ledger_id: int,
    now_ms: int,
) -> MetadataChange:
    """Return the change that opens the managed ledger for a new handle.

    Args:
        head: the stored record.
        ledgers: the stored records of its ledgers, ascending by id.
        found: for each ledger stored as open, its true entries, size and timestamp.
        new_ledger_id: id of the ledger that is written to from now on.
        now_ms: wall time, recorded as the closing of open ledgers.
    """
    put, removed = [], []
    for record in ledgers:
        if record.closed_ms:
            true_record = record
        else:
            true_record = replace(found[record.ledger_id], closed_ms=max(now_ms, 1))
        if not true_record.entries:
            removed.append(record.ledger_id)
        elif true_record != record:
            put.append(true_record)
    if head.terminated_at is None:
        put.append(LedgerRecord(ledger_id=new_ledger_id))
    return MetadataChange(
        head=replace(head.successor(), compacting_id=None),
        put=tuple(put),
        removed=tuple(removed),
        dropped=() if head.compacting_id is None else (head.compacting_id,),
    )
