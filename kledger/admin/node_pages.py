"""The admin listener of a server in a cluster of nodes; each of its nodes has another one.

    GET /health     200 "standby", or 200 "serving" and a line with the nodes that it serves
    GET /metrics    503: only nodes have metrics; node K has them at this port + K

Must not know: sessions, how nodes are served.
"""

from collections.abc import Collection
from functools import partial

from aiohttp import web

from kledger.admin.listener import AdminListener


def nodes_listener(nodes: Collection[int]) -> AdminListener:
    """Return the listener of a server.

    Args:
        nodes: those that it serves, at any time.
    """
    app = web.Application()
    app.router.add_get("/health", partial(_health, nodes))
    app.router.add_get("/metrics", _metrics)
    return AdminListener(app)


async def _health(nodes: Collection[int], _request: web.Request) -> web.Response:
    if not nodes:
        return web.Response(text="standby\n")
    return web.Response(text=f"serving\nnodes: {', '.join(map(str, sorted(nodes)))}\n")


async def _metrics(_request: web.Request) -> web.Response:
    text = "each node has its own metrics, at this port + its number\n"
    return web.Response(status=503, text=text)
