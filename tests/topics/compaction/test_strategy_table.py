"""The table of strategies: what it keeps in memory, and when it uses the file."""

from pathlib import Path
from sys import getsizeof

import pytest
from pyroaring import BitMap

from kledger.batches.header import read_header
from kledger.batches.pacing import no_pause
from kledger.batches.reader import open_body
from kledger.topics.compaction.compaction_rules import BatchOrigin
from kledger.topics.compaction.strategy_rule import StrategyRule
from kledger.topics.compaction.strategy_table import StrategyTable
from tests.topics.compaction.strategies import open_here
from tests.topics.compaction.words import Pair, log_batch


def table_of(dropped: BitMap, memory_bytes_max: int, folder: Path | str) -> StrategyTable:
    rule = StrategyRule("own:largest", "orders", 0, open_here)
    return StrategyTable(rule, dropped, str(folder), memory_bytes_max)


def add(table: StrategyTable, first: int, *pairs: Pair) -> None:
    """Add a batch, whose offsets are the numbers of its records."""
    batch = log_batch(first, *pairs)
    header = read_header(batch)
    table.add_batch(header, bytes(open_body(batch, header)), BatchOrigin(3, 0, 0), first, no_pause)


def memory_of(table: StrategyTable) -> int:
    """Measure what the table has in memory."""
    size = 0
    for division in table._fold._divisions:
        kept = division.kept or {}
        size += getsizeof(kept) if kept else 0
        size += sum(map(getsizeof, kept)) + sum(map(getsizeof, kept.values()))
        size += sum(map(getsizeof, division.waiting))
        size += getsizeof(division.waiting) if division.waiting else 0
    return size


@pytest.mark.parametrize("value_size", [1, 1_000, 20_000])
def test_memory_has_a_limit_whatever_the_number_and_the_size_of_values(
    tmp_path: Path, value_size: int
) -> None:
    memory_bytes_max, dropped = 400_000, BitMap()
    table = table_of(dropped, memory_bytes_max, tmp_path)
    count = 6_000 if value_size < 20_000 else 300
    for number in range(count):
        # Every key comes three times; the second time its value is the largest.
        rank = (number // (count // 3) * 2) % 3
        add(table, number, (f"k{number % (count // 3)}", f"{rank}" + "v" * value_size))
        if not number % 7:
            assert memory_of(table) <= memory_bytes_max
    assert table.spilled_count > 0
    table.finish(no_pause)
    assert [*range(count // 3), *range(count // 3 * 2, count)] == list(dropped)
    assert [] == list(tmp_path.iterdir())


def test_a_table_with_room_writes_no_file() -> None:
    dropped = BitMap()
    table = table_of(dropped, 1 << 20, "/nonexistent")
    add(table, 0, ("a", "1"), (None, "x"), ("a", "2"), ("b", "1"), ("a", "1"))
    table.finish(no_pause)
    assert ([0, 4], 0, 1) == (list(dropped), table.spilled_count, table.skipped_count)


def test_a_value_that_replaces_a_smaller_one_counts() -> None:
    """The table is full by the sizes of what it keeps, not by the number of its keys."""
    table = table_of(BitMap(), 10_000, "/nonexistent")
    add(table, 0, ("a", "1"))
    with pytest.raises(FileNotFoundError):
        add(table, 1, ("a", "2" * 10_000))


def test_keys_that_repeat_are_not_written_again_and_again(tmp_path: Path) -> None:
    table = table_of(BitMap(), 100_000, tmp_path)
    for number in range(0, 20_000, 10):
        add(table, number, *((f"k{each % 100}", f"{each}") for each in range(number, number + 10)))
    assert 0 == table.spilled_count


@pytest.mark.parametrize("memory_bytes_max", [3_000, 30_000])
def test_divisions_that_do_not_fit_are_divided_again(tmp_path: Path, memory_bytes_max: int) -> None:
    """300 bytes a key: a division of 12 keys does not fit into 3,000."""
    dropped = BitMap()
    table = table_of(dropped, memory_bytes_max, tmp_path)
    for first in range(0, 6_000, 100):
        pairs = [
            (f"{number % 3_000}", f"{number // 3_000}") for number in range(first, first + 100)
        ]
        add(table, first, *pairs)
    table.finish(no_pause)
    assert list(range(3_000)) == list(dropped)
