"""Questions about a log, at every version: ListOffsets, DeleteRecords, OffsetForLeaderEpoch."""

from __future__ import annotations

from typing import Final

from compat_tests.differential import words
from compat_tests.differential.fetch_scripts import cut_before
from compat_tests.differential.scripts import script
from compat_tests.differential.side import Side
from compat_tests.records import FIRST_TIMESTAMP_MS
from kledger.batches.builder import BatchProducer
from kledger.gateway.wire.messages.k02_list_offsets import ListOffsetsRequest, ListOffsetsTopic
from kledger.gateway.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kledger.gateway.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kledger.gateway.wire.messages.k61_describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)

LIST_OFFSETS: Final = 2
DELETE_RECORDS: Final = 21
LEADER_EPOCH: Final = 23


@script
def list_offsets_of_every_time(side: Side) -> None:
    empty, topic = side.has("times-empty"), side.has("times-filled", 2)
    side.write(topic, *(words.batch(b"a", b"b", codec=one) for one in range(5)))
    times = [-1, -2, -3, -4, -5, -6, -7, 0, FIRST_TIMESTAMP_MS, FIRST_TIMESTAMP_MS + 1, 2**50]
    for version in side.versions(LIST_OFFSETS):
        for time in times:
            for isolation in (0, 1):
                for name in (empty, topic):
                    request = words.list_offsets(name, {0: time}, isolation_level=isolation)
                    side.ask(f"{name} {time} isolation {isolation}", request, version)


@script
def list_offsets_checks_the_request(side: Side) -> None:
    topic = side.has("asked", 2)
    for version in side.versions(LIST_OFFSETS):
        side.ask("unknown partition", words.list_offsets(topic, {0: -1, 7: -1, -1: -1}), version)
        side.ask("unknown topic", words.list_offsets("no-asked", {0: -1}), version)
        side.ask("bad name", words.list_offsets("a b", {0: -1}), version)
        for epoch in (-1, 0, 1):
            request = words.list_offsets(topic, {0: -1}, leader_epoch=epoch)
            side.ask(f"epoch {epoch}", request, version)
        for replica in (-2, 1, 5):
            request = words.list_offsets(topic, {0: -1}, replica_id=replica)
            side.ask(f"replica {replica}", request, version)
        twice = words.list_offsets(topic, {0: -1})
        twice.topics[0].partitions *= 2
        side.ask("a partition twice", twice, version)
        side.ask("isolation 7", words.list_offsets(topic, {0: -1}, isolation_level=7), version)
        side.ask("nothing", ListOffsetsRequest(replica_id=-1), version)
        bare = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic)])
        side.ask("no partitions", bare, version)


@script
def delete_records_moves_the_log_start(side: Side) -> None:
    for version in side.versions(DELETE_RECORDS):
        topic = side.has(f"trimmed-{version}", 2)
        side.write(topic, *(words.batch(b"a", b"b", b"c") for _ in range(3)))
        for offset in (0, 4, 2, 4, -2, 10, 5, -1):
            side.ask(f"before {offset}", cut_before(topic, offset), version)
            side.ask("log start", words.list_offsets(topic, {0: -2, 1: -2}), 7)
        side.ask("read before it", words.fetch(topic, {0: 3}), 12)
        side.ask("read at its end", words.fetch(topic, {0: 9}), 12)
        side.ask("empty partition", _cut(topic, {1: -1}), version)
        side.ask("empty partition, 1", _cut(topic, {1: 1}), version)
        side.ask("unknown partition", _cut(topic, {0: 9, 7: 0}), version)
        side.ask("unknown topic", _cut("no-trimmed", {0: 0}), version)
        side.ask("nothing", DeleteRecordsRequest(timeout_ms=1_000), version)
        side.ask("no time", _cut(topic, {0: -1}, timeout_ms=0), version)
        side.write(topic, words.batch(b"d"))
        side.ask("what is there", words.fetch(topic, {0: 9}), 12)
        compacted = side.has(f"trimmed-compacted-{version}", cleanup_policy="compact")
        side.ask("compacted", cut_before(compacted, 0), version)


def _cut(topic: str, offsets: dict[int, int], timeout_ms: int = 10_000) -> DeleteRecordsRequest:
    partitions = [
        DeleteRecordsPartition(partition_index=one, offset=offset)
        for one, offset in offsets.items()
    ]
    named = DeleteRecordsTopic(name=topic, partitions=partitions)
    return DeleteRecordsRequest(topics=[named], timeout_ms=timeout_ms)


@script
def leader_epochs_end_where_the_log_does(side: Side) -> None:
    empty, topic = side.has("leader-empty"), side.has("leader-filled", 2)
    side.write(topic, words.batch(b"a", b"b"))
    for version in side.versions(LEADER_EPOCH):
        for name in (empty, topic, "no-leader"):
            for epoch in (-1, 0, 1, -2):
                for current in (-1, 0, 1):
                    asked = OffsetForLeaderPartition(
                        partition=0, current_leader_epoch=current, leader_epoch=epoch
                    )
                    named = OffsetForLeaderTopic(topic=name, partitions=[asked])
                    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[named])
                    side.ask(f"{name} epoch {epoch}, current {current}", request, version)
        asked = OffsetForLeaderPartition(partition=7, leader_epoch=0)
        named = OffsetForLeaderTopic(topic=topic, partitions=[asked])
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[named])
        side.ask("unknown partition", request, version)


@script
def producers_are_described(side: Side) -> None:
    topic = side.has("producers", 2)
    who = side.producer()
    for sequence in range(2):
        producer = BatchProducer(who, 0, 2 * sequence)
        side.write(topic, words.batch(b"a", b"b", producer=producer))
    for version in side.versions(61):
        for name in (topic, "no-producers"):
            named = TopicRequest(name=name, partition_indexes=[0, 1, 7])
            side.ask(name, DescribeProducersRequest(topics=[named]), version)
        side.ask("nothing", DescribeProducersRequest(), version)
