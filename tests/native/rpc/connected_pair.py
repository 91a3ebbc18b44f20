"""A client and a server of the remote transport on a real socket, around a recording broker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kledger.native.broker import Broker
from kledger.native.config import NativeConfig
from kledger.native.rpc.client import RpcClient
from kledger.native.rpc.server import RpcServer
from kledger.runtime.clock import SystemClock
from kledger.runtime.tasks import Supervisor
from tests.native.recording_broker import RecordingBroker

TEST_SECONDS = 120
"""The time limit of a test that hangs; a passing test never comes near it."""
GRACE_MS = 60_000
MESSAGE_BYTES_MAX = 4 << 20


@dataclass
class Pair:
    broker: RecordingBroker
    server: RpcServer
    client: RpcClient
    address: str
    port: int


class PatientClock(SystemClock):
    """Sleeps end, but no deadline ever expires, however slow the machine is."""

    def monotonic_ms(self) -> int:
        return 0


def no_crash(error: BaseException) -> None:
    raise AssertionError(f"crashed: {error!r}")


@asynccontextmanager
async def serving(
    broker: Broker | None = None,
    *,
    port: int = 0,
    config: NativeConfig | None = None,
    versions: tuple[int, int] = (1, 1),
) -> AsyncIterator[tuple[RpcServer, int]]:
    """Run a server."""
    supervisor = Supervisor(no_crash)
    server = RpcServer(
        broker or RecordingBroker(),
        supervisor=supervisor,
        message_bytes_max=MESSAGE_BYTES_MAX,
        config=config,
        versions=versions,
    )
    _, bound_port = await server.start("127.0.0.1", port)
    try:
        yield server, bound_port
    finally:
        await server.stop(grace_ms=GRACE_MS)
        assert 0 == supervisor.task_count
        await supervisor.close()


@asynccontextmanager
async def pair(config: NativeConfig | None = None) -> AsyncIterator[Pair]:
    """Run a server and a client that is connected to it."""
    broker = RecordingBroker()
    async with asyncio.timeout(TEST_SECONDS), serving(broker, config=config) as (server, port):
        client = RpcClient(f"127.0.0.1:{port}", clock=PatientClock())
        await client.connect()
        try:
            yield Pair(broker, server, client, f"127.0.0.1:{port}", port)
        finally:
            await client.close()
