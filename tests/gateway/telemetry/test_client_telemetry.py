"""What clients push is taken, kept, shown and forgotten."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kledger.batches.compression import Codec, compress
from kledger.gateway.config import GatewayConfig
from kledger.gateway.telemetry import client_telemetry as module
from kledger.gateway.telemetry.client_telemetry import (
    PLAIN_BYTES_FACTOR,
    SWEEP_MS,
    ClientSnapshot,
    ClientTelemetry,
)
from kledger.gateway.telemetry.pushed_metrics_state import RETENTION_MS
from kledger.gateway.telemetry.telemetry_state import ClientInstance
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.ledger.commits.store_threads import StoreThreads
from tests.gateway.running import START_MS, RunningGateway, running_gateway, until
from tests.gateway.telemetry_words import CLIENT, ID, metrics_data, numbered
from tests.runtime.held_pool import HeldPool

DATA = metrics_data(org_apache_kafka_x=1.5)
NONE = ErrorCode.NONE


class Bench:
    """One server's telemetry, asked without sockets."""

    def __init__(self, gateway: RunningGateway) -> None:
        self.gateway = gateway
        self.clock = gateway.clock
        self.telemetry: ClientTelemetry = gateway.services.telemetry

    async def wish(self, name: str = "all", **settings: str) -> None:
        usual = {"metrics": "*", "interval.ms": "1000"}
        changes = {key.replace("_", "."): value for key, value in settings.items()}
        await self.gateway.services.client_metrics.alter(
            name, usual | changes, replace=True, validate_only=False
        )

    def subscribe(
        self, instance_id: UUID, *, connection_id: int = 1, version: str = "1.0"
    ) -> tuple[ErrorCode, ClientInstance]:
        client = replace(CLIENT, software_version=version)
        return self.telemetry.subscribe(client, connection_id, instance_id)

    def subscribed(self, instance_id: UUID = ID, **where: Any) -> int:
        error, instance = self.subscribe(instance_id, **where)
        assert NONE == error
        return instance.requested.subscription_id

    async def push(
        self, subscription_id: int, data: bytes = DATA, *, codec: int = 0, last: bool = False,
        instance_id: UUID = ID,
    ) -> ErrorCode:  # fmt: skip
        return await self.telemetry.push(
            CLIENT,
            1,
            instance_id,
            subscription_id=subscription_id,
            is_terminating=last,
            codec=codec,
            data=data,
        )

    def seen(self, instance_id: UUID = ID) -> ClientSnapshot:
        seen = self.telemetry.client(instance_id)
        assert seen is not None
        return seen

    def pushed(self, instance_id: UUID = ID) -> bytes | None:
        push = self.seen(instance_id).push
        return None if push is None else push.data


@asynccontextmanager
async def bench(
    bytes_max: int = 1 << 20, *, threads: StoreThreads | None = None
) -> AsyncIterator[Bench]:
    config = GatewayConfig(telemetry_max_bytes=bytes_max)
    async with running_gateway(config, threads=threads) as gateway:
        yield Bench(gateway)


async def test_client_without_an_id_gets_an_unused_one() -> None:
    async with bench() as one:
        ids = [one.subscribe(ZERO_UUID)[1].id for _ in range(3)]
        assert 3 == len({*ids, ZERO_UUID}) - 1
        assert ids == [each.instance_id for each in one.telemetry.clients()]


@pytest.mark.parametrize("codec", Codec)
async def test_the_last_push_is_kept(codec: Codec) -> None:
    async with bench() as one:
        await one.wish()
        subscription_id = one.subscribed()
        assert None is one.pushed()
        assert NONE == await one.push(subscription_id, compress(codec, DATA), codec=codec)
        seen = one.seen()
        assert ("app", "lib", "1.0", "10.0.0.1", 4000) == (
            seen.client.client_id, seen.client.software_name, seen.client.software_version,
            seen.client.address, seen.client.port,
        )  # fmt: skip
        assert seen.push is not None
        assert (("all",), START_MS, False, DATA) == (
            seen.names, seen.push.pushed_at_ms, seen.push.is_last, seen.push.data,
        )  # fmt: skip
        newer = metrics_data(org_apache_kafka_x=2.5)
        one.clock.advance(1_000)
        assert NONE == await one.push(subscription_id, newer)
        assert newer == one.pushed()
        assert [ID] == [each.instance_id for each in one.telemetry.clients()]


async def test_a_refused_push_changes_nothing() -> None:
    async with bench() as one:
        await one.wish()
        subscription_id = one.subscribed()
        await one.push(subscription_id)
        assert ErrorCode.THROTTLING_QUOTA_EXCEEDED == await one.push(subscription_id, b"")
        one.clock.advance(1_000)
        assert ErrorCode.UNKNOWN_SUBSCRIPTION_ID == await one.push(subscription_id + 1)
        one.clock.advance(1_000)
        assert NONE == await one.push(subscription_id, b""), "nothing to say is no mistake"
        assert DATA == one.pushed()


@pytest.mark.parametrize("instance_id", [ZERO_UUID, UUID(int=1)])
async def test_reserved_ids_never_push(instance_id: UUID) -> None:
    async with bench() as one:
        assert ErrorCode.INVALID_REQUEST == await one.push(0, instance_id=instance_id)
        assert [] == one.telemetry.clients()


@pytest.mark.parametrize(("codec", "data"), [(0, b"garbage"), (4, b"no zstd"), (2, b"\xff")])
async def test_what_cannot_be_read_is_refused(
    codec: int, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench() as one:
        with caplog.at_level(logging.WARNING, logger=module.__name__):
            assert ErrorCode.INVALID_RECORD == await one.push(one.subscribed(), data, codec=codec)
        assert "metrics of 10.0.0.1" in caplog.text
        assert None is one.pushed()


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
async def test_a_push_may_hold_a_few_times_what_it_may_have(codec: Codec) -> None:
    async with bench(bytes_max=1_000) as one:
        subscription_id = one.subscribed()
        large = metrics_data(**{"x" * 2_000: 1.0})
        assert NONE == await one.push(subscription_id, compress(codec, large), codec=codec)
        bomb = compress(codec, metrics_data(**{"x" * (1_000 * PLAIN_BYTES_FACTOR): 1.0}))
        assert len(bomb) <= 1_000
        assert ErrorCode.TELEMETRY_TOO_LARGE == await one.push(
            subscription_id, bomb, codec=codec, last=True
        )
        assert large == one.pushed()


@pytest.mark.parametrize("codec", Codec)
async def test_large_pushes_are_read_off_the_loop_and_the_newest_stays(codec: Codec) -> None:
    """A push of 1 MiB may hold 4 MiB; the last word of a client may be read before it."""
    pool = HeldPool()
    async with bench(threads=StoreThreads(compute_pool=lambda: pool)) as one:
        await one.wish()
        subscription_id = one.subscribed()
        large = compress(codec, metrics_data(**{"x" * 100_000: 1.0}))
        first = asyncio.ensure_future(one.push(subscription_id, large, codec=codec))
        await until(lambda: pool.waiting_count > 0)
        assert NONE == await one.push(subscription_id, last=True)
        pool.release()
        assert NONE == await first
        assert DATA == one.pushed()
        assert threading.current_thread() not in pool.threads
        assert 1 == len(pool.threads)


async def test_push_is_asked_for_again_when_the_server_is_about_to_end() -> None:
    async with bench() as one:
        await one.wish()
        subscription_id = one.subscribed()
        one.gateway.services.store.compute_pool.close()
        data = compress(Codec.ZSTD, DATA)
        error = await one.push(subscription_id, data, codec=Codec.ZSTD)
        assert ErrorCode.THROTTLING_QUOTA_EXCEEDED == error


async def test_changed_subscriptions_are_returned_at_once() -> None:
    async with bench() as one:
        first = one.subscribed()
        assert () == one.seen().names
        await one.wish("some", metrics="a.,b.", match="client_software_version=1[.].*")
        second = one.subscribed()
        assert first != second
        assert ErrorCode.UNKNOWN_SUBSCRIPTION_ID == await one.push(first)
        assert ("some",) == one.seen().names
        await one.wish("some", match="client_software_version=2")
        one.subscribed()
        assert () == one.seen().names


async def test_pushes_stay_behind_a_connection_for_a_while() -> None:
    async with bench() as one:
        await one.wish()
        await one.push(one.subscribed(), last=True)
        one.subscribe(numbered(1), connection_id=2)
        one.telemetry.disconnected(1)
        one.telemetry.disconnected(2)
        assert [ID] == [each.instance_id for each in one.telemetry.clients()]
        assert None is one.telemetry.client(numbered(1))
        seen = one.seen()
        assert seen.push is not None
        assert (("all",), True, "app") == (seen.names, seen.push.is_last, seen.client.client_id)
        one.subscribed(version="2.0")
        assert "2.0" == one.seen().client.software_version, "it is there again"
        assert DATA == one.pushed()
        one.telemetry.disconnected(1)
        one.clock.advance(RETENTION_MS)
        assert [] == one.telemetry.clients()


async def test_silent_clients_are_swept_out_and_sweeping_ends() -> None:
    async with bench() as one:
        await one.wish()
        await one.push(one.subscribed())
        one.subscribe(numbered(1), connection_id=2)
        state, pushed = one.telemetry._state, one.telemetry._pushed
        one.clock.advance(SWEEP_MS)
        await until(lambda: not len(state))
        assert 1 == len(pushed)
        for _ in range(RETENTION_MS // SWEEP_MS):
            await until(lambda: len(one.gateway.services.timers) > 0)
            one.clock.advance(SWEEP_MS)
            await until(lambda: not one.telemetry._is_sweeping or len(pushed) > 0)
        await until(lambda: not len(pushed))
        await until(lambda: not one.telemetry._is_sweeping)
        one.subscribed()
        assert one.telemetry._is_sweeping
