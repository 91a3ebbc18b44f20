"""Fetch; rows 59 to 69, 80 and 81 of docs/SCENARIOS.md."""

import asyncio
from uuid import UUID

import pytest

from kledger.batches.header import read_header
from kledger.gateway.wire.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kledger.gateway.wire.schema import ApiMessage
from kledger.ledger.testing import FaultyEngine
from tests.gateway.running import RunningGateway, batch, fetch, produce, running_gateway
from tests.gateway.wire_client import WireClient

VERSION = 12
MIB = 1 << 20


async def fetched(
    client: WireClient, request: ApiMessage, version: int = VERSION
) -> list[PartitionData]:
    response = await client.ask(request, version)
    assert 0 == response.throttle_time_ms
    return partitions(response)


def partitions(response: FetchResponse) -> list[PartitionData]:
    return [one for topic in response.responses for one in topic.partitions]


async def write(client: WireClient, *values: bytes, partition: int = 0) -> None:
    for value in values:
        response = await client.ask(produce({partition: batch(value)}), 9)
        assert 0 == response.responses[0].partition_responses[0].error_code


def request_count(gateway: RunningGateway) -> int:
    return sum(one.state.request_count for one in gateway.server.connections)


async def settled() -> None:
    """Let everything that is on its way arrive."""
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.mark.parametrize("version", range(4, 13))
async def test_row_59_nothing_to_return_is_zero_length_never_null(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        (one,) = await fetched(client, fetch({0: 0}), version)
        assert (0, b"") == (one.error_code, one.records)
        assert (0, 0) == (one.high_watermark, one.last_stable_offset)
        if version >= 5:
            assert 0 == one.log_start_offset
        if version >= 11:
            assert -1 == one.preferred_read_replica


@pytest.mark.parametrize("version", range(4, 19))
async def test_every_version_returns_the_stored_batches(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        topic = await gateway.create_topic()
        await write(client, b"one", b"two")
        request = fetch({0: 0})
        request.topics[0].topic_id = topic.id
        (one,) = await fetched(client, request, version)
        assert 0 == one.error_code
        records = bytes(one.records or b"")
        first = read_header(records)
        second = read_header(records, first.size)
        assert (0, 1) == (first.base_offset, second.base_offset)
        assert first.size + second.size == len(records)
        assert 2 == one.high_watermark


async def test_row_118_aborted_list_is_null_or_empty_by_isolation_level() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        await write(client, b"x")
        (one,) = await fetched(client, fetch({0: 0}))
        assert one.aborted_transactions is None
        (one,) = await fetched(client, fetch({0: 0}, isolation_level=1))
        assert [] == one.aborted_transactions
        assert one.records


async def test_row_60_61_only_the_first_batch_of_the_first_partition_may_exceed_limits() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic(partitions=3, configs={"max.message.bytes": "6000000"})
        for index in (1, 2):
            await write(client, b"x" * 5_000_000, partition=index)
        request = fetch({0: 0, 1: 0, 2: 0}, max_bytes=MIB, partition_max_bytes=MIB)
        sizes = [len(one.records or b"") for one in await fetched(client, request)]
        assert 0 == sizes[0] == sizes[2]
        assert sizes[1] > 5_000_000


async def test_row_62_offset_in_the_middle_of_a_batch_returns_that_batch() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        for _ in range(2):
            await client.ask(produce({0: batch(b"a", b"b", b"c")}), 9)
        for offset, base in ((0, 0), (1, 0), (2, 0), (3, 3), (5, 3)):
            (one,) = await fetched(client, fetch({0: offset}))
            assert base == read_header(one.records or b"").base_offset


async def test_row_63_without_data_the_answer_takes_the_whole_time() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        client.send(fetch({0: 0}, max_wait_ms=3_000, min_bytes=MIB), VERSION)
        await client.writer.drain()
        await gateway.parked()
        gateway.clock.advance(2_999)
        await settled()
        assert 1 == request_count(gateway)
        gateway.clock.advance(1)
        assert [b""] == [one.records for one in partitions(await client.receive())]


async def test_row_63_too_little_data_takes_the_whole_time_and_is_returned_then() -> None:
    async with running_gateway() as gateway, gateway.client() as client, gateway.client() as other:
        await gateway.create_topic()
        client.send(fetch({0: 0}, max_wait_ms=3_000, min_bytes=MIB), VERSION)
        await client.writer.drain()
        await gateway.parked()
        await write(other, b"ten bytes.")
        gateway.clock.advance(2_999)
        await settled()
        assert 1 == request_count(gateway)
        gateway.clock.advance(1)
        (one,) = partitions(await client.receive())
        assert b"ten bytes." in bytes(one.records or b"")


async def test_row_63_enough_data_wakes_the_fetch() -> None:
    async with running_gateway() as gateway, gateway.client() as client, gateway.client() as other:
        await gateway.create_topic(partitions=2)
        client.send(fetch({0: 0, 1: 0}, max_wait_ms=3_000, min_bytes=600), VERSION)
        await client.writer.drain()
        await gateway.parked()
        await write(other, b"x" * 300, partition=0)
        await settled()
        assert 1 == request_count(gateway), "answered with too little"
        await write(other, b"y" * 300, partition=1)
        first, second = partitions(await client.receive())
        assert b"x" * 300 in bytes(first.records or b"")
        assert b"y" * 300 in bytes(second.records or b"")


async def test_row_63_full_partition_and_partition_in_error_answer_at_once() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        await write(client, b"x" * 500, b"y" * 500)
        request = fetch({0: 0}, max_wait_ms=3_000, min_bytes=MIB, partition_max_bytes=700)
        (one,) = await fetched(client, request)
        assert 500 < len(one.records or b"") < 700
        request = fetch({0: 2, 9: 0}, max_wait_ms=3_000, min_bytes=MIB)
        assert [0, 3] == [one.error_code for one in await fetched(client, request)]


@pytest.mark.parametrize("limit", [0, -1])
async def test_limit_of_nothing_still_brings_the_first_batch_at_once(limit: int) -> None:
    """With time to wait, such a fetch used to wait for ever for what was there already."""
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        await write(client, b"a")
        request = fetch({0: 0}, max_wait_ms=3_000, partition_max_bytes=limit)
        (one,) = await fetched(client, request)
        assert one.records


@pytest.mark.parametrize("isolation_level", [2, -1])
async def test_unknown_isolation_level_reads_nothing(isolation_level: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        await write(client, b"a")
        (one,) = await fetched(client, fetch({0: 0}, isolation_level=isolation_level))
        assert (-1, b"") == (one.error_code, one.records)


@pytest.mark.parametrize(("offset", "error"), [(3, 0), (4, 1), (0, 1), (-1, 1), (1, 0)])
async def test_row_64_77_offsets_at_and_beyond_both_ends(offset: int, error: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        topic = await gateway.create_topic()
        await write(client, b"a", b"b", b"c")
        await (await topic.open_partition(0)).delete_records(1)
        (one,) = await fetched(client, fetch({0: offset}))
        assert error == one.error_code
        if error:
            offsets = (one.high_watermark, one.last_stable_offset, one.log_start_offset)
            assert (-1, -1, -1) == offsets
            assert b"" == one.records
        else:
            assert (3, 1) == (one.high_watermark, one.log_start_offset)


@pytest.mark.parametrize(("epoch", "error"), [(-1, 0), (0, 0), (1, 75)])
async def test_row_69_leader_epoch_of_the_client(epoch: int, error: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        await write(client, b"a")
        request = fetch({0: 0})
        request.topics[0].partitions[0].current_leader_epoch = epoch
        assert error == (await fetched(client, request))[0].error_code


async def test_row_80_many_partitions_stay_within_the_limit_and_none_starves() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        count = 40
        await gateway.create_topic(partitions=count)
        for index in range(count):
            await write(client, b"x" * 1_000, partition=index)
        offsets = dict.fromkeys(range(count), 0)
        rounds = 0
        while any(offset == 0 for offset in offsets.values()):
            found = await fetched(client, fetch(offsets, max_bytes=12_000))
            assert list(offsets) == [one.partition_index for one in found]
            assert sum(len(one.records or b"") for one in found) <= 12_000
            for one in found:
                if one.records:
                    offsets[one.partition_index] = 1
            rounds += 1
        assert rounds == 4


async def test_row_81_deleted_topic_is_an_error_for_a_waiting_fetch_and_later() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        topic = await gateway.create_topic()
        for version, error in ((12, 3), (13, 100)):
            request = fetch({0: 0}, max_wait_ms=60_000)
            request.topics[0].topic_id = topic.id
            client.send(request, version)
            await client.writer.drain()
            await gateway.parked()
            await gateway.services.registry.delete("t")
            assert error == partitions(await client.receive())[0].error_code
            assert error == (await fetched(client, request, version))[0].error_code
            topic = await gateway.create_topic()


async def test_row_23_unknown_id() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        request = FetchRequest(
            topics=[FetchTopic(topic_id=UUID(int=5), partitions=[FetchPartition(partition=0)])]
        )
        assert 100 == (await fetched(client, request, 13))[0].error_code


async def test_log_start_that_moves_past_a_waiting_fetch_is_out_of_range() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        topic = await gateway.create_topic()
        await write(client, b"a", b"b")
        client.send(fetch({0: 0}, max_wait_ms=60_000, min_bytes=MIB), VERSION)
        await client.writer.drain()
        await gateway.parked()
        await (await topic.open_partition(0)).delete_records(1)
        assert 1 == partitions(await client.receive())[0].error_code


async def test_same_fetch_again_waits_again_and_sees_what_comes() -> None:
    """A consumer at the end of a quiet topic asks the same for ever; then something arrives."""
    async with running_gateway() as gateway, gateway.client() as client, gateway.client() as other:
        await gateway.create_topic()
        request = fetch({0: 0}, max_wait_ms=500)
        for _ in range(4):
            client.send(request, VERSION)
            await client.writer.drain()
            await gateway.parked()
            gateway.clock.advance(500)
            (one,) = partitions(await client.receive())
            assert (0, b"", 0) == (one.error_code, one.records, one.high_watermark)
        client.send(request, VERSION)
        await client.writer.drain()
        await gateway.parked()
        await write(other, b"news")
        (one,) = partitions(await client.receive())
        assert b"news" in bytes(one.records or b"")
        assert 1 == one.high_watermark


async def test_what_arrives_between_two_equal_fetches_is_returned_by_the_second() -> None:
    async with running_gateway() as gateway, gateway.client() as client, gateway.client() as other:
        await gateway.create_topic()
        request = fetch({0: 0}, max_wait_ms=500)
        client.send(request, VERSION)
        await client.writer.drain()
        await gateway.parked()
        gateway.clock.advance(500)
        await client.receive()
        await write(other, b"between")
        (one,) = await fetched(client, request)
        assert b"between" in bytes(one.records or b"")


async def test_topic_deleted_between_two_equal_fetches_is_an_error_in_the_second() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        request = fetch({0: 0}, max_wait_ms=500)
        client.send(request, VERSION)
        await client.writer.drain()
        await gateway.parked()
        gateway.clock.advance(500)
        await client.receive()
        await gateway.services.registry.delete("t")
        assert 3 == (await fetched(client, request))[0].error_code


async def test_logs_are_opened_when_first_fetched() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.services.registry.create("t", partitions=3, configs={})
        found = await fetched(client, fetch({0: 0, 2: 0}))
        assert [0, 0] == [one.error_code for one in found]


async def test_data_that_left_memory_is_read_from_the_storage() -> None:
    engine = FaultyEngine(None)
    values = [bytes([65 + number]) * 1_000 for number in range(10)]
    async with running_gateway(engine=engine) as gateway, gateway.client() as client:
        await gateway.create_topic(partitions=2)
        for index in range(2):
            await write(client, *values, partition=index)
    async with running_gateway(engine=engine) as gateway, gateway.client() as client:
        found = await fetched(client, fetch({0: 0, 1: 3}, max_bytes=15_000))
        for one, first in zip(found, (0, 3), strict=True):
            assert 10 == one.high_watermark
            assert first == read_header(one.records or b"").base_offset
        assert sum(len(one.records or b"") for one in found) <= 15_000
        assert engine.calls["read"] > 0


async def test_stopping_server_answers_waiting_fetches() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        client.send(fetch({0: 0}, max_wait_ms=60_000), VERSION)
        await client.writer.drain()
        await gateway.parked()
        await gateway.server.stop()
        assert b"" == partitions(await client.receive())[0].records
        assert await client.is_closed_by_server()
