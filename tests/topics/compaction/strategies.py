"""Strategies for tests of compaction, and what a table view keeps by one, by plain means."""

from collections.abc import Iterable

from kledger.batches.record import Record
from kledger.topics.compaction.strategy_rule import KeepsLeft, StrategyRecord
from kledger.topics.errors import StrategyFailed


def largest(kept: StrategyRecord | None, record: StrategyRecord) -> bool:
    """Keep the largest value; after a removal, whatever comes next."""
    return kept is not None and (kept.value or b"") > (record.value or b"")


def first_one(kept: StrategyRecord | None, record: StrategyRecord) -> bool:
    """Keep the first value of a key, also when the key was removed."""
    return True


def newest_one(kept: StrategyRecord | None, record: StrategyRecord) -> bool:
    """Keep what is kept without a strategy."""
    return False


def erratic(kept: StrategyRecord | None, record: StrategyRecord) -> bool:
    """Decide by both records, and by no order that they have."""
    left = 7 if kept is None else kept.offset * 31 + len(kept.value or b"")
    return (left * 17 + record.offset * 13 + len(record.value or b"")) % 3 == 0


def only_numbers(kept: StrategyRecord | None, record: StrategyRecord) -> bool:
    """Raise an error for anything but numbers."""
    return kept is not None and int(kept.value or b"") > int(record.value or b"")


STRATEGIES: dict[str, KeepsLeft] = {
    each.__name__: each for each in (largest, first_one, newest_one, erratic, only_numbers)
}


def open_here(name: str, topic: str, partition: int) -> KeepsLeft:
    """Open one of these, of whatever module."""
    found = STRATEGIES.get(name.rpartition(":")[2])
    if found is None:
        raise StrategyFailed(f"strategy {name} cannot be loaded: it is none of these")
    return found


def fold(records: Iterable[Record], keeps_left: KeepsLeft) -> dict[bytes, Record]:
    """Return the record of each key that a reader of these records keeps, tombstones too."""
    kept: dict[bytes, Record] = {}
    for record in records:
        if record.key is None:
            continue
        left = kept.get(record.key)
        if left is not None:
            previous = shown_as(left) if left.value else None
            if keeps_left(previous, shown_as(record)):
                continue
        kept[record.key] = record
    return kept


def shown_as(record: Record) -> StrategyRecord:
    """Return a record as a strategy sees it, without its entry."""
    offset, timestamp, key, value, headers, attributes = record
    assert key is not None, "it has a key"
    return StrategyRecord(
        offset, timestamp, timestamp, key, value, headers, attributes, 0, 0, 0, 1
    )  # fmt: skip
