"""A TCP load balancer: one address for clients, whichever broker owns the cluster.

Rule: a connection goes to the first broker that accepts it, as only the owner does; when the broker
ends it, the client sees the end at once, and connects again.
Must not know: protocols, and which broker is the owner.
"""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

PIECE_BYTES: Final = 1 << 18
"""What is copied at a time; so much of a connection is in memory, and what asyncio holds."""

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Balancer:
    """One listener, in a thread of its own; a context manager."""

    def __init__(self, host: str, ports: Sequence[int]) -> None:
        """Prepare; `ports` are those of the brokers, in the order in which they are tried."""
        self._host = host
        self._ports = ports
        self._loop = asyncio.new_event_loop()
        self._connections: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="balancer")
        self.address = ""
        """HOST:PORT for clients, once it is started."""

    def __enter__(self) -> Self:
        """Listen on a free port."""
        self._thread.start()
        listening = asyncio.start_server(self._connected, self._host, 0)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result()
        self.address = f"{self._host}:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End every connection."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        for each in self._connections:
            each.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection is served by a task"
        self._connections.add(task)
        try:
            broker = await self._broker()
            if broker is not None:
                await _join((reader, writer), broker)
        finally:
            writer.transport.abort()
            self._connections.discard(task)

    async def _broker(self) -> Stream | None:
        """Connect to the first broker that accepts; None: no broker owns the cluster now."""
        for port in self._ports:
            with suppress(OSError):
                return await asyncio.open_connection(self._host, port)
        return None


async def _join(client: Stream, broker: Stream) -> None:
    """Copy in both directions until one of them ends; then both are ended."""
    copying = [
        asyncio.ensure_future(_copy(client[0], broker[1])),
        asyncio.ensure_future(_copy(broker[0], client[1])),
    ]
    try:
        await asyncio.wait(copying, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in copying:
            each.cancel()
        broker[1].transport.abort()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await source.read(PIECE_BYTES):
            sink.write(piece)
            await sink.drain()
