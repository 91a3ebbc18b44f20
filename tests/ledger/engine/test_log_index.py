"""The index batches groups in order, and is never ahead of what the log has durably."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.engine import log_index
from ledger.engine.base import CommitGroup
from ledger.engine.entry_log import Place, PlacedGroup
from ledger.engine.frames import HEADER_SIZE
from ledger.engine.log_index import LogIndex
from ledger.engine.recovery_plan import Watermark
from ledger.engine.rocksdb_table import RocksdbTable


class CountingLog:
    """A log of which only the durable end matters."""

    def __init__(self) -> None:
        self.synced_end = Place(1, 0, 0)
        self.end = Place(1, 0, 0)
        self.sync_count = 0

    def placed(self, group: CommitGroup) -> PlacedGroup:
        start = self.end.position
        size = sum(HEADER_SIZE + len(data) for _, _, data in group.entries) + 100
        self.end = Place(self.end.file, start + size, self.end.group + 1)
        return PlacedGroup(group, start, self.end, len(group.entries) + 1)

    def sync(self) -> None:
        self.synced_end = self.end
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


def test_groups_wait_until_somebody_reads(index: LogIndex, log: CountingLog) -> None:
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


def test_places_add_up(index: LogIndex, log: CountingLog) -> None:
    index.add(log.placed(entries(7, 0, 1, size=10)))
    index.add(log.placed(entries(7, 2, size=30)))
    first_end = 2 * (HEADER_SIZE + 10) + 100
    assert [(1, HEADER_SIZE + 10), (2, first_end)] == [
        (place.entry_id, place.position) for place in index.places(7, 1, 9, 1000)
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


def test_writer_does_not_wait_with_more_than_its_limit(index: LogIndex, log: CountingLog) -> None:
    index.begin_flush()
    for number in range(5000):
        index.add(log.placed(entries(7, number)))
    assert 1 <= log.sync_count <= 2
    assert index.watermark.group > 4000


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
    assert 600 == len(index.places(7, 0, 1000, 1 << 20))
    assert 600 * (HEADER_SIZE + 10) == index.space.live_bytes(1)


def test_file_emptied_by_a_drop_is_noticed_and_removable(index: LogIndex, log: CountingLog) -> None:
    index.add(log.placed(entries(7, 0)))
    log.end = Place(2, 0, log.end.group)
    index.add(log.placed(entries(8, 0)))
    assert not index.has_dead_file
    index.add(log.placed(CommitGroup(drops=[7])))

    assert index.has_dead_file
    assert 2 == index.begin_flush().file
    assert [1] == index.removable_files([1, 2])
    index.forget_file(1)
    index.end_flush()
