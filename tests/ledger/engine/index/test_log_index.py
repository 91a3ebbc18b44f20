"""The index batches groups in order, and is never ahead of what the log has durably."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, current_thread, main_thread

import pytest

from kledger.ledger.engine.base import CommitGroup, Move
from kledger.ledger.engine.index import log_index
from kledger.ledger.engine.index.index_keys import SPACE_END, SPACE_PREFIX, decode_space
from kledger.ledger.engine.index.log_index import FRAME_WEIGHT, LogIndex
from kledger.ledger.engine.index.rocksdb_table import RocksdbTable
from kledger.ledger.engine.log.entry_log import LogEnd, PlacedGroup
from kledger.ledger.engine.log.frames import HEADER_SIZE
from kledger.ledger.engine.log.recovery_plan import Watermark


class CountingLog:
    """A log of which only the durable end matters."""

    def __init__(self) -> None:
        self.synced_end = LogEnd(1, 0, 0)
        self.end = LogEnd(1, 0, 0)
        self.sync_count = 0

    def placed(self, group: CommitGroup) -> PlacedGroup:
        start = self.end.position
        size = sum(HEADER_SIZE + len(data) for _, _, data in group.entries) + 100
        self.end = LogEnd(self.end.file, start + size, self.end.group + 1)
        return PlacedGroup(group, start, self.end, len(group.entries) + 1)

    def sync(self) -> None:
        self.synced_end = self.end
        self.sync_count += 1


class HeldLog(CountingLog):
    """A log whose syncs wait until the test releases them; an event loop must not wait for them."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun = Event()
        self.may_end = Event()

    def sync(self) -> None:
        assert current_thread() is not main_thread(), "a sync on the thread of the loop"
        end = self.end
        self.has_begun.set()
        assert self.may_end.wait(60), "a call on the event loop waits for the sync"
        self.synced_end = end
        self.sync_count += 1


@pytest.fixture
def log() -> CountingLog:
    return CountingLog()


@pytest.fixture
def index(tmp_path: Path, log: CountingLog) -> Iterator[LogIndex]:
    made = LogIndex(RocksdbTable(tmp_path / "index"))
    made.log = log
    yield made
    made.close()


def entries(ledger_id: int, *ids: int, size: int = 10) -> CommitGroup:
    return CommitGroup(entries=[(ledger_id, each, bytes(size)) for each in ids])


def test_groups_wait_until_the_next_read(index: LogIndex, log: CountingLog) -> None:
    index.add(log.placed(entries(7, 0, 1)))
    assert Watermark(1, 0, 0) == index.watermark
    assert 1 == index.last_entry(7)
    assert Watermark(*log.end) == index.watermark


@pytest.mark.parametrize(("count", "size"), [(300, 10), (20, 100_000)])
def test_groups_do_not_wait_for_ever(
    index: LogIndex, log: CountingLog, count: int, size: int
) -> None:
    for number in range(count):
        index.add(log.placed(entries(7, number, size=size)))
    assert index.watermark.group > 0


def test_locations_are_contiguous(index: LogIndex, log: CountingLog) -> None:
    index.add(log.placed(entries(7, 0, 1, size=10)))
    index.add(log.placed(entries(7, 2, size=30)))
    first_end = 2 * (HEADER_SIZE + 10) + 100
    assert [(1, HEADER_SIZE + 10), (2, first_end)] == [
        (location.entry_id, location.position) for location in index.locations(7, 1, 9, 1000)
    ]


def test_reader_during_a_flush_has_the_log_synced_first(index: LogIndex, log: CountingLog) -> None:
    """RocksDB may take along what is written while it flushes, so that must be durable."""
    index.add(log.placed(entries(7, 0)))
    index.begin_flush()
    index.add(log.placed(entries(7, 1)))
    assert 0 == log.sync_count
    assert 1 == index.last_entry(7)
    assert 1 == log.sync_count
    index.end_flush()
    index.add(log.placed(entries(7, 2)))
    assert 2 == index.last_entry(7)
    assert 1 == log.sync_count


def test_writer_during_a_flush_waits_with_what_is_not_durable(
    index: LogIndex, log: CountingLog
) -> None:
    index.begin_flush()
    for number in range(1000):
        index.add(log.placed(entries(7, number)))
    assert (0, 0) == (index.watermark.group, log.sync_count)
    log.sync()
    index.add(log.placed(entries(7, 1000)))
    index.end_flush()
    assert 1000 == index.last_entry(7)
    assert 1 == log.sync_count


def test_writer_ahead_by_more_than_the_limit_has_to_catch_up(
    index: LogIndex, log: CountingLog
) -> None:
    """`add` is called on an event loop, so it never syncs; the next commit does, in a thread."""
    index.begin_flush()
    count = 0
    while not index.is_behind:
        index.add(log.placed(entries(7, count)))
        count += 1
    assert (0, 0) == (index.watermark.group, log.sync_count)
    assert count <= log_index.STALLED_WEIGHT_MAX // FRAME_WEIGHT
    index.catch_up()
    assert not index.is_behind
    assert (count, 1) == (index.watermark.group, log.sync_count)


@pytest.mark.parametrize("what", ["locations", "begin_flush", "catch_up", "last_entry"])
def test_no_call_of_an_event_loop_waits_for_a_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A thread that needed a sync held the index's lock meanwhile, and reads of rows synced."""
    monkeypatch.setattr(log_index, "UNFLUSHED_BYTES_MAX", 0)
    log = HeldLog()
    index = LogIndex(RocksdbTable(tmp_path / "index"))
    index.log = log
    calls: dict[str, Callable[[], object]] = {
        "locations": lambda: index.locations(7, 0, 0, 1000),
        "begin_flush": index.begin_flush,
        "catch_up": index.catch_up,
        "last_entry": lambda: index.last_entry(7),
    }
    index.add(log.placed(CommitGroup(rows=[(b"a", b"old")])))
    assert b"old" == index.get(b"a")
    assert index.is_large  # RocksDB may flush of its own accord now
    index.add(log.placed(CommitGroup(entries=[(7, 0, b"x")], rows=[(b"a", b"1"), (b"b", b"1")])))
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(calls[what])
        try:
            assert log.has_begun.wait(60)
            index.add(log.placed(CommitGroup(entries=[(7, 1, b"y")], rows=[(b"b", b"2")])))
            assert (b"1", b"2") == (index.get(b"a"), index.get(b"b"))
            rows = index.scan(b"a", b"z", reverse=False, limit=None)
            assert [(b"a", b"1"), (b"b", b"2")] == rows
            assert [] == index.locations_nowait(7, 0, 1, 1000)
            assert 2 * HEADER_SIZE + 2 == index.live_bytes(1)
        finally:
            log.may_end.set()
        asked.result(60)
    assert Watermark(1, log.synced_end.position, 2) == index.watermark
    assert [(1, 7, HEADER_SIZE + 1)] == space_rows(index)
    index.end_flush()
    log.synced_end = log.end
    index.begin_flush()
    assert (3, 1) == (index.watermark.group, index.last_entry(7))
    assert [(1, 7, 2 * HEADER_SIZE + 2)] == space_rows(index)
    index.close()


def space_rows(index: LogIndex) -> list[tuple[int, int, int]]:
    """Return the space rows of the database: file, ledger and its bytes in the file."""
    return [decode_space(*row) for row in index._table.rows(SPACE_PREFIX, SPACE_END)]


@pytest.mark.parametrize(
    ("limits", "reverse", "limit", "expected"),
    [
        ("  z", False, None, "a0 b1 c1 e0 f1"),
        ("  z", True, None, "f1 e0 c1 b1 a0"),
        ("  z", False, 2, "a0 b1"),
        ("  z", True, 3, "f1 e0 c1"),
        ("b e", False, None, "b1 c1"),
        ("c f", True, None, "e0 c1"),
        ("d e", False, None, ""),
        ("f z", False, None, "f1"),
        ("a b", True, None, "a0"),
    ],
)
def test_waiting_rows_take_precedence_over_those_of_the_database(
    index: LogIndex, limits: str, reverse: bool, limit: int | None, expected: str
) -> None:
    log = CountingLog()
    index.log = log
    start, end = limits[0].encode(), limits[2].encode()
    index.add(log.placed(CommitGroup(rows=[(key.encode(), b"0") for key in "abde"])))
    index.begin_flush()
    index.add(log.placed(CommitGroup(rows=[(b"b", None), (b"d", b"1"), (b"g", None)])))
    index.add(
        log.placed(CommitGroup(rows=[(key.encode(), b"1") for key in "fbc"] + [(b"d", None)]))
    )
    found = index.scan(start, end, reverse=reverse, limit=limit)
    assert expected == " ".join((key + value).decode() for key, value in found)
    for key, value in found:
        assert value == index.get(key)
    assert (None, None) == (index.get(b"d"), index.get(b"g"))
    assert 0 == log.sync_count


def test_index_that_grew_large_is_durable_in_the_log_before_more(
    index: LogIndex, log: CountingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB would soon flush of its own accord."""
    monkeypatch.setattr(log_index, "UNFLUSHED_BYTES_MAX", 0)
    index.add(log.placed(entries(7, 0)))
    assert 0 == index.last_entry(7)
    assert index.is_large
    index.add(log.placed(entries(7, 1)))
    assert 1 == index.last_entry(7)
    assert 1 == log.sync_count


def test_space_and_watermark_survive_with_the_rows(tmp_path: Path, log: CountingLog) -> None:
    index = LogIndex(RocksdbTable(tmp_path / "index"))
    index.log = log
    index.add(log.placed(entries(7, 0, 1)))
    index.add(log.placed(entries(8, 0)))
    index.add(log.placed(CommitGroup(drops=[7])))
    index.begin_flush()
    index.close()

    index = LogIndex(RocksdbTable(tmp_path / "index"))
    assert Watermark(*log.end) == index.watermark
    assert HEADER_SIZE + 10 == index.space.live_bytes(1)
    assert [-1, 0] == [index.last_entry(ledger) for ledger in (7, 8)]
    index.close()


def test_stalled_batch_is_kept_and_written_later(
    index: LogIndex, log: CountingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB has no room for a while: nothing is lost, nothing is counted twice."""
    with monkeypatch.context() as patch:
        patch.setattr(RocksdbTable, "write", lambda *_, wait: False)
        for number in range(600):
            index.add(log.placed(entries(7, number)))
        assert 0 == index.watermark.group
    assert 599 == index.last_entry(7)
    assert 600 == len(index.locations(7, 0, 1000, 1 << 20))
    assert 600 * (HEADER_SIZE + 10) == index.space.live_bytes(1)


@pytest.mark.parametrize("count", [1, 2, 1000])
def test_locations_nowait_returns_those_in_memory(
    index: LogIndex, log: CountingLog, count: int
) -> None:
    """After a flush the rows are in a table file, of which the cache has no block yet."""
    index.add(log.placed(entries(7, *range(count))))
    assert count == len(index.locations_nowait(7, 0, count - 1, 1 << 20))
    index.begin_flush()
    index.flush()
    index.end_flush()
    assert [] == index.locations_nowait(7, 0, count - 1, 1 << 20)
    assert 1 == len(index.locations(7, 0, 0, 1 << 20))
    begun = index.locations_nowait(7, 0, count - 1, 1 << 20)
    assert len(begun) < 500
    assert count == len(index.locations(7, 0, count - 1, 1 << 20))
    assert count == len(index.locations_nowait(7, 0, count - 1, 1 << 20))
    assert [] == index.locations_nowait(7, count, count + 5, 1 << 20)


def test_locations_of_moves_are_loaded_before_they_are_indexed(
    index: LogIndex, log: CountingLog
) -> None:
    index.add(log.placed(entries(7, 0)))
    index.begin_flush()
    index.flush()
    index.end_flush()
    assert [] == index.locations_nowait(7, 0, 0, 1000)
    moves = [Move(7, 0, 1, 0)]
    index.load_locations_of(moves)
    assert 1 == len(index.locations_nowait(7, 0, 0, 1000))


def test_file_emptied_by_a_drop_is_noticed_and_removable(index: LogIndex, log: CountingLog) -> None:
    index.add(log.placed(entries(7, 0)))
    log.end = LogEnd(2, 0, log.end.group)
    index.add(log.placed(entries(8, 0)))
    assert not index.has_dead_file
    index.add(log.placed(CommitGroup(drops=[7])))

    assert index.has_dead_file
    assert 2 == index.begin_flush().file
    assert [1] == index.removable_files([1, 2])
    index.forget_file(1)
    index.end_flush()
