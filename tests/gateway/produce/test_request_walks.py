"""Long walks over records of Produce requests: off the loop, in order, once."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kledger.batches.builder import NO_PRODUCER, BatchProducer, NewRecord, build_batch
from kledger.ledger.commits.store_threads import StoreThreads
from tests.gateway.running import START_MS, RunningGateway, batch, produce, running_gateway, until
from tests.runtime.dying_processes import DyingProcesses
from tests.runtime.held_pool import HeldPool

VERSION = 9
HOUR_MS = 3_600_000
LATE_MS = START_MS + 2 * HOUR_MS
MANY = 1000


def long_batch(
    *, sequence: int = -1, timestamp: int = START_MS, codec: int = 0, key: bytes | None = b"k"
) -> bytes:
    records = [NewRecord(b"value", key, timestamp) for _ in range(MANY)]
    producer = BatchProducer(9, 0, sequence) if sequence >= 0 else NO_PRODUCER
    return bytes(build_batch(records, producer=producer, codec=codec))


@asynccontextmanager
async def walking_gateway(pool: HeldPool) -> AsyncIterator[RunningGateway]:
    """A gateway with a compacted topic of two partitions, and walks that begin when released."""
    async with running_gateway(threads=StoreThreads(compute_pool=lambda: pool)) as gateway:
        await gateway.create_topic(partitions=2, configs={"cleanup.policy": "compact"})
        yield gateway
        pool.release()


def answers(response: Any) -> list[tuple[int, int]]:
    (topic,) = response.responses
    return [(one.error_code, one.base_offset) for one in topic.partition_responses]


@pytest.mark.parametrize("codec", range(5))
async def test_records_are_not_walked_on_the_loop(codec: int) -> None:
    pool = HeldPool()
    async with walking_gateway(pool) as gateway, gateway.client() as client:
        pool.release()
        response = await client.ask(produce({0: long_batch(codec=codec)}), VERSION)
        assert [(0, 0)] == answers(response)
        assert 1 == len(pool.threads)
        assert threading.main_thread() not in pool.threads


async def test_requests_behind_a_walk_wait_for_it_so_that_sequences_stay_in_order() -> None:
    """A short batch of the same producer follows: appended first, it were out of order."""
    pool = HeldPool()
    async with walking_gateway(pool) as gateway, gateway.client() as client, gateway.client() as by:
        client.send(produce({0: long_batch(sequence=0)}), VERSION)
        short = build_batch([NewRecord(b"v", b"k", START_MS)], producer=BatchProducer(9, 0, MANY))
        client.send(produce({0: bytes(short)}), VERSION)
        await until(lambda: pool.waiting_count == 1)
        other = build_batch([NewRecord(b"v", b"k", START_MS)])
        response = await by.ask(produce({1: bytes(other)}), VERSION)
        assert [(0, 0)] == answers(response)  # other connections do not wait
        pool.release()
        assert [(0, 0)] == answers(await client.receive())
        assert [(0, MANY)] == answers(await client.receive())
        assert 1 == len(pool.threads)


async def test_what_needs_no_walk_is_appended_before_what_does_and_once() -> None:
    pool = HeldPool()
    async with walking_gateway(pool) as gateway, gateway.client() as client:
        topic = gateway.services.registry.get("t")
        assert topic is not None
        first = topic.partition(0)
        assert first is not None
        short = bytes(build_batch([NewRecord(b"v", b"k", START_MS)]))
        client.send(produce({0: short, 1: long_batch(key=None)}), VERSION)
        await until(lambda: pool.waiting_count == 1)
        await until(lambda: first.high_watermark == 1)
        pool.release()
        response = await client.receive()
        assert [(0, 0), (87, -1)] == answers(response)
        assert 1 == first.high_watermark
        (_, batch_rejected) = response.responses[0].partition_responses
        assert 100 == len(batch_rejected.record_errors)


async def test_times_in_the_future_are_found_off_the_loop() -> None:
    pool = HeldPool()
    async with walking_gateway(pool) as gateway, gateway.client() as client:
        await gateway.create_topic("plain")
        pool.release()
        late = long_batch(timestamp=LATE_MS, codec=1)
        response = await client.ask(produce({0: late}, topic="plain"), VERSION)
        assert [(32, -1)] == answers(response)
        assert f"due to invalid timestamp: {MANY} records" in str(
            response.responses[0].partition_responses[0].error_message
        )
        assert 1 == len(pool.threads)
        response = await client.ask(produce({0: batch(b"a")}, topic="plain"), VERSION)
        assert [(0, 0)] == answers(response)
        assert 1 == len(pool.threads)


async def test_a_topic_that_is_reconfigured_during_a_walk_is_walked_again() -> None:
    pool = HeldPool()
    async with walking_gateway(pool) as gateway, gateway.client() as client:
        await gateway.create_topic("plain")
        late = long_batch(timestamp=LATE_MS, key=None)
        client.send(produce({0: late}, topic="plain"), VERSION)
        await until(lambda: pool.waiting_count == 1)
        await gateway.services.registry.alter_configs("plain", {"cleanup.policy": "compact"})
        pool.release()
        assert [(87, -1)] == answers(await client.receive())
        assert 2 == len(pool.threads)


async def test_a_walk_whose_process_dies_can_be_retried() -> None:
    threads = StoreThreads(compute_processes=lambda: DyingProcesses(1))
    async with running_gateway(threads=threads) as gateway, gateway.client() as client:
        await gateway.create_topic(configs={"cleanup.policy": "compact"})
        response = await client.ask(produce({0: long_batch(sequence=0)}), VERSION)
        assert [(56, -1)] == answers(response)  # KAFKA_STORAGE_ERROR: clients retry
        response = await client.ask(produce({0: long_batch(sequence=0)}), VERSION)
        assert [(0, 0)] == answers(response)


async def test_a_connection_that_goes_during_a_walk_leaves_nothing() -> None:
    pool = HeldPool()
    async with walking_gateway(pool) as gateway:
        async with gateway.client() as client:
            client.send(produce({0: long_batch()}), VERSION)
            await until(lambda: pool.waiting_count == 1)
            (connection,) = gateway.server.connections
            connection.abort()
        await until(lambda: not gateway.server.connections)
        pool.release()
        async with gateway.client() as client:
            response = await client.ask(produce({0: long_batch()}), VERSION)
            assert [(0, 0)] == answers(response)


async def test_a_server_that_stops_answers_what_it_will_not_append() -> None:
    pool = HeldPool()
    async with walking_gateway(pool) as gateway, gateway.client() as client:
        client.send(produce({0: long_batch()}), VERSION)
        await until(lambda: pool.waiting_count == 1)
        (connection,) = gateway.server.connections
        connection.stop()
        assert [(6, -1)] == answers(await client.receive())
