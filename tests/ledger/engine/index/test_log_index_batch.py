"""A batch is what its groups change, as of its last group."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kledger.ledger.engine.base import CommitGroup, Row
from kledger.ledger.engine.index.index_keys import (
    ROW_PREFIX,
    SPACE_END,
    SPACE_PREFIX,
    WATERMARK_KEY,
    decode_space,
    decode_watermark,
)
from kledger.ledger.engine.index.log_index import FRAME_WEIGHT, IndexBatch
from kledger.ledger.engine.index.rocksdb_table import RocksdbTable
from kledger.ledger.engine.index.space_plan import LogSpace
from kledger.ledger.engine.log.entry_log import LogEnd, PlacedGroup
from kledger.ledger.engine.log.recovery_plan import Watermark


@pytest.fixture
def table(tmp_path: Path) -> Iterator[RocksdbTable]:
    made = RocksdbTable(tmp_path / "index")
    yield made
    made.close()


def placed(number: int, *rows: Row) -> PlacedGroup:
    start = 100 * (number - 1)
    return PlacedGroup(CommitGroup(rows=[*rows]), start, LogEnd(1, start + 100, number), 2)


def test_weight_counts_frames_and_bytes() -> None:
    batch = IndexBatch()
    batch.add(placed(1))
    batch.add(placed(2))
    assert 2 * (2 * FRAME_WEIGHT + 100) == batch.weight


def test_rows_of_later_groups_replace_earlier_ones() -> None:
    batch = IndexBatch()
    batch.add(placed(1, (b"a", b"1"), (b"b", b"1")))
    assert {b"a": b"1", b"b": b"1"} == batch.rows()
    batch.add(placed(2, (b"b", None), (b"c", b"2"), (b"c", b"3")))
    assert {b"a": b"1", b"b": None, b"c": b"3"} == batch.rows()


@pytest.mark.parametrize(("is_sealed", "expected"), [(True, 10), (False, 30)])
def test_sealed_batch_keeps_the_space_of_its_last_group(
    table: RocksdbTable, *, is_sealed: bool, expected: int
) -> None:
    """What later groups add would be counted twice when they are replayed."""
    batch, space = IndexBatch(), LogSpace()
    batch.add(placed(1, (b"a", b"1")))
    space.ledgers_in(1)[7] = 10
    batch.touched[1] = {7}
    if is_sealed:
        batch.seal(space)
    space.ledgers_in(1)[7] = 30
    batch.seal(space)
    for _ in range(2):  # the database may refuse it once
        table.write(batch.encode(space), wait=True)
    assert [(1, 7, expected)] == [decode_space(*row) for row in table.rows(SPACE_PREFIX, SPACE_END)]
    assert b"1" == table.get(ROW_PREFIX + b"a")
    assert (value := table.get(WATERMARK_KEY)) is not None
    assert Watermark(1, 100, 1) == decode_watermark(value)


def test_space_of_a_dropped_ledger_is_deleted(table: RocksdbTable) -> None:
    space = LogSpace()
    for number, size in [(1, 10), (2, None)]:
        batch = IndexBatch()
        batch.add(placed(number))
        batch.touched[1] = {7}
        if size is None:
            space.drop(7)
        else:
            space.ledgers_in(1)[7] = size
        table.write(batch.encode(space), wait=True)
        assert (size is not None) == bool(list(table.rows(SPACE_PREFIX, SPACE_END)))
