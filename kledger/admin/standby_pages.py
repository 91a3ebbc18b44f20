"""The admin listener of a broker that waits until it owns its cluster.

    GET /health     200 "standby"; Kafka clients cannot connect yet
    GET /metrics    503: only an owner has metrics

Must not know: sessions.
"""

from aiohttp import web

from kledger.admin.listener import AdminListener


def standby_listener() -> AdminListener:
    """Return the listener of a standby."""
    app = web.Application()
    app.router.add_get("/health", _health)
    app.router.add_get("/metrics", _metrics)
    return AdminListener(app)


async def _health(_request: web.Request) -> web.Response:
    return web.Response(text="standby\n")


async def _metrics(_request: web.Request) -> web.Response:
    return web.Response(status=503, text="standby\n")
