"""Rows of docs/SCENARIOS.md about committed offsets, over sockets.

The cases of each handler are in `handlers/test_k08_offset_commit.py` and its neighbours.
"""

import struct

import pytest

from kledger.gateway.config import GatewayConfig
from kledger.gateway.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kledger.gateway.wire.messages.k42_delete_groups import DeleteGroupsRequest
from kledger.gateway.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.gateway.group_client import clients, make_stable, waiting
from tests.gateway.running import running_gateway, until

SUBSCRIPTION_TO_T = struct.pack(">hih1si", 0, 1, 1, b"t", -1)


async def test_row_97_commit_from_outside_the_group() -> None:
    async with running_gateway() as gateway, clients(gateway, 2) as (tool, member):
        await gateway.create_topic()
        assert (0, 7) == (await tool.commit(7), await tool.committed()), "no group"
        await make_stable(gateway, member)
        assert (25, 7) == (await tool.commit(8), await tool.committed())
        tool.instance_id = "i"
        assert 25 == await tool.commit(8)
        await member.leave()
        assert (0, 9) == (await tool.commit(9), await tool.committed()), "empty"


async def test_row_98_commit_of_members() -> None:
    async with running_gateway() as gateway, clients(gateway, 2) as (one, other):
        await gateway.create_topic()
        await one.join()
        assert 27 == await one.commit(), "completing"
        await one.sync(one)
        assert 0 == await one.commit(1)
        assert 22 == await one.commit(2, generation_id_or_member_epoch=0)
        assert 25 == await one.commit(2, member_id="nobody")
        await other.ask_id()
        other.send_join()
        await waiting(gateway, 1)
        assert (0, 5) == (await one.commit(5), await one.committed()), "preparing"
        one.generation = 7
        one.member_id = "nobody"
        assert 22 == await one.commit(2, group_id="none")


async def test_row_99_metadata_and_what_does_not_exist() -> None:
    async with running_gateway() as gateway, clients(gateway, 1) as (one,):
        await gateway.create_topic()
        for metadata, error in ((None, 0), ("x" * 4_096, 0), ("x" * 4_097, 12)):
            assert error == await one.commit(metadata=metadata)
        assert 3 == await one.commit(topic="missing")


@pytest.mark.parametrize("version", range(1, 8))
async def test_row_100_what_was_never_committed_is_no_error(version: int) -> None:
    async with running_gateway() as gateway, clients(gateway, 1) as (one,):
        await gateway.create_topic(partitions=2)
        await one.commit(4, metadata=None)
        asked = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1, 9])]
        for group_id, first in (("g", 4), ("none", -1)):
            request = OffsetFetchRequest(group_id=group_id, topics=asked)
            response = await one.wire.ask(request, version)
            found = response.topics[0].partitions
            assert [(first, 0, ""), (-1, 0, ""), (-1, 0, "")] == [
                (each.committed_offset, each.error_code, each.metadata) for each in found
            ]
        if version >= 2:
            response = await one.wire.ask(OffsetFetchRequest(group_id="g", topics=None), version)
            assert [[4]] == [
                [each.committed_offset for each in topic.partitions] for topic in response.topics
            ]


@pytest.mark.parametrize("version", [8, 9, 10])
async def test_row_100_several_groups_in_one_request(version: int) -> None:
    async with running_gateway() as gateway, clients(gateway, 1) as (one,):
        topic = await gateway.create_topic()
        await one.commit(4)
        asked = [OffsetFetchRequestTopics(name="t", topic_id=topic.id, partition_indexes=[0])]
        groups = [
            OffsetFetchRequestGroup(group_id="g", topics=asked),
            OffsetFetchRequestGroup(group_id="none", topics=asked),
            OffsetFetchRequestGroup(group_id="g", topics=None),
            OffsetFetchRequestGroup(group_id="none", topics=None),
        ]
        response = await one.wire.ask(OffsetFetchRequest(groups=groups), version)
        assert [("g", 0, [4]), ("none", 0, [-1]), ("g", 0, [4]), ("none", 0, [])] == [
            (
                each.group_id,
                each.error_code,
                [part.committed_offset for found in each.topics for part in found.partitions],
            )
            for each in response.groups
        ]


async def test_row_102_unused_offsets_expire() -> None:
    minute_ms = 60_000
    config = GatewayConfig(
        group_initial_rebalance_delay_ms=0,
        offsets_retention_minutes=10,
        offsets_retention_check_interval_ms=minute_ms,
    )
    async with running_gateway(config) as gateway, clients(gateway, 1) as (one,):
        await gateway.create_topic()
        one.protocols = (("range", SUBSCRIPTION_TO_T),)
        await make_stable(gateway, one)
        await one.commit(4)
        for _ in range(20 * 12):
            gateway.clock.advance(5_000)
            assert 0 == await one.heartbeat()
        assert 4 == await one.committed(), "twice the retention, in use"
        await one.leave()
        for _ in range(9):
            gateway.clock.advance(minute_ms)
            assert 4 == await one.committed()
        gateway.clock.advance(3 * minute_ms)
        while await one.committed() != -1:  # the deletion is on its way
            pass
        await until(lambda: gateway.services.groups.describe("g") is None)
        one.member_id, one.generation = "", -1
        await one.commit(5)
        for _ in range(9):
            gateway.clock.advance(minute_ms)
            assert 5 == await one.committed(), "of a committer without a group"
        gateway.clock.advance(3 * minute_ms)
        while await one.committed() != -1:  # the deletion is on its way
            pass


async def test_row_103_groups_and_offsets_in_use_cannot_be_deleted() -> None:
    async with running_gateway() as gateway, clients(gateway, 1) as (one,):
        await gateway.create_topic()
        one.protocols = (("range", SUBSCRIPTION_TO_T),)
        await make_stable(gateway, one)
        await one.commit(4)
        deletion = DeleteGroupsRequest(groups_names=["g", "none"])
        topic = OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition()])
        offsets = OffsetDeleteRequest(group_id="g", topics=[topic])
        response = await one.wire.ask(deletion, 2)
        assert [68, 69] == [each.error_code for each in response.results]
        response = await one.wire.ask(offsets, 0)
        assert 86 == response.topics[0].partitions[0].error_code
        await one.leave()
        response = await one.wire.ask(offsets, 0)
        assert 0 == response.topics[0].partitions[0].error_code
        assert -1 == await one.committed()
        response = await one.wire.ask(deletion, 2)
        assert [0, 69] == [each.error_code for each in response.results]
