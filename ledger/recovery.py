"""Recovery: load the state of a store and of its managed ledgers from rows and entries.

Rule: the row of a closed ledger is true; the row of an open one is a mark, and entries after it are
counted. It runs in the blocking pool and changes nothing.
Must not know: handles, caches, the committer.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from kledger.ledger.config import KIB, StoreConfig
from kledger.ledger.cursors.cursor_recovery_plan import StoredCursor, recover_cursor
from kledger.ledger.engine.base import Row, StorageEngine
from kledger.ledger.engine.memory import MemoryEngine
from kledger.ledger.errors import Corrupt
from kledger.ledger.metadata import keys
from kledger.ledger.metadata.ledger_list_state import LedgerInfo, LedgerListState, MetadataChange
from kledger.ledger.metadata.ledger_recovery_plan import plan_recovery
from kledger.ledger.metadata.records import (
    CompactedLedger,
    CopyDeletion,
    LedgerRecord,
    ManagedLedgerRecord,
    decode_counter,
    decode_ledger,
    decode_managed_ledger,
    encode_copy_deletion,
)

COUNT_STEP_BYTES = 1 << 20
"""Bytes read at once while the entries after the last mark are counted."""
SMALL_GROUP_BYTES = 128 * KIB
"""Without a sync, a group below this costs less on the event loop than a change of threads."""


@dataclass(frozen=True, slots=True)
class ManagedLedgerSnapshot:
    """A managed ledger as it is stored; `found` has the true counts of its open ledgers."""

    head: ManagedLedgerRecord
    ledgers: Sequence[LedgerRecord]
    found: Mapping[int, LedgerRecord]
    cursors: Sequence[StoredCursor] = ()

    @classmethod
    def of_new(cls, managed_ledger_id: int) -> "ManagedLedgerSnapshot":
        """Return the snapshot of a managed ledger that does not exist yet."""
        return cls(ManagedLedgerRecord(managed_ledger_id=managed_ledger_id, version=0), (), {})


def open_engine(path: Path | None, config: StoreConfig) -> StorageEngine:
    """Open the default engine of a path, in memory for None."""
    if path is None:
        return MemoryEngine()
    from kledger.ledger.engine.log_rocksdb import LogRocksdbEngine  # noqa: PLC0415 - for folders

    return LogRocksdbEngine(path, durability=config.durability)


def on_loop_bytes_max(engine: StorageEngine, config: StoreConfig) -> int:
    """Return the size below which a group is committed on the event loop."""
    if engine.needs_thread:
        return 0
    if isinstance(engine, MemoryEngine):
        return sys.maxsize
    return SMALL_GROUP_BYTES if config.durability == "os" else 0


def read_ahead_bytes_max(engine: StorageEngine, config: StoreConfig) -> int:
    """Return the limit of the read-ahead: 0 if reads are free, or if a test counts them."""
    is_free = engine.needs_thread or isinstance(engine, MemoryEngine)
    return 0 if is_free else config.read_ahead_bytes_max


def load_snapshot(engine: StorageEngine, name: str, now_ms: int) -> ManagedLedgerSnapshot | None:
    """Read a managed ledger; None if there is none of that name.

    Raises:
        Corrupt: a row cannot be read.
        StorageError: the engine fails.
    """
    row = engine.get(keys.managed_ledger_key(name))
    if row is None:
        return None
    head = decode_managed_ledger(row)
    rows = engine.scan(*keys.ledger_range(head.managed_ledger_id))
    ledgers = [decode_ledger(keys.ledger_id_in(key), value) for key, value in rows]
    found = {
        record.ledger_id: _count(engine, record, now_ms)
        for record in ledgers
        if not record.closed_ms
    }
    return ManagedLedgerSnapshot(head, ledgers, found, load_cursors(engine, head.managed_ledger_id))


def load_ledgers(engine: StorageEngine, name: str) -> tuple[LedgerInfo, ...] | None:
    """Read the ledgers of a managed ledger that is not open.

    Returns:
        Every ledger, oldest first; None if there is no such managed ledger, or if it was not closed
        properly, so that only an opening finds the true counts.

    Raises:
        Corrupt: a row cannot be read.
        StorageError: the engine fails.
    """
    row = engine.get(keys.managed_ledger_key(name))
    if row is None:
        return None
    infos = []
    for key, value in engine.scan(*keys.ledger_range(decode_managed_ledger(row).managed_ledger_id)):
        record = decode_ledger(keys.ledger_id_in(key), value)
        if not record.closed_ms and engine.last_entry(record.ledger_id) + 1 != record.entries:
            return None
        infos.append(LedgerInfo.of(record))
    return tuple(infos)


def load_compacted(engine: StorageEngine, name: str) -> CompactedLedger | None:
    """Read what stands for the beginning of a managed ledger; raises as `load_ledgers`."""
    row = engine.get(keys.managed_ledger_key(name))
    return None if row is None else decode_managed_ledger(row).compacted


def load_cursors(engine: StorageEngine, managed_ledger_id: int) -> tuple[StoredCursor, ...]:
    """Read the durable cursors of a managed ledger; a damaged one is recovered as a new one."""
    *ranges, change_range = keys.cursor_ranges(managed_ledger_id)
    snapshots, progress = (
        {keys.cursor_name_in(key): row for key, row in engine.scan(*each)} for each in ranges
    )
    changes: dict[str, dict[int, bytes]] = {}
    for key, row in engine.scan(*change_range):
        of_cursor = changes.setdefault(keys.cursor_name_in(key), {})
        of_cursor[keys.cursor_change_number_in(key)] = row
    return tuple(
        recover_cursor(name, row, progress.get(name), changes.get(name, {}))
        for name, row in snapshots.items()
    )


class StoredStore(NamedTuple):
    """What a store reads when it opens.

    Attributes:
        next_id: the next unused id.
        names: of all managed ledgers.
        has_copy_deletions: whether copies have to be deleted in a tier.
    """

    next_id: int
    names: list[str]
    has_copy_deletions: bool


def load_store(engine: StorageEngine) -> StoredStore:
    """Return what a store needs at its start."""
    counter = engine.get(keys.ID_COUNTER)
    rows = engine.scan(*keys.managed_ledger_range())
    return StoredStore(
        next_id=decode_counter(counter) if counter is not None else 1,
        names=[keys.managed_ledger_name(key) for key, _ in rows],
        has_copy_deletions=bool(engine.scan(*keys.copy_deletion_range(), limit=1)),
    )


def load_deletions(engine: StorageEngine, names: Sequence[str]) -> tuple[list[Row], list[int]]:
    """Return the rows that delete managed ledgers with all copies, and the ids of their ledgers."""
    rows: list[Row] = []
    dropped: list[int] = []
    for name in names:
        head_key = keys.managed_ledger_key(name)
        row = engine.get(head_key)
        assert row is not None, f"{name} has no record"
        head = decode_managed_ledger(row)
        id_ = head.managed_ledger_id
        rows.append((head_key, None))
        for key, value in engine.scan(*keys.ledger_range(id_)):
            dropped.append(keys.ledger_id_in(key))
            rows.append((key, None))
            with suppress(Corrupt):  # a damaged row must not keep the rest
                rows += deletion_rows(decode_ledger(keys.ledger_id_in(key), value))
        dropped += head.ids_beside_list
        for each in keys.cursor_ranges(id_):
            rows += [(key, None) for key, _ in engine.scan(*each)]
    return rows, dropped


def deletion_rows(record: LedgerRecord) -> list[Row]:
    """Return the row that has the copy of a removed ledger deleted; an attempt has one already."""
    if record.tiered is None:
        return []
    deletion = CopyDeletion.of(record.ledger_id, record.tiered)
    return [(keys.copy_deletion_key(deletion.attempt), encode_copy_deletion(deletion))]


def recovered_state(
    snapshot: ManagedLedgerSnapshot, *, new_ledger_id: int, now_ms: int
) -> tuple[MetadataChange, LedgerListState]:
    """Return the change that takes the managed ledger over, and the state after it."""
    change = plan_recovery(
        snapshot.head,
        snapshot.ledgers,
        snapshot.found,
        new_ledger_id=new_ledger_id,
        now_ms=now_ms,
    )
    records = {record.ledger_id: record for record in (*snapshot.ledgers, *change.put)}
    ledgers = [record for id_, record in records.items() if id_ not in change.removed]
    return change, LedgerListState(change.head, ledgers)


def _count(engine: StorageEngine, mark: LedgerRecord, now_ms: int) -> LedgerRecord:
    """Return the true counts of an open ledger: its mark and the entries stored after it."""
    end = engine.last_entry(mark.ledger_id) + 1
    entries, size = mark.entries, mark.size
    if end < entries:
        raise Corrupt(f"ledger {mark.ledger_id}: {end} entries are stored, its mark says {entries}")
    if end == entries:
        return mark
    while entries < end:
        buffers = engine.read(mark.ledger_id, entries, end - 1, COUNT_STEP_BYTES)
        entries += len(buffers)
        size += sum(map(len, buffers))
    # The timestamps of the counted entries were not stored; none should be later than now.
    latest = max(mark.max_timestamp_ms, now_ms)
    return replace(mark, entries=entries, size=size, max_timestamp_ms=latest)
