"""What names, rows and entries of a store mean, as a reader of a stopped one sees them."""

from itertools import count
from uuid import UUID

import pytest

from kledger.batches.header import refresh_checksum
from kledger.ledger import LedgerStore, ManagedLedgerConfig, Position
from kledger.ledger.testing import ManualClock
from kledger.topics import TopicRegistry
from kledger.topics.inspection import BatchCheck, StoredTopics, check_batch
from kledger.topics.keys import TOPIC_KEYS, PartitionKeys
from kledger.topics.partition import records
from kledger.topics.partition.offset_index import Interval, LedgerSummary
from kledger.topics.partition.records import TopicRecord
from kledger.topics.partition_name import PartitionName, managed_ledger_name, partition_of
from tests.batches.words import batch

ID = UUID(int=9)


@pytest.mark.parametrize("topic", ["orders", "a-b-1", "x/y", "a\nb"])
def test_names_of_partitions_are_read_back(topic: str) -> None:
    name = partition_of(managed_ledger_name(topic, ID, 12))
    assert PartitionName(topic, 12, ID) == name
    assert f"{topic}-12" == str(name)


@pytest.mark.parametrize("name", ["orders", "orders-0", "orders-0/x", f"orders/{ID.hex}", ""])
def test_other_names_are_no_partitions(name: str) -> None:
    assert partition_of(name) is None


class Rows(dict[bytes, bytes]):
    """Rows of a store, planted."""

    def get_row(self, key: bytes) -> bytes | None:
        return self.get(key)

    def scan_rows(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return sorted(pair for pair in self.items() if pair[0].startswith(prefix))


def topic_row(**configs: str) -> bytes:
    return records.encode_topic(TopicRecord("orders", ID, 2, configs, 0))


def test_topics_that_are_there() -> None:
    rows = {TOPIC_KEYS.encode("orders"): topic_row(), TOPIC_KEYS.encode("bad"): b"\x09"}
    topics = StoredTopics(Rows(rows))
    assert topics.has(PartitionName("orders", 1, ID))
    assert not topics.has(PartitionName("orders", 2, ID))
    assert not topics.has(PartitionName("orders", 0, UUID(int=8))), "made again under its name"
    assert ["topic row 'bad': expected version 1, got 9"] == topics.problems


def test_segment_bytes_are_the_topics_or_kafkas_default() -> None:
    partition = PartitionName("orders", 0, ID)
    for name in ("segment.bytes", "internal.segment.bytes"):
        rows = Rows({TOPIC_KEYS.encode("orders"): topic_row(**{name: "2097152"})})
        assert 2097152 == StoredTopics(rows).segment_bytes(partition)
    assert 1 << 30 == StoredTopics(Rows()).segment_bytes(partition)


def test_log_start() -> None:
    partition = PartitionName("orders", 0, ID)
    key = PartitionKeys(ID, 0).log_start
    assert 0 == StoredTopics(Rows()).log_start(partition)
    assert 40 == StoredTopics(Rows({key: records.encode_log_start(40)})).log_start(partition)
    assert 0 == StoredTopics(Rows({key: b"\x09"})).log_start(partition)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (0, "3:0"), (9, "3:0"), (10, "5:0"), (14, "5:0"), (15, "5:4"), (19, "5:4"), (20, "6:0"),
        (900, "6:0"),
    ],
)  # fmt: skip
def test_search_begins_at_the_interval_of_an_offset(offset: int, expected: str) -> None:
    partition, keys = PartitionName("orders", 0, ID), PartitionKeys(ID, 0)
    rows = Rows()
    for ledger_summary in (LedgerSummary(3, 0, 10, 0), LedgerSummary(5, 10, 20, 0)):
        rows[keys.ledger_summary(ledger_summary.ledger_id)] = records.encode_ledger_summary(
            ledger_summary
        )
    for first, end, start, behind in ((0, 4, 10, 15), (4, 8, 15, 20)):
        interval = Interval(first, end, start, behind, 0, 0)
        rows[keys.interval(5, first)] = records.encode_interval(interval)
    found = StoredTopics(rows).position_before(partition, offset, [3, 5, 6])
    assert Position.parse(expected) == found
    rows[keys.ledger_summary(3)] = b"\x09"
    assert Position(3, 0) == StoredTopics(rows).position_before(partition, offset, [3, 5, 6])


async def test_rows_of_a_real_registry() -> None:
    async with LedgerStore.open(None) as store:
        registry = await TopicRegistry.open(store, clock=ManualClock())
        topic = await registry.create("orders", partitions=1, configs={})
        ledger = await store.open_managed_ledger("other", config=ManagedLedgerConfig())
        await ledger.close()
        assert StoredTopics(store).has(PartitionName("orders", 0, topic.id))
        await registry.delete("orders")
        assert not StoredTopics(store).has(PartitionName("orders", 0, topic.id))


def stored(offset: int, *values: str) -> bytearray:
    data = bytearray(batch(*values))
    data[0:8] = offset.to_bytes(8, "big")
    refresh_checksum(data)
    return data


def test_batches_are_checked_one_after_the_other() -> None:
    check, entry_ids = BatchCheck(), count()
    name, other = (managed_ledger_name("orders", ID, index) for index in (0, 1))

    def asked(data: bytes | bytearray) -> str | None:
        return check(name, Position(1, next(entry_ids)), bytes(data))

    assert asked(stored(7, "a", "b")) is None
    assert check(other, Position(2, 0), bytes(stored(3, "a"))) is None
    assert asked(stored(9, "c")) is None
    assert "the record batch begins at offset 11, expected 10" == asked(stored(11, "d"))
    assert asked(stored(12, "e")) is None
    damaged = stored(13, "f")
    damaged[-1] ^= 1
    assert "the record batch is damaged: checksum" in (asked(damaged) or "")
    assert asked(stored(14, "g")) is None
    assert "the record batch is damaged: 71 bytes in an entry of 75" == asked(
        stored(15, "h") + b"tail"
    )
    assert "the record batch is damaged: batch of 3 bytes" in (asked(b"abc") or "")
    assert asked(stored(20, "i")) is None
    assert next(entry_ids), "an entry that could not be read"
    assert asked(stored(29, "j")) is None


def test_batch_after_an_unreadable_one_may_begin_anywhere() -> None:
    """The unreadable one was the last of its ledger, so positions do not show the gap."""
    check, name = BatchCheck(), managed_ledger_name("orders", ID, 0)
    assert check(name, Position(1, 0), bytes(stored(0, "a"))) is None
    assert check(name, Position(1, 1), None) is None
    assert check(name, Position(2, 0), bytes(stored(5, "b"))) is None


def test_entries_of_other_managed_ledgers_may_be_anything() -> None:
    assert BatchCheck()("events", Position(1, 0), b"abc") is None


def test_whole_batch() -> None:
    assert 5 == check_batch(bytes(stored(5, "a"))).base_offset
