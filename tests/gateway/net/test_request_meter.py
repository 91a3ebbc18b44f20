"""Throttle times, and connections that wait for them; row 79 of docs/SCENARIOS.md."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kledger.gateway.net.request_meter import RequestMeter
from kledger.gateway.quotas.quota_state import CLIENT_ID, Entity
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest
from kledger.security.principal import ANONYMOUS
from tests.gateway.running import RunningGateway, batch, fetch, produce, running_gateway, until
from tests.gateway.wire_client import WireClient

EVERY_CLIENT: Entity = ((CLIENT_ID, None),)
RECORDS = batch(b"x" * 10_000)


@asynccontextmanager
async def limited(**quotas: float) -> AsyncIterator[tuple[RunningGateway, WireClient]]:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        await gateway.services.quotas.put(EVERY_CLIENT, quotas)
        yield gateway, client


async def held(client: WireClient) -> "asyncio.Future[object]":
    """Ask something, see that it is not answered yet, and return what will be the answer."""
    client.send(MetadataRequest(topics=[]), 9)
    answer = asyncio.ensure_future(client.receive())
    for _ in range(50):
        await asyncio.sleep(0)
    assert not answer.done()
    return answer


@pytest.mark.parametrize("version", [7, 9, 12])
async def test_row_79_produce_is_answered_at_once_and_the_next_request_waits(version: int) -> None:
    async with limited(producer_byte_rate=500.0) as (gateway, client):
        request = produce({0: RECORDS})
        size = len(client.frame(request, version))
        answer = await client.ask(request, version)
        assert 0 == answer.responses[0].partition_responses[0].error_code
        wait_ms = 2 * (size - 5_000)
        assert wait_ms == answer.throttle_time_ms
        waiting = await held(client)
        gateway.clock.advance(wait_ms - 1)
        for _ in range(50):
            await asyncio.sleep(0)
        assert not waiting.done()
        gateway.clock.advance(1)
        assert await waiting
        assert 0 == (await client.ask(MetadataRequest(topics=[]), 9)).throttle_time_ms


@pytest.mark.parametrize("version", [4, 11, 12])
async def test_row_79_fetch_over_the_quota_is_answered_at_once_without_records(
    version: int,
) -> None:
    """Its partitions are named all the same, as old clients cannot read an answer without them."""
    async with limited(consumer_byte_rate=1_500.0) as (gateway, client):
        await client.ask(produce({0: RECORDS}), 9)
        first = await client.ask(fetch({0: 0}), version)
        assert RECORDS[61:] == bytes(first.responses[0].partitions[0].records)[61:]
        assert 0 == first.throttle_time_ms
        over = await client.ask(fetch({0: 0}), version)
        (one,) = over.responses[0].partitions
        assert (0, b"", 1) == (one.error_code, one.records, one.high_watermark)
        # What is left of 15,000 bytes, and what an answer has beside the records.
        missing = 2 * len(RECORDS) - 15_000
        assert missing < over.throttle_time_ms * 1.5 < missing + 200
        waiting = await held(client)
        gateway.clock.advance(over.throttle_time_ms)
        assert await waiting
        again = await client.ask(fetch({0: 0}), version)
        assert RECORDS[61:] == bytes(again.responses[0].partitions[0].records)[61:]


async def test_row_79_fetch_of_a_session_over_the_quota_loses_nothing() -> None:
    async with limited(consumer_byte_rate=1_500.0) as (gateway, client):
        await client.ask(produce({0: RECORDS}), 9)
        request = fetch({0: 0})
        request.session_epoch = 0
        await client.ask(fetch({0: 0}), 12)
        over = await client.ask(request, 12)
        assert over.session_id > 0 == len(over.responses[0].partitions[0].records)
        for epoch in (1, 2):
            gateway.clock.advance(over.throttle_time_ms)
            goes_on = fetch({})
            goes_on.topics = []
            goes_on.session_id, goes_on.session_epoch = over.session_id, epoch
            found = await client.ask(goes_on, 12)
            if epoch == 1:
                (one,) = found.responses[0].partitions
                assert RECORDS[61:] == bytes(one.records)[61:]
            else:
                assert (0, []) == (found.error_code, found.responses)
                assert found.throttle_time_ms > 0


async def test_a_fetch_brings_no_more_than_a_window_holds_but_one_batch() -> None:
    """Apache Kafka never sends a larger batch; here a client without debt gets it."""
    async with limited(consumer_byte_rate=2_500.0) as (gateway, client):
        for _ in range(3):
            await client.ask(produce({0: RECORDS}), 9)
        found = await client.ask(fetch({0: 0}), 12)
        assert 2 * len(RECORDS) == len(found.responses[0].partitions[0].records)
        await gateway.services.quotas.put(EVERY_CLIENT, {"consumer_byte_rate": 500.0})
        gateway.clock.advance(60_000)
        found = await client.ask(fetch({0: 0}), 12)
        assert len(RECORDS) == len(found.responses[0].partitions[0].records)
        assert found.throttle_time_ms > 0


async def test_a_fetch_that_waited_is_counted_when_it_is_answered() -> None:
    async with limited(consumer_byte_rate=500.0) as (gateway, client):
        client.send(fetch({0: 0}, max_wait_ms=60_000), 12)
        await gateway.parked()
        async with gateway.client() as producer:
            await producer.ask(produce({0: RECORDS}), 9)
        assert 0 < (await client.receive()).throttle_time_ms


async def test_other_clients_and_requests_within_the_quota_do_not_wait() -> None:
    async with limited(producer_byte_rate=10_000.0) as (gateway, client):
        for _ in range(3):
            assert 0 == (await client.ask(produce({0: RECORDS}), 9)).throttle_time_ms
        client.send(produce({0: batch(b"x" * 100_000)}), 9, client_id="greedy")
        assert 0 < (await client.receive()).throttle_time_ms
        async with gateway.client() as other:
            assert 0 == (await other.ask(produce({0: RECORDS}), 9)).throttle_time_ms


async def test_acks_0_has_no_answer_and_waits_all_the_same() -> None:
    async with limited(producer_byte_rate=500.0) as (gateway, client):
        client.send(produce({0: RECORDS}, acks=0), 9, is_answered=False)
        metrics = gateway.services.metrics
        await until(lambda: metrics.snapshot().get('requests{api="produce"}') == 1)
        waiting = await held(client)
        gateway.clock.advance(10**6)
        assert await waiting


async def test_a_client_without_a_name_has_the_default() -> None:
    async with limited(producer_byte_rate=500.0) as (_, client):
        client.send(produce({0: RECORDS}), 9, client_id=None)
        assert 0 < (await client.receive()).throttle_time_ms


async def test_a_request_that_is_put_back_is_counted_once() -> None:
    """The first request to a partition waits for its log to be opened, and starts anew then."""
    async with limited(producer_byte_rate=500.0) as (gateway, client):
        await gateway.services.registry.create("new", partitions=1)
        request = produce({0: RECORDS}, topic="new")
        size = len(client.frame(request, 9))
        assert 2 * (size - 5_000) == (await client.ask(request, 9)).throttle_time_ms


async def test_a_client_that_left_is_noticed_when_its_wait_is_over() -> None:
    async with limited(producer_byte_rate=500.0) as (gateway, client):
        await client.ask(produce({0: RECORDS}), 9)
        client.writer.close()
        gateway.clock.advance(10**6)
        await until(lambda: not gateway.server.connections)


async def test_time_is_charged_and_waited_for() -> None:
    async with limited(request_percentage=1.0) as (gateway, client):
        quotas, clock = gateway.services.quotas, gateway.clock
        meter = RequestMeter(quotas, clock)
        frame = memoryview(client.frame(MetadataRequest(topics=[]), 9))
        for used_ms, expected in ((100, 0), (5, 495), (500, 1_000)):
            meter.begin(frame, ANONYMOUS)
            clock.advance(used_ms)
            response, wait_ms = meter.answered((bytes(40),), is_at_once=True)
            assert expected == wait_ms == int.from_bytes(bytes(response[0])[9:13], "big")
        meter.begin(frame, ANONYMOUS)
        clock.advance(10_000)
        assert 0 == meter.answered((bytes(40),), is_at_once=False)[1]
        assert 0 == meter.answered((bytes(40),), is_at_once=True)[1]
