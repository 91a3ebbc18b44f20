"""ListOffsets; rows 71 to 76 of docs/SCENARIOS.md."""

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.compression import Codec
from kledger.gateway.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.gateway.running import START_MS, batch, produce, running_gateway
from tests.gateway.wire_client import WireClient


async def ask(
    client: WireClient,
    *times: int,
    version: int = 11,
    topic: str = "t",
    partition: int = 0,
    isolation_level: int = 0,
) -> list[ListOffsetsPartitionResponse]:
    """Ask for one time per request, and return the answers."""
    found = []
    for time in times:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[ListOffsetsPartition(partition_index=partition, timestamp=time)],
                )
            ],
        )
        response = await client.ask(request, version)
        found.append(response.topics[0].partitions[0])
    return found


def pairs(found: list[ListOffsetsPartitionResponse]) -> list[tuple[int, int]]:
    assert all(one.error_code == 0 for one in found), found
    return [(one.timestamp, one.offset) for one in found]


async def write_times(client: WireClient, *times: int, codec: int | None = None) -> None:
    """Write records at START_MS + time: one batch each, or all in one if a codec is given."""
    records = [NewRecord(b"v", timestamp=START_MS + time) for time in times]
    groups = [[one] for one in records] if codec is None else [records]
    for group in groups:
        data = bytes(build_batch(group, codec=codec or 0))
        response = await client.ask(produce({0: data}), 9)
        assert 0 == response.responses[0].partition_responses[0].error_code


async def test_logs_that_must_be_opened_share_a_commit() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.services.registry.create("t", partitions=5)
        before = gateway.engine.calls["commit"]
        partitions = [
            ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(5)
        ]
        topics = [ListOffsetsTopic(name="t", partitions=partitions)]
        response = await client.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 11)
        assert [(0, 0)] * 5 == [
            (one.error_code, one.offset) for one in response.topics[0].partitions
        ]
        assert 1 == gateway.engine.calls["commit"] - before


@pytest.mark.parametrize("version", range(1, 12))
async def test_row_71_ends_of_empty_filled_and_trimmed_logs(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        topic = await gateway.create_topic()
        assert [(-1, 0), (-1, 0)] == pairs(await ask(client, -1, -2, version=version))
        await client.ask(produce({0: batch(b"a", b"b")}), 9)
        await client.ask(produce({0: batch(b"c")}), 9)
        assert [(-1, 3), (-1, 0)] == pairs(await ask(client, -1, -2, version=version))
        await (await topic.open_partition(0)).delete_records(2)
        assert [(-1, 3), (-1, 2)] == pairs(await ask(client, -1, -2, version=version))


@pytest.mark.parametrize("codec", [None, Codec.NONE, Codec.GZIP, Codec.LZ4])
async def test_row_72_73_first_record_at_or_after_a_time(codec: int | None) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        await write_times(client, 2, 4, 6, 8, codec=codec)
        asked = [START_MS + time for time in range(1, 10)]
        found = pairs(await ask(client, *asked))
        assert [0, 0, 1, 1, 2, 2, 3, 3, -1] == [offset for _, offset in found]
        times = [time - START_MS for time, offset in found if offset >= 0]
        assert [2, 2, 4, 4, 6, 6, 8, 8] == times
        assert (-1, -1) == found[-1]


async def test_row_73_times_out_of_order_in_one_compressed_batch() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        await write_times(client, 5, 9, 3, 7, codec=Codec.GZIP)
        found = pairs(await ask(client, START_MS + 4, START_MS + 6, START_MS + 9, START_MS + 10))
        assert [(START_MS + 5, 0), (START_MS + 9, 1), (START_MS + 9, 1), (-1, -1)] == found


async def test_row_74_greatest_time_and_empty_log() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        assert [(-1, -1)] == pairs(await ask(client, -3))
        await write_times(client, 5, 9, 9, 3)
        ((time, offset),) = pairs(await ask(client, -3))
        assert START_MS + 9 == time
        assert offset in (1, 2)


@pytest.mark.parametrize(
    ("time", "first_version"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 99), (-1000, 99)]
)
async def test_row_75_special_times_of_later_versions(time: int, first_version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        for version in range(1, 12):
            (found,) = await ask(client, time, version=version)
            assert (0 if version >= first_version else 35) == found.error_code


async def test_without_tiers_the_local_start_is_the_start_and_the_rest_is_nothing() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        topic = await gateway.create_topic()
        await client.ask(produce({0: batch(b"a", b"b")}), 9)
        await (await topic.open_partition(0)).delete_records(1)
        assert [(-1, 1), (-1, -1), (-1, -1)] == pairs(await ask(client, -4, -5, -6))


async def test_row_76_same_partition_twice_is_refused_for_it_alone() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic(partitions=2)
        request = ListOffsetsRequest(
            topics=[
                ListOffsetsTopic(
                    name="t",
                    partitions=[
                        ListOffsetsPartition(partition_index=index, timestamp=-1)
                        for index in (0, 1, 0)
                    ],
                )
            ]
        )
        response = await client.ask(request, 5)
        codes = [one.error_code for one in response.topics[0].partitions]
        assert [42, 0, 42] == codes


async def test_row_29_unknown_partitions_are_answered_too() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        for topic, partition in (("missing", 0), ("t", 9), ("t", -1)):
            (found,) = await ask(client, -1, topic=topic, partition=partition)
            assert 3 == found.error_code


@pytest.mark.parametrize("time", [-4, -7])
async def test_row_75_time_is_refused_before_the_topic_is_looked_for(time: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        (found,) = await ask(client, time, topic="missing", version=7)
        assert 35 == found.error_code


@pytest.mark.parametrize("isolation_level", [2, -1])
async def test_unknown_isolation_level_is_an_error(isolation_level: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        (found,) = await ask(client, -1, isolation_level=isolation_level)
        assert (-1, -1) == (found.error_code, found.offset)


async def test_row_69_leader_epoch_is_checked() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        for epoch, error in ((0, 0), (5, 75), (-1, 0)):
            request = ListOffsetsRequest(
                topics=[
                    ListOffsetsTopic(
                        name="t",
                        partitions=[
                            ListOffsetsPartition(
                                partition_index=0, current_leader_epoch=epoch, timestamp=-1
                            )
                        ],
                    )
                ]
            )
            response = await client.ask(request, 6)
            assert error == response.topics[0].partitions[0].error_code


async def test_log_that_is_not_open_is_opened_for_the_answer() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.services.registry.create("closed", partitions=1, configs={})
        assert [(-1, 0)] == pairs(await ask(client, -1, topic="closed"))
