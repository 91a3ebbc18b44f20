"""Rows of docs/SCENARIOS.md about connections, and what else clients rely on there.

What one connection does with its frames is in `test_connection.py`.
"""

import asyncio

import pytest

from kledger.batches.builder import BatchProducer, NewRecord, build_batch
from kledger.gateway.config import GatewayConfig
from kledger.gateway.handlers.k18_api_versions import TELEMETRY
from kledger.gateway.served_apis import HANDLERS
from kledger.gateway.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from kledger.gateway.wire.messages.k12_heartbeat import HeartbeatRequest
from kledger.gateway.wire.messages.k18_api_versions import ApiVersionsRequest
from tests.gateway.group_client import clients, make_stable, waiting
from tests.gateway.running import START_MS, batch, fetch, produce, running_gateway, until

PRODUCE_V = 9
FETCH_V = 12
METADATA_V = 12
IDLE_MS = 1_600


@pytest.mark.parametrize("version", [5, 99, 32_767, -1])
async def test_row_1_unknown_version_with_any_body_gets_the_served_versions(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        head = (18).to_bytes(2, "big") + version.to_bytes(2, "big", signed=True)
        client.send_frame(head + (77).to_bytes(4, "big") + b"\xff" * 20)
        answer = await client.receive_frame()
        # Version 0: correlation id, error 35, one entry of key 18 with its range, and no more.
        assert (77, 35, 1, 18, 0, 4) == (
            int.from_bytes(answer[:4]), int.from_bytes(answer[4:6]), int.from_bytes(answer[6:10]),
            int.from_bytes(answer[10:12]), int.from_bytes(answer[12:14]),
            int.from_bytes(answer[14:16]),
        )  # fmt: skip
        assert 16 == len(answer)
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        assert len(HANDLERS) - len(TELEMETRY) == len((await client.ask(request, 4)).api_keys)


async def test_row_7_heartbeat_behind_a_waiting_join_is_answered_after_it() -> None:
    async with (
        running_gateway() as gateway,
        clients(gateway, 3) as (member, newcomer, elsewhere),
    ):
        await make_stable(gateway, member)
        await newcomer.ask_id()
        newcomer.send_join()
        newcomer.send_heartbeat(2)
        await waiting(gateway, 1)
        joined = await elsewhere.join(3, group_id="another")
        assert 0 == joined.error_code, "a join of another connection waits too"
        assert 0 == (await member.join()).error_code
        assert (0, 2) == ((await newcomer.joined()).error_code, newcomer.generation)
        assert 0 == (await newcomer.wire.receive()).error_code


async def test_row_16_idle_connection_ends_cleanly_and_the_next_one_is_served() -> None:
    config = GatewayConfig(connections_max_idle_ms=IDLE_MS)
    async with running_gateway(config) as gateway:
        async with gateway.client() as client:
            await client.ask(MetadataRequest(topics=[]), METADATA_V)
            while gateway.server.connection_count:
                gateway.clock.advance(IDLE_MS // 16)
                await asyncio.sleep(0)
            # An end of the stream, no reset: clients take a reset for a fault of the network.
            assert b"" == await client.reader.read()
        async with gateway.client() as client:
            answer = await client.ask(MetadataRequest(topics=[]), METADATA_V)
            assert isinstance(answer, MetadataResponse)


async def test_row_17_requests_resent_after_a_lost_connection_leave_no_duplicates() -> None:
    """Two of five are stored when the connection is lost; the client sends all of them again."""
    async with running_gateway() as gateway:
        topic = await gateway.create_topic()
        log = await topic.open_partition(0)
        batches = [
            bytes(
                build_batch(
                    [NewRecord(b"%d" % number, timestamp=START_MS)],
                    producer=BatchProducer(9, 0, number),
                )
            )
            for number in range(5)
        ]
        async with gateway.client() as client:
            for data in batches[:2]:
                client.send(produce({0: data}), PRODUCE_V)
            await until(lambda: log.high_watermark == 2)
            hold = gateway.engine.hold_next("commit")
            for data in batches[2:]:
                client.send(produce({0: data}), PRODUCE_V)
            await hold.reached()
            client.reset()
        await until(lambda: gateway.server.connection_count == 0)
        hold.fail()
        await gateway.services.store.flush()  # the failure has landed before anything is sent again
        async with gateway.client() as client:
            for data in batches:
                client.send(produce({0: data}), PRODUCE_V)
            offsets = []
            for _ in batches:
                response = await client.receive()
                (one,) = response.responses[0].partition_responses
                offsets.append((one.error_code, one.base_offset))
        assert [(0, number) for number in range(5)] == offsets
        assert 5 == log.high_watermark


async def test_feature_ordered_responses_acks_0_has_no_response() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic(partitions=2)
        client.send(fetch({0: 0}, max_wait_ms=5_000), FETCH_V)
        client.send(MetadataRequest(topics=[]), METADATA_V)
        client.send(produce({1: batch(b"x")}, acks=0), PRODUCE_V, is_answered=False)
        client.send(HeartbeatRequest(group_id="g", member_id="m"), 4)
        await client.writer.drain()
        await gateway.parked()
        gateway.clock.advance(5_000)
        assert b"" == (await client.receive()).responses[0].partitions[0].records
        assert isinstance(await client.receive(), MetadataResponse)
        assert 25 == (await client.receive()).error_code


async def test_feature_head_of_line_a_waiting_fetch_holds_up_its_own_connection_alone() -> None:
    async with (
        running_gateway() as gateway,
        gateway.client() as waiter,
        clients(gateway, 1) as (member,),
    ):
        await gateway.create_topic(partitions=2)
        waiter.send(fetch({0: 0}, max_wait_ms=60_000), FETCH_V)
        await waiter.writer.drain()
        await gateway.parked()
        response = await member.wire.ask(produce({1: batch(b"x")}), PRODUCE_V)
        assert 0 == response.responses[0].partition_responses[0].error_code
        await make_stable(gateway, member)
        assert 0 == await member.heartbeat()
        assert gateway.clock.now_ms() == START_MS


async def test_feature_metrics_count_requests_connections_and_waiting() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        for _ in range(3):
            await client.ask(MetadataRequest(topics=[]), METADATA_V)
        found = gateway.services.metrics.snapshot()
        assert (3, 1, 1, 0) == (
            found['requests{api="metadata"}'], found["connections"], found["connections_accepted"],
            found["request_bytes_in_flight"],
        )  # fmt: skip


SPELLINGS = ("t", "public/default/t", "persistent://public/default/t")


@pytest.mark.parametrize("written", SPELLINGS)
@pytest.mark.parametrize("read", SPELLINGS)
async def test_feature_topic_names_every_spelling_is_the_same_log(written: str, read: str) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        response = await client.ask(produce({0: batch(b"x")}, topic=written), PRODUCE_V)
        assert written == response.responses[0].name
        assert 0 == response.responses[0].partition_responses[0].error_code
        response = await client.ask(fetch({0: 0}, topic=read), FETCH_V)
        assert read == response.responses[0].topic
        assert response.responses[0].partitions[0].records
        ends = ListOffsetsRequest(
            topics=[ListOffsetsTopic(name=read, partitions=[ListOffsetsPartition(timestamp=-1)])]
        )
        response = await client.ask(ends, 5)
        assert (read, 1) == (response.topics[0].name, response.topics[0].partitions[0].offset)
