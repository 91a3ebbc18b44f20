"""OffsetFetch: an answer for every requested partition, in the form of each version."""

import uuid

import pytest

from kledger.gateway.coordinator.group_messages import RequestingMember
from kledger.gateway.handlers import k09_offset_fetch
from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from kledger.offsets import NO_EXPIRY, CommittedOffset, TopicPartition
from tests.gateway.handlers.group_bench import GroupBench, group_bench
from tests.gateway.handlers.test_k68_consumer_group_heartbeat import (
    join as join_consumer_group,
)

NOTHING = OffsetFetchResponsePartitions(partition_index=0, committed_offset=-1, metadata="")


def fetch(bench: GroupBench, version: int, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Answer, and round-trip the answer through the codec of its version."""
    response = k09_offset_fetch.handle(bench.context(version), request)
    return decode(OffsetFetchResponse, version, memoryview(encode(response, version)))


def old(*topics: str) -> OffsetFetchRequest:
    return OffsetFetchRequest(
        group_id="g",
        topics=[OffsetFetchRequestTopic(name=name, partition_indexes=[0, 1]) for name in topics],
    )


@pytest.mark.parametrize("version", range(1, 8))
async def test_row_100_committed_and_never_committed_partitions(version: int) -> None:
    async with group_bench() as bench:
        await bench.commit(7)

        response = fetch(bench, version, old("t", "missing"))

        known, missing = response.topics
        epoch = 3 if version >= 5 else -1
        assert known.partitions == [
            OffsetFetchResponsePartition(
                partition_index=0,
                committed_offset=7,
                committed_leader_epoch=epoch,
                metadata="note",
            ),
            OffsetFetchResponsePartition(partition_index=1, committed_offset=-1, metadata=""),
        ]
        assert [p.committed_offset for p in missing.partitions] == [-1, -1]
        assert {p.error_code for p in missing.partitions} == {ErrorCode.NONE}
        assert response.error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(2, 8))
async def test_row_100_null_topics_are_all_that_was_committed(version: int) -> None:
    async with group_bench() as bench:
        await bench.commit(7)
        await bench.commit(8, partition=1)
        await bench.commit(9, group_id="other")

        response = fetch(bench, version, OffsetFetchRequest(group_id="g", topics=None))

        assert [topic.name for topic in response.topics] == ["t"]
        assert [p.committed_offset for p in response.topics[0].partitions] == [7, 8]
        empty = fetch(bench, version, OffsetFetchRequest(group_id="unknown", topics=None))
        assert empty == OffsetFetchResponse()


async def test_row_100_two_groups_in_one_request() -> None:
    async with group_bench() as bench:
        await bench.commit(7, group_id="one")
        asked = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(group_id="one", topics=asked),
                OffsetFetchRequestGroup(group_id="two", topics=asked),
                OffsetFetchRequestGroup(group_id="one", topics=None),
            ]
        )

        response = fetch(bench, 8, request)

        assert [group.group_id for group in response.groups] == ["one", "two", "one"]
        one, two, all_of_one = (group.topics[0].partitions[0] for group in response.groups)
        assert one.committed_offset == all_of_one.committed_offset == 7
        assert two == NOTHING
        assert {group.error_code for group in response.groups} == {ErrorCode.NONE}


async def test_version_10_names_topics_by_id() -> None:
    async with group_bench() as bench:
        await bench.commit(7)
        unknown = uuid.UUID(int=5)
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id="g",
                    topics=[
                        OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])
                        for topic_id in (bench.topic.id, unknown)
                    ],
                ),
                OffsetFetchRequestGroup(group_id="g", topics=None),
            ]
        )

        response = fetch(bench, 10, request)

        known, missing = response.groups[0].topics
        assert (known.topic_id, known.partitions[0].committed_offset) == (bench.topic.id, 7)
        assert missing.topic_id == unknown
        assert missing.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert missing.partitions[0].committed_offset == -1
        assert [topic.topic_id for topic in response.groups[1].topics] == [bench.topic.id]


async def test_recreated_topic_does_not_inherit_offsets() -> None:
    async with group_bench() as bench:
        await bench.commit(7)
        await bench.services.registry.delete("t")
        assert bench.fetched() == -1
        await bench.services.registry.create("t", partitions=2)

        assert bench.fetched() == -1
        everything = OffsetFetchRequest(group_id="g", topics=None)
        assert fetch(bench, 7, everything).topics == []


async def test_longer_spelling_finds_the_same_offset() -> None:
    async with group_bench() as bench:
        await bench.commit(7, topic="persistent://public/default/t")

        assert bench.fetched("t") == bench.fetched("public/default/t") == 7


async def test_row_101_offset_that_a_transaction_may_change() -> None:
    async with group_bench() as bench:
        await bench.commit(7)
        offsets = bench.services.groups.offsets
        pending = {TopicPartition("t", 0): CommittedOffset(9, -1, "", 0, NO_EXPIRY, bench.topic.id)}
        sender = RequestingMember("", -1)
        assert await offsets.add_pending("g", sender, 5, pending) == ErrorCode.NONE
        stable = old("t")
        stable.require_stable = True

        response = fetch(bench, 7, stable)
        first, second = response.topics[0].partitions
        assert (first.committed_offset, first.error_code) == (
            -1,
            ErrorCode.UNSTABLE_OFFSET_COMMIT,
        )
        assert second.error_code == ErrorCode.NONE
        assert bench.fetched() == 7

        assert frozenset() == await offsets.write_markers(5, {"g"}, False)
        assert fetch(bench, 7, stable).topics[0].partitions[0].committed_offset == 7


@pytest.mark.parametrize("version", [8, 9])
async def test_member_and_epoch_do_not_matter_to_classic_groups(version: int) -> None:
    async with group_bench() as bench:
        await bench.stable()
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id="g",
                    member_id="stranger",
                    member_epoch=99,
                    topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])],
                )
            ]
        )

        assert fetch(bench, version, request).groups[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [8, 9, 10])
async def test_row_108_member_of_the_consumer_protocol_reads_with_its_epoch(version: int) -> None:
    async with group_bench() as bench:
        await join_consumer_group(bench, "a")

        def error_of(member_id: str | None, epoch: int) -> int:
            group = OffsetFetchRequestGroup(
                group_id="g",
                member_id=member_id,
                member_epoch=epoch,
                topics=[OffsetFetchRequestTopics(name="t", topic_id=bench.topic.id)],
            )
            response = fetch(bench, version, OffsetFetchRequest(groups=[group]))
            return response.groups[0].error_code

        stale = ErrorCode.STALE_MEMBER_EPOCH if version >= 9 else ErrorCode.NONE
        unknown = ErrorCode.UNKNOWN_MEMBER_ID if version >= 9 else ErrorCode.NONE
        errors = [error_of("a", 1), error_of("a", 2), error_of("x", 1), error_of(None, -1)]
        assert [ErrorCode.NONE, stale, unknown, ErrorCode.NONE] == errors
