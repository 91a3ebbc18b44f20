"""OffsetCommit: checks of each partition, and the group's error for all."""

import uuid
from typing import Any

import pytest

from kledger.gateway.handlers import k08_offset_commit
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kledger.offsets import NO_EXPIRY, CommittedOffset, TopicPartition
from tests.gateway.handlers.group_bench import group_bench
from tests.gateway.handlers.test_k68_consumer_group_heartbeat import (
    join as join_consumer_group,
)


async def test_commit_is_stored_with_all_its_fields() -> None:
    async with group_bench() as bench:
        assert await bench.commit(7) == ErrorCode.NONE

        assert bench.services.groups.offsets.committed(
            "g", TopicPartition("t", 0)
        ) == CommittedOffset(
            offset=7,
            leader_epoch=3,
            metadata="note",
            commit_ms=1_000_000,
            expire_ms=NO_EXPIRY,
            topic_id=bench.topic.id,
        )


async def test_row_99_metadata_null_long_and_too_long() -> None:
    async with group_bench() as bench:
        assert await bench.commit(1, metadata=None) == ErrorCode.NONE
        committed = bench.services.groups.offsets.committed("g", TopicPartition("t", 0))
        assert committed is not None
        assert committed.metadata == ""
        assert await bench.commit(2, metadata="x" * 4_096) == ErrorCode.NONE
        too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert await bench.commit(3, metadata="x" * 4_097) == too_large
        assert bench.fetched() == 2
        # Kafka counts UTF-16 units: a character outside the first plane is two.
        assert await bench.commit(4, metadata="é" * 4_096) == ErrorCode.NONE
        assert await bench.commit(5, metadata="\U0001f600" * 2_048) == ErrorCode.NONE
        assert await bench.commit(6, metadata="\U0001f600" * 2_049) == too_large
        assert bench.fetched() == 5


async def test_row_99_unknown_topic_and_partition() -> None:
    async with group_bench() as bench:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await bench.commit(topic="missing") == unknown
        assert await bench.commit(partition=2) == unknown
        assert await bench.commit(partition=-1) == unknown
        by_id = await bench.commit(version=10, topic_id=uuid.UUID(int=5))
        assert by_id == ErrorCode.UNKNOWN_TOPIC_ID
        assert bench.services.groups.group_count == 0


async def test_version_10_names_topics_by_id_and_answers_so() -> None:
    async with group_bench() as bench:
        request = OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitRequestTopic(
                    topic_id=bench.topic.id,
                    partitions=[OffsetCommitRequestPartition(committed_offset=7)],
                )
            ],
        )

        response = await k08_offset_commit.handle(bench.context(10), request)

        assert response.topics[0].topic_id == bench.topic.id
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
        assert bench.fetched() == 7


async def test_bad_partitions_do_not_stop_the_good_ones() -> None:
    async with group_bench() as bench:
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=index)
            for index in (0, 9, 1)
        ]
        request = OffsetCommitRequest(
            group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)]
        )

        response = await k08_offset_commit.handle(bench.context(9), request)

        assert [(p.partition_index, p.error_code) for p in response.topics[0].partitions] == [
            (0, ErrorCode.NONE),
            (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (1, ErrorCode.NONE),
        ]
        assert [bench.fetched(partition=index) for index in (0, 1)] == [0, 1]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"generation_id_or_member_epoch": 1}, ErrorCode.NONE),
        ({"generation_id_or_member_epoch": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id_or_member_epoch": 1, "member_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id_or_member_epoch": -1, "member_id": ""}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
async def test_group_accepts_or_refuses_the_commit(
    changes: dict[str, Any], expected: ErrorCode
) -> None:
    async with group_bench() as bench:
        member_id = await bench.stable()

        assert await bench.commit(**{"member_id": member_id, **changes}) == expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)],
)
async def test_row_97_generation_of_a_group_that_does_not_exist(
    version: int, expected: ErrorCode
) -> None:
    """From version 9 on it may be an epoch; clients that send one do not know the older error."""
    async with group_bench() as bench:
        error = await bench.commit(version=version, generation_id_or_member_epoch=1, member_id="x")
        assert expected == error


async def test_row_108_member_commits_with_its_epoch_from_version_9_on() -> None:
    async with group_bench() as bench:
        joined = await join_consumer_group(bench, "a")

        async def commit(version: int, epoch: int) -> int:
            return await bench.commit(
                version=version, generation_id_or_member_epoch=epoch, member_id="a"
            )

        assert ErrorCode.NONE == await commit(9, joined.member_epoch)
        assert ErrorCode.STALE_MEMBER_EPOCH == await commit(9, joined.member_epoch - 1)
        assert ErrorCode.UNSUPPORTED_VERSION == await commit(8, joined.member_epoch)


async def test_retention_of_old_versions_is_kept() -> None:
    async with group_bench() as bench:
        await bench.commit(version=2, retention_time_ms=60_000)
        committed = bench.services.groups.offsets.committed("g", TopicPartition("t", 0))
        assert committed is not None
        assert committed.expire_ms == 1_060_000


async def test_retention_beyond_the_range_never_expires() -> None:
    async with group_bench() as bench:
        code = await bench.commit(version=2, retention_time_ms=(1 << 63) - 1)
        assert code == ErrorCode.NONE
        committed = bench.services.groups.offsets.committed("g", TopicPartition("t", 0))
        assert committed is not None
        assert committed.expire_ms == NO_EXPIRY


async def test_group_id_may_be_empty() -> None:
    """Kafka allows it for clients that commit without a group."""
    async with group_bench() as bench:
        assert await bench.commit(group_id="") == ErrorCode.NONE
        assert bench.fetched(group_id="") == 7
