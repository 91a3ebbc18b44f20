"""A native client with the whole server in its own process.

Rule: it is the server of `kledger serve`, started on entering and stopped on leaving, after the
client's producers and consumers are closed. A crash of the server fails all of these, and is raised
on leaving.
Must not know: how a server is built.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import kledger.settings
import kledger.wiring
from kledger.ledger import StorageEngine
from kledger.native.broker import Broker
from kledger.native.client.client import Client
from kledger.native.client.operations import OPERATION_TIMEOUT_MS
from kledger.runtime.clock import Clock


class EmbeddedClient(Client):
    """The client of `kledger.embedded`."""

    def __init__(
        self,
        path: Path | str | None,
        *,
        kafka: str | None = None,
        settings: Mapping[str, object] | None = None,
        operation_timeout_ms: int = OPERATION_TIMEOUT_MS,
        engine: StorageEngine | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Prepare; `kledger.embedded` documents the arguments."""
        self._embedded = _EmbeddedServer(
            path, kafka, settings or {}, on_crash=self._on_crash, engine=engine, clock=clock
        )
        super().__init__(self._embedded, clock=clock, operation_timeout_ms=operation_timeout_ms)

    @property
    def kafka_address(self) -> str:
        """HOST:PORT of the Kafka listener; empty when there is none, or it is not open."""
        return self._embedded.kafka_address


class _EmbeddedServer:
    """The server as a context manager, which the client enters and leaves."""

    def __init__(
        self,
        path: Path | str | None,
        kafka: str | None,
        settings: Mapping[str, object],
        *,
        on_crash: Callable[[BaseException], None],
        engine: StorageEngine | None,
        clock: Clock | None,
    ) -> None:
        flags: dict[str, object] = {**settings, "server.memory": path is None}
        if path is not None:
            flags["server.data"] = str(path)
        if kafka is not None:
            flags["server.kafka"] = kafka
        loaded = kledger.settings.load(flags=flags)
        if kafka is None:
            loaded = replace(loaded, server=replace(loaded.server, kafka=None))
        self._server = kledger.wiring.BrokerServer(
            loaded, on_crash=on_crash, engine=engine, clock=clock
        )

    @property
    def kafka_address(self) -> str:
        return self._server.kafka_address

    async def __aenter__(self) -> Broker:
        await self._server.start()
        return self._server.broker

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._server.stop()
