"""AdminListener: the HTTP listener of administrators, whatever its pages are.

Rule: connections are limited.
Must not know: pages.
"""

import asyncio
from typing import Final

from aiohttp import web

CONNECTIONS_MAX: Final = 100
"""Connections at a time; further ones are closed at once."""
KEEP_ALIVE_S: Final = 75.0
"""How long a connection may be idle between two requests."""


class AdminListener:
    """One listener; `start` opens it."""

    def __init__(self, app: web.Application) -> None:
        """Args: app: the pages."""
        self._runner = web.AppRunner(app, access_log=None, keepalive_timeout=KEEP_ALIVE_S)
        self._listener: asyncio.Server | None = None

    async def start(self, host: str, port: int, *, is_reserved: bool = False) -> tuple[str, int]:
        """Accept connections; return the address.

        Args:
            host: where to listen.
            port: 0: any free one.
            is_reserved: the parent of workers keeps the port bound.

        Raises:
            OSError: the address is in use or not ours.
        """
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._accept, host, port, reuse_port=is_reserved)
        host, port, *_ = self._listener.sockets[0].getsockname()
        return host, port

    async def stop(self) -> None:
        """Close the listener and its connections. May be repeated."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        await self._runner.cleanup()

    def _accept(self) -> asyncio.BaseProtocol:
        server = self._runner.server
        assert server is not None, "accepting before the start"
        return server() if len(server.connections) < CONNECTIONS_MAX else _RejectedConnection()


class _RejectedConnection(asyncio.Protocol):
    """A connection beyond CONNECTIONS_MAX."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it."""
        transport.close()
