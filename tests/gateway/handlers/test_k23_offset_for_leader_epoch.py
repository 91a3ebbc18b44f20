"""OffsetForLeaderEpoch; row 70 of docs/SCENARIOS.md."""

import pytest

from kledger.gateway.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kledger.topics.partition.partition_compaction import CompactionLimits
from tests.gateway.running import batch, produce, running_gateway


def ask(
    *, epoch: int, current: int = -1, topic: str = "t", partition: int = 0
) -> OffsetForLeaderEpochRequest:
    return OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(
                topic=topic,
                partitions=[
                    OffsetForLeaderPartition(
                        partition=partition, current_leader_epoch=current, leader_epoch=epoch
                    )
                ],
            )
        ]
    )


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(
    ("epoch", "current", "answer"),
    [
        (0, -1, (0, 0, 3)),
        (0, 0, (0, 0, 3)),
        (1, -1, (0, -1, -1)),
        (-1, -1, (0, -1, -1)),
        (-2, -1, (0, -2, 0)),
        (0, 1, (75, -1, -1)),
    ],
)
async def test_row_70_where_an_epoch_ends(
    version: int, epoch: int, current: int, answer: tuple[int, int, int]
) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        await client.ask(produce({0: batch(b"a", b"b", b"c")}), 9)
        response = await client.ask(ask(epoch=epoch, current=current), version)
        (found,) = response.topics[0].partitions
        assert answer == (found.error_code, found.leader_epoch, found.end_offset)


async def test_an_epoch_ends_where_it_did_when_its_records_are_compacted() -> None:
    """Their ledger is removed; the records had no keys, so nothing of them is left."""
    async with running_gateway() as gateway, gateway.client() as client:
        topic = await gateway.create_topic()
        await client.ask(produce({0: batch(b"a", b"b", b"c")}), 9)
        log = await topic.open_partition(0)
        await log.managed_ledger.roll_over()
        await gateway.services.registry.alter_configs("t", {"cleanup.policy": "compact"})
        await log.compact(CompactionLimits())
        assert [0] == [each.entries for each in log.managed_ledger.ledgers]
        response = await client.ask(ask(epoch=0), 4)
        (found,) = response.topics[0].partitions
        assert (0, 0, 3) == (found.error_code, found.leader_epoch, found.end_offset)


@pytest.mark.parametrize(("topic", "partition"), [("missing", 0), ("t", 5), ("t", -1)])
async def test_unknown_topic_and_partition(topic: str, partition: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        response = await client.ask(ask(epoch=0, topic=topic, partition=partition), 4)
        assert 3 == response.topics[0].partitions[0].error_code


async def test_logs_that_must_be_opened_share_a_commit() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.services.registry.create("t", partitions=5)
        before = gateway.engine.calls["commit"]
        partitions = [
            OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in range(6)
        ]
        topics = [OffsetForLeaderTopic(topic="t", partitions=partitions)]
        response = await client.ask(OffsetForLeaderEpochRequest(topics=topics), 4)
        found = response.topics[0].partitions
        assert [(0, 0)] * 5 + [(3, -1)] == [(one.error_code, one.end_offset) for one in found]
        assert 1 == gateway.engine.calls["commit"] - before
