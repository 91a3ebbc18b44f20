"""A proxy in front of a server that can hold back its answers; requests arrive."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

CHUNK_BYTES = 64 << 10


class MutedProxy:
    """Forwards connections to a port of this machine."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_muted = False
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection until either end closes."""
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, back}
        forward = asyncio.ensure_future(self._pump(reader, back, is_answer=False))
        answer = asyncio.ensure_future(self._pump(there, writer, is_answer=True))
        self._tasks |= {forward, answer}
        await asyncio.wait([forward, answer], return_when=asyncio.FIRST_COMPLETED)
        for each in (writer, back):
            self._writers.discard(each)
            each.close()

    def cut(self) -> None:
        """End every connection."""
        for each in self._writers:
            each.close()

    async def close(self) -> None:
        self.cut()
        for each in self._tasks:
            each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        try:
            while data := await reader.read(CHUNK_BYTES):
                if not (is_answer and self.is_muted):
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass


@asynccontextmanager
async def muted_proxy(target_port: int) -> AsyncIterator[MutedProxy]:
    """Run one."""
    proxy = MutedProxy(target_port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
