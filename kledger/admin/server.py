"""AdminServer: the admin listener's HTTP.

    GET /health     200 "serving"; 503 "stopping" while requests of clients are still answered
    GET /metrics    the metrics, for Prometheus; OpenMetrics for who accepts it

Rule: a page is made in one go on the event loop, so its numbers belong together.
Must not know: how metrics come about, what makes a server stop.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from aiohttp import web

from kledger.admin.exposition import Exposition
from runtime.metrics import Metrics

CONNECTIONS_MAX: Final = 100
"""Connections at a time; one more is closed at once."""
KEEP_ALIVE_S: Final = 75.0
"""How long a connection may rest between two requests."""


class AdminServer:
    """One listener."""

    def __init__(self, metrics: Metrics, *, is_serving: Callable[[], bool]) -> None:
        """Args: is_serving: whether requests of clients are accepted."""
        self._exposition = Exposition(metrics)
        self._is_serving = is_serving
        app = web.Application()
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None, keepalive_timeout=KEEP_ALIVE_S)
        self._listener: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Accept connections; return the address.

        Raises:
            OSError: it cannot be had.
        """
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._accept, host, port)
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
        return server() if len(server.connections) < CONNECTIONS_MAX else _Refused()

    async def _health(self, _: web.Request) -> web.Response:
        if self._is_serving():
            return web.Response(text="serving\n")
        return web.Response(status=503, text="stopping\n")

    async def _metrics(self, request: web.Request) -> web.Response:
        page, content_type = self._exposition.page(request.headers.get("Accept", ""))
        return web.Response(body=page, headers={"Content-Type": content_type})


class _Refused(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it."""
        transport.close()
