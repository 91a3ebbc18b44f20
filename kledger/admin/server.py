"""AdminServer: the admin listener's HTTP.

    GET /health     200 "serving"; 503 "stopping" while requests of clients are still answered;
                    200 "serving, degraded", and a line for each kind of storage error
    GET /metrics    the metrics, for Prometheus; OpenMetrics if the client accepts it; 401 without a
                    login, 403 without Describe on the cluster

`/health` needs no login; only clients that may see `/metrics` get the lines about errors.

Rule: a page is made in one tick of the event loop, so its numbers are of one moment.
Must not know: the meaning of metrics, the reasons of a stop.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from aiohttp import web

from kledger.admin.access import AdminAccess, Admission
from kledger.admin.exposition import Exposition
from kledger.admin.listener import AdminListener
from kledger.ledger import StorageFault, StorageHealth
from kledger.runtime.metrics import Metrics


class AdminServer(AdminListener):
    """The listener of a server that serves clients."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        is_serving: Callable[[], bool],
        health: StorageHealth,
        access: AdminAccess | None = None,
    ) -> None:
        """Prepare; `start` opens the listener.

        Args:
            metrics: of the server.
            is_serving: whether the server accepts requests of clients.
            health: the storage errors of the store.
            access: decides which clients see the pages; None: all do.
        """
        self._access = access
        self._exposition = Exposition(metrics)
        self._is_serving = is_serving
        self._storage = health
        app = web.Application()
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        super().__init__(app)

    async def _admit(self, request: web.Request, *, is_audited: bool = True) -> Admission:
        if self._access is None:
            return Admission.ALLOWED
        return await self._access.admit(
            request.headers.get("Authorization"), request.remote or "", is_audited=is_audited
        )

    async def _health(self, request: web.Request) -> web.Response:
        if not self._is_serving():
            return web.Response(status=503, text="stopping\n")
        faults = self._storage.faults()
        if not faults:
            return web.Response(text="serving\n")
        # A load balancer reads the status: a degraded server still serves, and no other one can.
        admission = await self._admit(request, is_audited=False)
        lines = map(_line, faults) if admission is Admission.ALLOWED else ()
        return web.Response(text="\n".join(["serving, degraded", *lines, ""]))

    async def _metrics(self, request: web.Request) -> web.Response:
        admission = await self._admit(request)
        if admission is not Admission.ALLOWED:
            return _refusal(admission)
        page, content_type = self._exposition.page(request.headers.get("Accept", ""))
        return web.Response(body=page, headers={"Content-Type": content_type})


def _refusal(admission: Admission) -> web.Response:
    headers = {}
    if admission is Admission.UNKNOWN_CLIENT:
        headers["WWW-Authenticate"] = 'Basic realm="kledger", charset="UTF-8"'
    return web.Response(status=admission.value, headers=headers)


def _line(fault: StorageFault) -> str:
    first, last = (
        datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
        for ms in (fault.first_ms, fault.last_ms)
    )
    return f"{fault.kind}: {fault.count} times from {first} to {last}, last: {fault.what}"
