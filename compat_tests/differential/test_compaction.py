"""The same records on kledger and Apache Kafka, compacted by both: a consumer sees the same.

Compared are the records that are left, with offsets, timestamps and headers, for both isolation
levels; offsets by time; what a fetch from each offset, also from a missing one, begins with; and
the log start. When a server compacts is its own affair, so all wait until a consumer sees a result.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from compat_tests.compacted_topics import (
    COMPACTED,
    SeenRecord,
    compact,
    create_compacted,
    has_values_only,
    read_partition,
)
from compat_tests.conftest import COMPACTING, create_topic
from compat_tests.deadlines import WAIT_S, ask_until, wait_until
from compat_tests.differential import words
from compat_tests.differential.fetch_scripts import cut_before
from compat_tests.differential.masks import Masks
from compat_tests.differential.side import Side
from compat_tests.records import FIRST_TIMESTAMP_MS, STEP_MS
from compat_tests.servers import ApacheKafkaServer, KledgerServer
from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.reader import iterate_batches, iterate_records
from kledger.gateway.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

pytestmark = pytest.mark.slow
T = TypeVar("T")
HEAP = "320m"
KAFKA_ONLY = {"log.initial.task.delay.ms": "100"}
KEYS: Final = 7
CODECS_COUNT: Final = 5
DAY_MS: Final = 24 * 3600 * 1000
TIMES: Final = range(-3, 3 * 3 * CODECS_COUNT)
"""Where lookups by time look, in steps from the first record."""
LIST_OFFSETS_VERSION, FETCH_VERSION, EPOCH_VERSION, DELETE_VERSION = 7, 12, 4, 2


class Pair(NamedTuple):
    """Addresses of both servers."""

    ours: str
    theirs: str

    def both(self, action: Callable[[str], T]) -> tuple[T, T]:
        """Do the same on both at once."""
        with ThreadPoolExecutor(2) as pool:
            ours, theirs = pool.map(action, self)
        return ours, theirs


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both servers; each compacts as soon as there is something to compact."""
    kledger = KledgerServer(
        tmp_path_factory.mktemp("kledger"), durability="os", settings=COMPACTING
    )
    kafka = ApacheKafkaServer(
        tmp_path_factory.mktemp("kafka"), settings=COMPACTING | KAFKA_ONLY, heap=HEAP
    )
    with kledger, kafka:
        yield Pair(kledger.bootstrap, kafka.bootstrap)


def data_batch(number: int, codec: int) -> bytes:
    """Three records of different keys: values, an empty one, a tombstone, headers, times."""
    records = []
    for index in range(3):
        serial = 3 * number + index
        kind = serial % 5
        value = None if kind == 3 else b"" if kind == 4 else b"value-%d" % serial
        headers = [("serial", b"%d" % serial), ("twice", b""), ("twice", b"2")][: serial % 4]
        # Not quite in order, so that a later offset may have an earlier time.
        at_ms = FIRST_TIMESTAMP_MS + STEP_MS * (serial ^ 1)
        records.append(
            NewRecord(value, key=b"key-%d" % (serial % KEYS), timestamp=at_ms, headers=headers)
        )
    return bytes(build_batch(records, codec=codec))


def write(bootstrap: str, topic: str, *batches: bytes) -> None:
    """Produce batches one after the other."""
    side = Side(bootstrap, {}, Masks(0))
    try:
        side.wait_served(topic, 1)
        side.write(topic, *batches)
    finally:
        side.close()


def write_data(bootstrap: str, topic: str) -> None:
    """Write batches of every codec."""
    write(bootstrap, topic, *(data_batch(n, n % CODECS_COUNT) for n in range(3 * CODECS_COUNT)))


def observed(bootstrap: str, topic: str, end: int, times: range) -> dict[str, object]:
    """What clients can see of a compacted partition before an offset, and from times on."""
    side = Side(bootstrap, {}, Masks(0))
    try:
        start = offset_at(side, topic, -2)
        return {
            "committed": read_partition(bootstrap, topic, isolation="read_committed"),
            "uncommitted": read_partition(bootstrap, topic),
            "log start": start,
            "by time": [offset_at(side, topic, FIRST_TIMESTAMP_MS + STEP_MS * n) for n in times],
            "next offsets": [next_offset(side, topic, each) for each in range(start[0], end)],
            "the epoch ends with the log": epoch_end(side, topic) == offset_at(side, topic, -1)[0],
        }
    finally:
        side.close()


def offset_at(side: Side, topic: str, timestamp_ms: int) -> tuple[int, int]:
    """Offset and timestamp that ListOffsets answers."""
    answer = side.quietly(words.list_offsets(topic, {0: timestamp_ms}), LIST_OFFSETS_VERSION)
    found = answer.topics[0].partitions[0]
    assert 0 == found.error_code
    return found.offset, found.timestamp


def next_offset(side: Side, topic: str, offset: int) -> int:
    """The offset of the first record that a fetch from here gives to a consumer."""
    position = offset
    while True:
        answer = side.quietly(words.fetch(topic, {0: position}), FETCH_VERSION)
        partition = answer.responses[0].partitions[0]
        assert 0 == partition.error_code
        assert partition.records, f"{topic}: nothing at {position}"
        for header, batch in iterate_batches(partition.records):
            if not header.is_control:
                for record in iterate_records(batch):
                    if record.offset >= offset:
                        return record.offset
            position = header.last_offset + 1


def epoch_end(side: Side, topic: str) -> int:
    """The end of leader epoch 0."""
    partition = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[partition])]
    )
    return int(side.quietly(request, EPOCH_VERSION).topics[0].partitions[0].end_offset)


def alter(bootstrap: str, topic: str, **configs: str) -> None:
    """Set configs of a topic; keys have underscores in place of dots."""
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)


def require_same(pair: Pair, topic: str, end: int, times: range = TIMES) -> dict[str, object]:
    """Compare what clients of both servers see; give it."""
    ours, theirs = pair.both(lambda bootstrap: observed(bootstrap, topic, end, times))
    for name, expected in theirs.items():
        assert expected == ours[name], name
    return ours


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_records_of_every_codec_are_left_alike(pair: Pair, policy: str) -> None:
    topic = f"codecs-{policy.replace(',', '-')}"

    def run(bootstrap: str) -> None:
        create_compacted(bootstrap, topic, cleanup_policy=policy)
        write_data(bootstrap, topic)
        compact(bootstrap, topic)

    pair.both(run)
    seen = require_same(pair, topic, 3 * 3 * CODECS_COUNT)
    assert KEYS == len(as_records(seen["uncommitted"]))


def as_records(seen: object) -> list[SeenRecord]:
    """See a part of what was observed as the list that it is."""
    assert isinstance(seen, list)
    return seen


def test_tombstones_go_after_their_time(pair: Pair) -> None:
    def run(bootstrap: str) -> None:
        create_compacted(bootstrap, "gone", delete_retention_ms="0")
        write_data(bootstrap, "gone")
        compact(bootstrap, "gone", has_values_only)

    pair.both(run)
    seen = as_records(require_same(pair, "gone", 3 * 3 * CODECS_COUNT)["uncommitted"])
    assert 0 < len(seen) < KEYS


def test_transactions_are_left_alike(pair: Pair) -> None:
    def run(bootstrap: str) -> int:
        create_compacted(bootstrap, "transactions")
        end = write_transactions(bootstrap, "transactions")
        compact(bootstrap, "transactions")
        return end

    end, other_end = pair.both(run)
    assert end == other_end
    # A later time finds a marker in Kafka, which keeps them for a while.
    seen = require_same(pair, "transactions", end, times=range(-3, 1))
    assert seen["committed"] == seen["uncommitted"], "nothing of an aborted transaction is left"
    values = {each.key: each.value for each in as_records(seen["committed"])}
    assert b"committed-2" == values[b"a"]
    assert b"committed-1" == values[b"b"], "the aborted record does not replace this one"
    assert b"aborted-only" not in values


def write_transactions(bootstrap: str, topic: str) -> int:
    """Write transactions of two producers, one between the records of the other; give the end."""
    first, second = (
        Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-{name}"})
        for name in ("first", "second")
    )
    plain = Producer({"bootstrap.servers": bootstrap})
    side, ends = Side(bootstrap, {}, Masks(0)), itertools.count(1)

    def send(producer: Producer, value: str, *keys: str) -> None:
        for key in keys:
            producer.produce(topic, value, key, 0, timestamp=FIRST_TIMESTAMP_MS)
            assert 0 == producer.flush(WAIT_S)
            next(ends)

    def end(producer: Producer, *, commit: bool) -> None:
        # A marker is written a moment after the answer.
        (producer.commit_transaction if commit else producer.abort_transaction)(WAIT_S)
        marked = next(ends)
        wait_until(lambda: offset_at(side, topic, -1)[0] == marked, f"a marker before {marked}")

    for producer in (first, second):
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
    send(first, "committed-1", "a", "b")
    send(second, "aborted-1", "a", "b")
    end(first, commit=True)
    send(second, "aborted-1", "aborted-only")
    end(second, commit=False)
    first.begin_transaction()
    second.begin_transaction()
    send(second, "committed-1", "c")
    send(first, "aborted-2", "a", "c")
    end(first, commit=False)
    send(second, "committed-2", "a")
    end(second, commit=True)
    send(plain, "last", "c")
    side.close()
    return next(ends) - 1


def test_records_without_keys_go_when_the_policy_changes(pair: Pair) -> None:
    keyless = [NewRecord(b"no key", timestamp=FIRST_TIMESTAMP_MS + STEP_MS * n) for n in range(3)]

    def run(bootstrap: str) -> None:
        create_topic(bootstrap, "altered", 1, COMPACTED | {"cleanup_policy": "delete"})
        write(bootstrap, "altered", bytes(build_batch(keyless)))
        write_data(bootstrap, "altered")
        write(bootstrap, "altered", bytes(build_batch(keyless)))
        alter(bootstrap, "altered", cleanup_policy="compact")
        compact(bootstrap, "altered")

    pair.both(run)
    require_same(pair, "altered", 3 * 3 * CODECS_COUNT + 3)


@pytest.mark.parametrize("is_compacted_before", [True, False])
def test_deleted_records_stay_away(pair: Pair, *, is_compacted_before: bool) -> None:
    topic = f"cut-{is_compacted_before}".lower()
    cut = 3 * 3 * CODECS_COUNT - 5

    def run(bootstrap: str) -> None:
        create_compacted(bootstrap, topic, cleanup_policy="compact,delete")
        write_data(bootstrap, topic)
        if is_compacted_before:
            compact(bootstrap, topic)
        side = Side(bootstrap, {}, Masks(0))
        try:
            answer = side.quietly(cut_before(topic, cut), DELETE_VERSION)
            assert 0 == answer.topics[0].partitions[0].error_code
        finally:
            side.close()
        compact(bootstrap, topic)

    pair.both(run)
    seen = require_same(pair, topic, 3 * 3 * CODECS_COUNT)
    assert (cut, -1) == seen["log start"]


def test_retention_removes_the_beginning_of_what_is_compacted(pair: Pair) -> None:
    old = [
        NewRecord(b"old", key=b"key-%d" % n, timestamp=FIRST_TIMESTAMP_MS - 2 * DAY_MS)
        for n in range(KEYS + 2)
    ]

    def run(bootstrap: str) -> None:
        name = "expired"
        create_compacted(
            bootstrap,
            name,
            cleanup_policy="compact,delete",
            min_cleanable_dirty_ratio="1",
            retention_ms=str(DAY_MS),
        )
        write(bootstrap, name, bytes(build_batch(old)))
        side = Side(bootstrap, {}, Masks(0))
        try:
            ask_until(
                lambda: offset_at(side, name, -2)[0],
                lambda start: start == len(old),
                "the old records have gone",
            )
        finally:
            side.close()
        write_data(bootstrap, name)
        alter(bootstrap, name, min_cleanable_dirty_ratio="0.01")
        compact(bootstrap, name)

    pair.both(run)
    seen = require_same(pair, "expired", len(old) + 3 * 3 * CODECS_COUNT)
    assert (len(old), -1) == seen["log start"]
    assert KEYS == len(as_records(seen["uncommitted"])), "two keys had old records only"
