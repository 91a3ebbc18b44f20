"""ConsumerGroupHeartbeat: every field of request and answer, in both versions."""

from typing import Any

import pytest

from kledger.gateway.handlers import k68_consumer_group_heartbeat, k69_consumer_group_describe
from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kledger.gateway.wire.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest
from tests.gateway.handlers.group_bench import GroupBench, group_bench


async def heartbeat(
    bench: GroupBench, member_id: str, epoch: int, *, version: int = 1, **fields: Any
) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id=member_id, member_epoch=epoch, **fields
    )
    response = await k68_consumer_group_heartbeat.handle(bench.context(version), request)
    decoded: ConsumerGroupHeartbeatResponse = decode(
        ConsumerGroupHeartbeatResponse, version, memoryview(encode(response, version))
    )
    return decoded


async def join(
    bench: GroupBench, member_id: str, *, version: int = 1, **fields: Any
) -> ConsumerGroupHeartbeatResponse:
    first = {
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    return await heartbeat(bench, member_id, 0, version=version, **(first | fields))


@pytest.mark.parametrize("version", [0, 1])
async def test_member_joins_and_stays(version: int) -> None:
    async with group_bench() as bench:
        joined = await join(bench, "a", version=version)
        assert (0, "a", 1, 5_000) == (
            joined.error_code,
            joined.member_id,
            joined.member_epoch,
            joined.heartbeat_interval_ms,
        )
        assert joined.assignment is not None
        whole = TopicPartitions(topic_id=bench.topic.id, partitions=[0, 1])
        assert [whole] == joined.assignment.topic_partitions
        stays = await heartbeat(bench, "a", 1, version=version)
        assert (0, None) == (stays.error_code, stays.assignment)
        left = await heartbeat(bench, "a", -1, version=version)
        assert (0, -1) == (left.error_code, left.member_epoch)


async def test_version_0_generates_ids_and_version_1_requires_them() -> None:
    async with group_bench() as bench:
        given = await join(bench, "", version=0)
        assert given.member_id
        wanted = await join(bench, "", version=1)
        assert ErrorCode.INVALID_REQUEST == wanted.error_code
        assert wanted.error_message
        assert ErrorCode.INVALID_REQUEST == (await heartbeat(bench, "", 1, version=0)).error_code


async def test_owned_partitions_confirm_a_revocation() -> None:
    async with group_bench() as bench:
        await join(bench, "a")
        await join(bench, "b")
        answer = await heartbeat(bench, "a", 1)
        assert answer.assignment is not None
        assert [0] == answer.assignment.topic_partitions[0].partitions
        owned = [TopicPartitions(topic_id=bench.topic.id, partitions=[0])]
        assert 2 == (await heartbeat(bench, "a", 1, topic_partitions=owned)).member_epoch
        gets = await heartbeat(bench, "b", 2)
        assert gets.assignment is not None
        assert [1] == gets.assignment.topic_partitions[0].partitions


async def test_all_fields_of_a_heartbeat_are_described() -> None:
    async with group_bench() as bench:
        await join(
            bench,
            "a",
            instance_id="i",
            rack_id="r",
            server_assignor="range",
            subscribed_topic_names=None,
            subscribed_topic_regex="t.*",
        )
        described = k69_consumer_group_describe.handle(
            bench.context(1), ConsumerGroupDescribeRequest(group_ids=["g"])
        )
        (group,) = described.groups
        (member,) = group.members
        assert "range" == group.assignor_name
        assert ("i", "r", "t.*", [], "client", "/10.0.0.1") == (
            member.instance_id,
            member.rack_id,
            member.subscribed_topic_regex,
            member.subscribed_topic_names,
            member.client_id,
            member.client_host,
        )
