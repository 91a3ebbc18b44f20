"""The contract of every engine: one suite over memory, disk, and both behind faults."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kledger.ledger.engine.base import CommitGroup, Move, StorageEngine
from kledger.ledger.engine.errors import EntryMissing
from kledger.ledger.engine.faulty import FaultInjectingEngine
from kledger.ledger.engine.log_rocksdb import LogRocksdbEngine
from kledger.ledger.engine.memory import MemoryEngine
from tests.ledger.cluster.words import OBJECTS, ModelCluster, RestartingClusterEngine
from tests.ledger.engine.words import entry_count, group_of, payload, store

ENGINES: dict[str, Callable[[Path], StorageEngine]] = {
    "memory": lambda _folder: MemoryEngine(),
    "log_rocksdb fsync": LogRocksdbEngine,
    "log_rocksdb os": lambda folder: LogRocksdbEngine(folder, durability="os"),
    "cluster, inline": lambda _folder: ModelCluster().own(),
    "cluster, objects": lambda _folder: ModelCluster(limits=OBJECTS).own(),
    "cluster without a cache": lambda _folder: ModelCluster(limits=OBJECTS, cached=False).own(),
    "faulty memory": lambda _folder: FaultInjectingEngine(None),
    "faulty cluster": lambda _folder: FaultInjectingEngine(RestartingClusterEngine()),
    "faulty log_rocksdb": FaultInjectingEngine,
}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StorageEngine]:
    made = ENGINES[request.param](tmp_path / "data")
    yield made
    made.close()


@pytest.mark.parametrize("sync", [True, False])
def test_committed_group_is_visible_after_index_only(engine: StorageEngine, sync: bool) -> None:
    group = group_of(0)
    engine.commit(group, sync=sync)

    assert -1 == engine.last_entry(7)
    assert engine.get(b"count") is None
    engine.index(group)
    assert 1 == entry_count(engine)


def test_new_engine_is_empty(engine: StorageEngine) -> None:
    assert 0 == entry_count(engine)
    assert [] == engine.scan(b"", b"\xff")
    with pytest.raises(EntryMissing, match="no entry 7:0"):
        engine.read(7, 0, 10, 1000)


def test_index_in_another_order_is_refused(engine: StorageEngine) -> None:
    first, second = group_of(0), group_of(1)
    engine.commit(first, sync=False)
    engine.commit(second, sync=False)
    with pytest.raises(AssertionError):
        engine.index(second)


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 70_000])
def test_entries_of_every_size_and_kind_are_read_as_written(
    engine: StorageEngine, size: int
) -> None:
    data = payload(3, size)
    group = CommitGroup(
        entries=[(1, 0, data), (2, 0, bytearray(data)), (1, 1, memoryview(b"x" + data)[1:])]
    )
    store(engine, group)

    assert [data, data] == engine.read(1, 0, 1, 1 << 20)
    assert [data] == engine.read(2, 0, 5, 1 << 20)


@pytest.mark.parametrize(
    ("first", "last", "bytes_max", "expected"),
    [
        (0, 9, 1 << 20, range(10)),
        (0, 9, 0, range(1)),
        (0, 9, 39, range(1)),
        (0, 9, 80, range(2)),
        (0, 9, 119, range(2)),
        (3, 5, 1 << 20, range(3, 6)),
        (8, 100, 1 << 20, range(8, 10)),
        (9, 9, 40, range(9, 10)),
    ],
)
def test_read_returns_what_fits_and_at_least_one(
    engine: StorageEngine, first: int, last: int, bytes_max: int, expected: range
) -> None:
    store(engine, *map(group_of, range(10)))
    assert [payload(each) for each in expected] == engine.read(7, first, last, bytes_max)


def test_resident_read_is_the_same_or_nothing(engine: StorageEngine) -> None:
    store(engine, *map(group_of, range(10)))
    for first, last, bytes_max in ((0, 9, 1 << 20), (0, 9, 79), (4, 4, 0), (8, 100, 1 << 20)):
        expected = engine.read(7, first, last, bytes_max)
        assert engine.read_resident(7, first, last, bytes_max) in (None, expected)
    assert not engine.read_resident(7, 10, 11, 100)
    assert not engine.read_resident(8, 0, 11, 100)


def test_read_of_interleaved_ledgers_returns_the_right_entries(engine: StorageEngine) -> None:
    for number in range(50):
        store(
            engine,
            CommitGroup(entries=[(n, number, payload(number * 10 + n, 500)) for n in range(5)]),
            sync=False,
        )
    for ledger in range(5):
        expected = [payload(number * 10 + ledger, 500) for number in range(50)]
        assert expected == engine.read(ledger, 0, 49, 1 << 20)


def test_entry_that_is_missing_ends_a_read(engine: StorageEngine) -> None:
    store(engine, CommitGroup(entries=[(7, 0, b"a"), (7, 1, b"b"), (7, 5, b"c")]))

    assert [b"a", b"b"] == engine.read(7, 0, 9, 100)
    assert [b"c"] == engine.read(7, 5, 9, 100)
    assert 5 == engine.last_entry(7)
    for missing in (2, 6):
        with pytest.raises(EntryMissing):
            engine.read(7, missing, 9, 100)


def test_rows_apply_in_order(engine: StorageEngine) -> None:
    store(
        engine,
        CommitGroup(rows=[(b"a", b"1"), (b"b", b"2"), (b"a", None), (b"c", b"")]),
        CommitGroup(rows=[(b"b", b"3"), (b"b", b"4"), (b"missing", None), (b"a", b"5")]),
    )
    assert [b"5", b"4", b"", None] == [engine.get(key) for key in (b"a", b"b", b"c", b"missing")]


@pytest.mark.parametrize(
    ("limits", "reverse", "limit", "expected"),
    [
        ((b"", b"\xff"), False, None, "abcde"),
        ((b"b", b"d"), False, None, "bc"),
        ((b"b", b"d"), True, None, "cb"),
        ((b"", b"\xff"), True, 2, "ed"),
        ((b"bb", b"\xff"), False, 2, "cd"),
        ((b"", b"\xff"), False, 0, ""),
        ((b"d", b"b"), False, None, ""),
        ((b"c", b"c"), False, None, ""),
        ((b"x", b"z"), False, None, ""),
    ],
)
def test_scan_is_ordered_and_bounded(
    engine: StorageEngine,
    limits: tuple[bytes, bytes],
    reverse: bool,
    limit: int | None,
    expected: str,
) -> None:
    store(engine, CommitGroup(rows=[(each.encode(), b"v" + each.encode()) for each in "ecadb"]))
    found = engine.scan(*limits, reverse=reverse, limit=limit)
    assert [(each.encode(), b"v" + each.encode()) for each in expected] == found


def test_keys_and_ledgers_do_not_mix(engine: StorageEngine) -> None:
    """Rows may have any key, even one that looks like a key of the engine."""
    keys = [b"", b"e", b"e" + bytes(16), b"r", b"s", b"t", b"w", b"\xff" * 20]
    store(engine, CommitGroup(entries=[(0, 0, b"x")], rows=[(key, b"v" + key) for key in keys]))

    assert [b"x"] == engine.read(0, 0, 0, 10)
    assert [(key, b"v" + key) for key in keys] == engine.scan(b"", b"\xff" * 21)


def test_drop_takes_all_entries_of_a_ledger_and_no_other(engine: StorageEngine) -> None:
    for ledger in (6, 7, 8, 255, 256):
        store(engine, CommitGroup(entries=[(ledger, n, payload(ledger)) for n in range(3)]))
    store(engine, CommitGroup(drops=[7, 255]))

    assert [2, -1, 2, -1, 2] == [engine.last_entry(ledger) for ledger in (6, 7, 8, 255, 256)]
    with pytest.raises(EntryMissing):
        engine.read(7, 0, 2, 1000)
    assert [payload(8)] * 3 == engine.read(8, 0, 2, 1000)


def test_empty_group_is_a_group(engine: StorageEngine) -> None:
    store(engine, CommitGroup(), group_of(0), CommitGroup())
    assert 1 == entry_count(engine)


def test_group_of_very_many_entries_is_atomic(engine: StorageEngine) -> None:
    """More buffers than one system call takes, small ones and large ones."""
    entries = [(1, n, payload(n, 5000 if n % 2 else 10)) for n in range(3000)]
    store(engine, CommitGroup(entries=[*entries]))
    assert [data for _, _, data in entries] == engine.read(1, 0, 2999, 1 << 30)


def test_checkpoint_changes_nothing_visible(engine: StorageEngine) -> None:
    store(engine, group_of(0), sync=False)
    engine.checkpoint()
    store(engine, group_of(1), sync=False)

    assert 2 == entry_count(engine)
    assert not engine.checkpoint_due()


def test_two_steps_make_a_commit(tmp_path: Path) -> None:
    for made in (MemoryEngine(), LogRocksdbEngine(tmp_path)):
        group = group_of(0)
        made.write(group, sync_follows=True)
        made.sync()
        made.index(group)
        assert 1 == entry_count(made)
        made.close()


def test_close_may_be_repeated(engine: StorageEngine) -> None:
    engine.close()
    engine.close()


def test_moved_entries_stay_what_they_are(engine: StorageEngine) -> None:
    """They keep their bytes, and do not reappear after their ledger was dropped."""
    store(engine, group_of(0), group_of(1), group_of(0, ledger_id=8))
    engine_moves = [Move(7, 0, 1, 0), Move(8, 0, 1, 0)]
    entries = [(7, 0, payload(0)), (8, 0, payload(0))]
    store(engine, CommitGroup(drops=[8]), CommitGroup(entries=[*entries], moves=engine_moves))
    assert [payload(0), payload(1)] == engine.read(7, 0, 9, 1000)
    assert 1 == engine.last_entry(7)
    assert -1 == engine.last_entry(8)
    with pytest.raises(EntryMissing):
        engine.read(8, 0, 0, 1000)


def test_fresh_engine_wants_nothing_moved(engine: StorageEngine) -> None:
    store(engine, group_of(0))
    assert engine.next_moves(dead_share_max=0.2, bytes_max=1000) is None
