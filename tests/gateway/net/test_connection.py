"""Framing, order of responses and limits, on real sockets. Rows of docs/SCENARIOS.md."""

import asyncio
import gc
import logging

import pytest

from kledger.gateway.config import GatewayConfig
from kledger.gateway.fetch.slot import FetchSlot
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from kledger.gateway.wire.messages.k12_heartbeat import HeartbeatRequest
from kledger.gateway.wire.messages.k18_api_versions import ApiVersionsRequest
from tests.gateway.running import RunningGateway, batch, fetch, produce, running_gateway, until

PRODUCE_V = 9
FETCH_V = 12
METADATA_V = 12


async def served(gateway: RunningGateway) -> bool:
    """Return whether a new connection is served normally."""
    async with gateway.client() as client:
        response = await client.ask(MetadataRequest(topics=[]), METADATA_V)
        return isinstance(response, MetadataResponse)


async def test_row_4_first_request_may_be_anything() -> None:
    async with running_gateway() as gateway:
        await gateway.create_topic()
        for request, version in (
            (MetadataRequest(topics=None), 1),
            (produce({0: batch(b"x")}), 3),
            (fetch({0: 0}), 4),
        ):
            async with gateway.client() as client:
                await client.ask(request, version)


@pytest.mark.parametrize(("key", "version"), [(999, 0), (3, 99), (4, 0), (0, 2), (1, 3), (1, -1)])
async def test_row_5_unknown_key_or_version_closes_that_connection_alone(
    key: int, version: int
) -> None:
    async with running_gateway() as gateway, gateway.client() as bystander:
        async with gateway.client() as client:
            head = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True)
            client.send_frame(head + bytes(4) + b"\xff\xff" + bytes(40))
            assert await client.is_closed_by_server()
        assert await bystander.ask(MetadataRequest(topics=[]), METADATA_V)


async def test_row_6_pipelined_responses_keep_request_order_behind_a_waiting_fetch() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        client.send(fetch({0: 0}, max_wait_ms=5_000), FETCH_V)
        client.send(produce({0: batch(b"x")}), PRODUCE_V)
        client.send(MetadataRequest(topics=[]), METADATA_V)
        await client.writer.drain()
        await gateway.parked()
        assert await served(gateway), "another connection waits too"
        gateway.clock.advance(5_000)
        fetched = await client.receive()
        assert b"" == fetched.responses[0].partitions[0].records
        produced = await client.receive()
        assert 0 == produced.responses[0].partition_responses[0].error_code
        assert isinstance(await client.receive(), MetadataResponse)


async def test_produce_pipelines_and_is_answered_in_order() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic(partitions=2)
        hold = gateway.engine.hold_next("commit")
        for number in range(5):
            client.send(produce({number % 2: batch(b"x")}), PRODUCE_V)
        client.send(MetadataRequest(topics=[]), METADATA_V)
        await hold.reached()
        hold.release()
        offsets = []
        for _ in range(5):
            response = await client.receive()
            offsets.append(response.responses[0].partition_responses[0].base_offset)
        assert [0, 0, 1, 1, 2] == offsets
        assert isinstance(await client.receive(), MetadataResponse)


async def test_row_8_acks_0_has_no_answer_and_an_error_closes() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        topic = await gateway.create_topic()
        client.send(produce({0: batch(b"x")}, acks=0), PRODUCE_V, is_answered=False)
        response = await client.ask(MetadataRequest(topics=[]), METADATA_V)
        assert isinstance(response, MetadataResponse)
        log = await topic.open_partition(0)
        await gateway.services.store.flush()
        assert 1 == log.high_watermark
        client.send(produce({7: batch(b"x")}, acks=0), PRODUCE_V, is_answered=False)
        assert await client.is_closed_by_server()


@pytest.mark.parametrize("size", [-1, 0, 1, 7, 104_857_601, 2**31 - 1])
async def test_row_9_impossible_frame_sizes_close_at_once(size: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        client.writer.write(size.to_bytes(4, "big", signed=True) + bytes(max(min(size, 20), 0)))
        assert await client.is_closed_by_server()
        assert await served(gateway)


async def test_row_9_16_stalled_and_idle_connections_are_closed_by_the_idle_time() -> None:
    config = GatewayConfig(connections_max_idle_ms=1_600)
    async with (
        running_gateway(config) as gateway,
        gateway.client() as stalled,
        gateway.client() as idle,
    ):
        stalled.writer.write((1000).to_bytes(4, "big"))
        await until(lambda: gateway.services.metrics.snapshot()["received_bytes"] == 4)
        await idle.ask(MetadataRequest(topics=[]), METADATA_V)
        begun_ms = gateway.clock.monotonic_ms()
        while gateway.server.connection_count:
            gateway.clock.advance(100)
            for _ in range(10):
                await asyncio.sleep(0)
        # The time is counted in sixteenths.
        assert 1_600 <= gateway.clock.monotonic_ms() - begun_ms <= 1_800
        assert await stalled.is_closed_by_server()
        assert await idle.is_closed_by_server()


async def test_idle_time_spares_a_connection_whose_request_is_being_served() -> None:
    config = GatewayConfig(connections_max_idle_ms=1_600)
    async with running_gateway(config) as gateway, gateway.client() as client:
        await gateway.create_topic()
        client.send(fetch({0: 0}, max_wait_ms=30_000), FETCH_V)
        await gateway.parked()
        for _ in range(100):
            gateway.clock.advance(100)
            for _ in range(5):
                await asyncio.sleep(0)
        gateway.clock.advance(30_000)
        assert (await client.receive()).responses


async def test_row_10_unknown_tags_in_header_and_body_are_ignored() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        frame = client.frame(HeartbeatRequest(group_id="g", member_id="m"), 4)
        # The header ends with its count of tagged fields, as the body does.
        header_end = 10 + len("test")
        assert 0 == frame[header_end] == frame[-1]
        tag = b"\x01\x63\x03abc"
        client.send_frame(frame[:header_end] + tag + frame[header_end + 1 : -1] + tag)
        client.expect(12, 4)
        assert 25 == (await client.receive()).error_code
        for request, version in ((produce({}), PRODUCE_V), (fetch({}), FETCH_V)):
            frame = client.frame(request, version)
            client.send_frame(frame[:header_end] + tag + frame[header_end + 1 : -1] + tag)
            client.expect(type(request).__api__.key, version)
            await client.receive()


@pytest.mark.parametrize("client_id", [None, "", "größe-客户"])
async def test_row_11_any_client_id_is_accepted(client_id: str | None) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        for request, version in (
            (MetadataRequest(topics=[]), METADATA_V),
            (produce({0: batch(b"x")}), PRODUCE_V - 1),
            (produce({0: batch(b"x")}), PRODUCE_V),
            (fetch({0: 0}), FETCH_V - 1),
            (fetch({0: 0}), FETCH_V),
        ):
            client.send(request, version, client_id=client_id)
            await client.receive()


async def test_row_130_truncated_body_closes_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "kledger.gateway.net.connection")
    async with running_gateway() as gateway:
        await gateway.create_topic()
        for request, version in (
            (produce({0: batch(b"x")}), PRODUCE_V),
            (fetch({0: 0}), FETCH_V),
            (MetadataRequest(topics=None), METADATA_V),
        ):
            async with gateway.client() as client:
                frame = client.frame(request, version)
                caplog.clear()
                client.send_frame(frame[: len(frame) // 2 + 4])
                assert await client.is_closed_by_server()
            assert 1 == len(caplog.records)
            assert "127.0.0.1" in caplog.records[0].getMessage()
        assert await served(gateway)


async def test_row_130_garbage_of_every_length_harms_no_other_client() -> None:
    async with running_gateway() as gateway, gateway.client() as bystander:
        for size in range(8, 60):
            async with gateway.client() as client:
                client.send_frame(bytes((size * 7 + i * 31) % 256 for i in range(size)))
                assert await client.is_closed_by_server()
        assert await bystander.ask(MetadataRequest(topics=[]), METADATA_V)


async def test_warnings_about_peers_are_rate_limited(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "kledger.gateway.net.connection")
    async with running_gateway() as gateway:
        for _ in range(40):
            async with gateway.client() as client:
                client.send_frame(b"\x03\xe7" + bytes(20))
                assert await client.is_closed_by_server()
        assert 40 == gateway.services.metrics.snapshot()["malformed_requests"]
    assert len(caplog.records) <= 10


async def test_frames_arrive_in_any_pieces() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        frames = b""
        for number in range(3):
            frame = client.frame(produce({0: batch(b"v" * 50 * number)}), PRODUCE_V)
            frames += len(frame).to_bytes(4, "big") + frame
            client.expect(0, PRODUCE_V)
        for start in range(0, len(frames), 97):
            client.writer.write(frames[start : start + 97])
            await client.writer.drain()
            await asyncio.sleep(0)
        for number in range(3):
            response = await client.receive()
            assert number == response.responses[0].partition_responses[0].base_offset


async def test_large_frames_and_small_ones_alternate() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic(configs={"max.message.bytes": "3000000"})
        values = [bytes([65 + number]) * (number % 2 * 900_000 + 10) for number in range(6)]
        for value in values:
            client.send(produce({0: batch(value)}), PRODUCE_V)
        for number in range(6):
            response = await client.receive()
            assert number == response.responses[0].partition_responses[0].base_offset
        fetched = await client.ask(fetch({0: 0}, partition_max_bytes=50 << 20), FETCH_V)
        records = bytes(fetched.responses[0].partitions[0].records)
        assert all(value in records for value in values)


async def test_queued_requests_over_the_limit_stop_the_reading_and_lose_nothing() -> None:
    config = GatewayConfig(queued_max_requests=3)
    async with running_gateway(config) as gateway, gateway.client() as client:
        await gateway.create_topic()
        client.send(fetch({0: 0}, max_wait_ms=1_000), FETCH_V)
        for _ in range(200):
            client.send(MetadataRequest(topics=None), METADATA_V)
        await client.writer.drain()
        await gateway.parked()
        gateway.clock.advance(1_000)
        await client.receive()
        for _ in range(200):
            assert isinstance(await client.receive(), MetadataResponse)


async def test_bytes_over_the_servers_limit_stop_the_reading_and_lose_nothing() -> None:
    config = GatewayConfig(queued_max_request_bytes=10_000)
    async with running_gateway(config) as gateway:
        topic = await gateway.create_topic()
        hold = gateway.engine.hold_next("commit")
        async with gateway.client() as one, gateway.client() as other:
            for client in (one, other):
                for _ in range(20):
                    client.send(produce({0: batch(b"x" * 5_000)}), PRODUCE_V)
            await hold.reached()
            hold.release()
            for client in (one, other):
                for _ in range(20):
                    response = await client.receive()
                    assert 0 == response.responses[0].partition_responses[0].error_code
        assert 40 == (await topic.open_partition(0)).high_watermark


async def test_half_a_frame_cannot_hold_the_memory_that_others_wait_for() -> None:
    config = GatewayConfig(queued_max_request_bytes=10_000, connections_max_idle_ms=16_000)
    async with running_gateway(config) as gateway:
        await gateway.create_topic()
        async with gateway.client() as stalled, gateway.client() as other:
            stalled.writer.write((50_000).to_bytes(4, "big") + bytes(40_000))
            await until(lambda: gateway.services.metrics.snapshot()["received_bytes"] == 40_004)
            other.send(produce({0: batch(b"x")}), PRODUCE_V)
            await other.receive()
            other.send(produce({0: batch(b"x")}), PRODUCE_V)
            for _ in range(3):
                gateway.clock.advance(1_000)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            assert await stalled.is_closed_by_server()
            assert (await other.receive()).responses


async def test_row_131_slow_reader_is_paused_not_buffered() -> None:
    """A client sends hundreds of fetches of a megabyte, and does not read the responses."""
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        await client.ask(produce({0: batch(b"x" * 1_000_000)}), PRODUCE_V)
        for _ in range(300):
            client.send(fetch({0: 0}), FETCH_V)
        for _ in range(200):
            await asyncio.sleep(0)
        assert gateway.server.connections[0].unsent_bytes < 8 << 20
        assert await served(gateway)
        for _ in range(300):
            response = await client.receive()
            assert 1_000_000 < len(response.responses[0].partitions[0].records)


async def test_connection_lost_while_waiting_leaves_no_listener() -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic()
        async with gateway.client() as client:
            client.send(fetch({0: 0}, max_wait_ms=60_000), FETCH_V)
            await client.writer.drain()
            await gateway.parked()
            client.reset()
        await until(lambda: gateway.server.connection_count == 0)
        slots = [one for one in gc.get_objects() if isinstance(one, FetchSlot)]
        assert not any(slot.wanted for slot in slots if slot._services is gateway.services)
        assert not topic.is_deleted


# A client that closes its sending side.


async def test_half_closed_client_gets_every_answer_and_then_the_end() -> None:
    """As `nc -N` does; the fetch waits for records, and all behind it waits for the fetch."""
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        client.send(fetch({0: 0}, max_wait_ms=5_000), FETCH_V)
        client.send(produce({0: batch(b"y")}), PRODUCE_V)
        client.send(MetadataRequest(topics=[]), METADATA_V)
        client.writer.write_eof()
        await gateway.parked()
        await until(lambda: gateway.server.connections[0].read_flow.is_eof)
        async with gateway.client() as other:
            await other.ask(produce({0: batch(b"x")}), PRODUCE_V)
        fetched = await client.receive()
        assert fetched.responses[0].partitions[0].records
        assert 1 == (await client.receive()).responses[0].partition_responses[0].base_offset
        assert isinstance(await client.receive(), MetadataResponse)
        assert await client.is_closed_by_server()
        await until(lambda: gateway.server.connection_count == 0)


async def test_half_closed_client_that_awaits_nothing_is_closed_at_once() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await client.ask(MetadataRequest(topics=[]), METADATA_V)
        client.writer.write_eof()
        assert await client.is_closed_by_server()


async def test_half_closed_producer_without_acks_is_stored_and_closed() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        topic = await gateway.create_topic()
        for _ in range(10):
            client.send(produce({0: batch(b"x")}, acks=0), PRODUCE_V, is_answered=False)
        client.writer.write_eof()
        assert await client.is_closed_by_server()
        partition = await topic.open_partition(0)
        await until(lambda: partition.high_watermark == 10)


async def test_half_a_frame_before_the_end_holds_nothing_up() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        client.writer.write((50_000).to_bytes(4, "big") + bytes(40_000))
        client.writer.write_eof()
        assert await client.is_closed_by_server()
        assert 0 == gateway.services.metrics.snapshot()["request_bytes_in_flight"]


async def test_half_closed_client_is_not_waited_for_longer_than_an_idle_one() -> None:
    """A client that was killed looks the same, and what it has asked may wait for ever."""
    config = GatewayConfig(connections_max_idle_ms=16_000)
    async with running_gateway(config) as gateway, gateway.client() as client:
        await gateway.create_topic()
        client.send(fetch({0: 0}, max_wait_ms=2**31 - 1), FETCH_V)
        client.writer.write_eof()
        await gateway.parked()
        for _ in range(20):
            gateway.clock.advance(1_000)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert await client.is_closed_by_server()
        await until(lambda: gateway.server.connection_count == 0)


async def test_api_versions_before_and_between_everything() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        for version in range(5):
            response = await client.ask(request, version)
            assert 0 == response.error_code
