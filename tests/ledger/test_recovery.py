"""The state of a managed ledger, recovered from rows and entries."""

import pytest

from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.engine.memory import MemoryEngine
from kledger.ledger.errors import Corrupt
from kledger.ledger.metadata import keys
from kledger.ledger.metadata.records import (
    LedgerRecord,
    ManagedLedgerRecord,
    encode_counter,
    encode_ledger,
    encode_managed_ledger,
)
from kledger.ledger.recovery import (
    ManagedLedgerSnapshot,
    load_deletions,
    load_snapshot,
    load_store,
    recovered_state,
)
from tests.ledger.words import closed, opened, pos

HEAD = ManagedLedgerRecord(managed_ledger_id=3, version=8)


def stored(*records: LedgerRecord, entries: tuple[int, int] = (0, 0)) -> MemoryEngine:
    """Make an engine with these rows, and `entries` = (ledger id, count) entries of 10 bytes."""
    engine = MemoryEngine()
    ledger_id, count = entries
    group = CommitGroup(
        entries=[(ledger_id, entry_id, bytes(10)) for entry_id in range(count)],
        rows=[
            (keys.managed_ledger_key("orders"), encode_managed_ledger(HEAD)),
            *((keys.ledger_key(3, record.ledger_id), encode_ledger(record)) for record in records),
            (keys.ledger_key(4, 1), b"another managed ledger's"),
        ],
    )
    engine.commit(group, sync=True)
    engine.index(group)
    return engine


def test_nothing_of_that_name() -> None:
    assert None is load_snapshot(stored(), "payments", 0)


def test_an_open_ledger_is_counted_from_its_mark_on() -> None:
    mark = LedgerRecord(ledger_id=6, entries=4, size=1000, max_timestamp_ms=7)
    snapshot = load_snapshot(stored(closed(5, 2), mark, entries=(6, 9)), "orders", now_ms=50)
    # The mark says 1000 bytes for the first four: they are not read again.
    found = LedgerRecord(ledger_id=6, entries=9, size=1050, max_timestamp_ms=50)
    assert ManagedLedgerSnapshot(HEAD, [closed(5, 2), mark], {6: found}) == snapshot


def test_a_mark_beyond_the_entries_is_corruption() -> None:
    mark = LedgerRecord(ledger_id=6, entries=10, size=100)
    with pytest.raises(Corrupt, match="ledger 6: 9 entries are stored, its mark says 10"):
        load_snapshot(stored(mark, entries=(6, 9)), "orders", now_ms=50)


def test_an_exact_mark_needs_no_reading() -> None:
    mark = LedgerRecord(ledger_id=6, entries=9, size=90, max_timestamp_ms=7)
    snapshot = load_snapshot(stored(mark, entries=(6, 9)), "orders", now_ms=50)
    assert snapshot is not None
    assert {6: mark} == snapshot.found


def test_a_large_tail_is_read_in_steps() -> None:
    engine = stored(opened(6))
    group = CommitGroup(entries=[(6, entry_id, bytes(700_000)) for entry_id in range(5)])
    engine.commit(group, sync=True)
    engine.index(group)
    snapshot = load_snapshot(engine, "orders", now_ms=0)
    assert snapshot is not None
    assert (5, 3_500_000) == (snapshot.found[6].entries, snapshot.found[6].size)


def test_a_damaged_row_raises() -> None:
    engine = stored()
    group = CommitGroup(rows=[(keys.managed_ledger_key("orders"), b"\x09")])
    engine.commit(group, sync=True)
    engine.index(group)
    with pytest.raises(Corrupt):
        load_snapshot(engine, "orders", 0)


def test_a_store_has_names_and_a_counter() -> None:
    assert (1, [], False) == load_store(MemoryEngine())
    engine = stored(opened(6))
    group = CommitGroup(rows=[(keys.ID_COUNTER, encode_counter(12))])
    engine.commit(group, sync=True)
    engine.index(group)
    assert (12, ["orders"], False) == load_store(engine)


def test_a_deletion_takes_the_rows_of_that_managed_ledger_and_its_ledgers() -> None:
    engine = stored(closed(5, 2), opened(6))
    rows, ledger_ids = load_deletions(engine, ["orders"])
    assert ({None}, [5, 6]) == ({value for _, value in rows}, ledger_ids)
    group = CommitGroup(rows=rows)
    engine.commit(group, sync=True)
    engine.index(group)
    assert [b"another managed ledger's"] == [row for _, row in engine.scan(b"", b"\xff")]


def test_recovered_state_is_what_the_change_makes() -> None:
    snapshot = load_snapshot(
        stored(closed(4, 0), closed(5, 2), opened(6), entries=(6, 3)), "orders", now_ms=50
    )
    assert snapshot is not None
    change, state = recovered_state(snapshot, new_ledger_id=9, now_ms=50)
    assert (9, (4,)) == (change.head.version, change.removed)
    assert ((5, 6, 9), 9, pos("6:2"), 50) == (
        state.ledger_ids,
        state.open_id,
        state.lac,
        state.total_size,
    )


def test_a_new_managed_ledger_begins_before_its_first_entry() -> None:
    _, state = recovered_state(ManagedLedgerSnapshot.of_new(3), new_ledger_id=9, now_ms=0)
    assert ((9,), pos("9:-1"), 1) == (state.ledger_ids, state.lac, state.head.version)
