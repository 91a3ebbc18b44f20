"""A proxy before an S3 server that injects faults into requests and responses.

Rule: a fault applies to the next request of its method, once or until `heal`; everything else
passes unchanged, headers that are signed too.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from aiohttp import ClientSession, web
from yarl import URL

CHUNK = 1 << 16


@dataclass
class Answer:
    """What the server answered: status, headers and body; a fault changes it."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass
class Fault:
    """What happens to requests of a method.

    Attributes:
        method: of the requests, for example GET.
        change: makes the answer from that of the server; None if the server never sees the request.
        answer: instead of the server's.
        is_cut: the connection is closed, before the answer or, with `change`, within its body.
        is_slow: the body of the answer stops in its middle, until the client goes away.
        is_silent: the server gets the request, and nothing is answered until the client goes away.
        times: how many requests; -1: all until `heal`.
    """

    method: str
    change: Callable[[Answer], Answer] | None = None
    answer: Answer | None = None
    is_cut: bool = False
    is_slow: bool = False
    is_silent: bool = False
    times: int = 1


def error(status: int, code: str, **headers: str) -> Answer:
    """An error as S3 servers send it."""
    body = f"<Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, {"Content-Type": "application/xml", **names}, body)


class S3Proxy:
    """The proxy.

    Attributes:
        answered: how many requests of each method the server has answered.
        injected: how often a fault was applied.
    """

    def __init__(self, server_address: str) -> None:
        self._server = f"http://{server_address}"
        self.answered: Counter[str] = Counter()
        self.injected = 0
        self._faults: list[Fault] = []
        self._session: ClientSession
        self._runner: web.ServerRunner
        self._closing = asyncio.Event()
        self.address = ""

    def inject(self, fault: Fault) -> None:
        """Arm a fault."""
        self._faults.append(fault)

    def heal(self) -> None:
        """Disarm all faults."""
        self._faults.clear()

    async def __aenter__(self) -> Self:
        self._session = ClientSession(auto_decompress=False)
        self._runner = web.ServerRunner(web.Server(self._serve), shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._closing.set()
        await self._runner.cleanup()
        await self._session.close()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.content.read()
        fault = self._fault_for(request.method)
        if fault is not None:
            self.injected += 1
        if fault is not None and fault.is_silent:
            await self._forward(request, body)
            await self._closing.wait()  # cancelled when the client goes away
            _cut(request)
        if fault is not None and fault.change is None and not fault.is_slow:
            if fault.is_cut:
                _cut(request)
            return _whole(fault.answer or error(500, "InternalError"))
        answer = await self._forward(request, body)
        if fault is None:
            return _whole(answer)
        if fault.change is not None:
            answer = fault.change(answer)
        if not (fault.is_cut or fault.is_slow):
            return _whole(answer)
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        response.content_length = len(answer.body)
        await response.prepare(request)
        await response.write(answer.body[: len(answer.body) // 2])
        if fault.is_slow:
            await self._closing.wait()  # cancelled when the client goes away
        _cut(request)
        return response

    def _fault_for(self, method: str) -> Fault | None:
        for fault in self._faults:
            if fault.method == method and fault.times:
                fault.times -= 1
                return fault
        return None

    async def _forward(self, request: web.BaseRequest, body: bytes) -> Answer:
        url = URL(self._server + request.raw_path, encoded=True)
        headers = {name: value for name, value in request.headers.items() if name != "Connection"}
        async with self._session.request(
            request.method,
            url,
            headers=headers,
            data=body if body or "Content-Length" in headers else None,
            skip_auto_headers=("Accept-Encoding", "Accept", "User-Agent", "Content-Type"),
        ) as response:
            kept = {
                name: value
                for name, value in response.headers.items()
                if name not in {"Connection", "Transfer-Encoding", "Date", "Server", "Keep-Alive"}
            }
            content = await response.read()
        self.answered[request.method] += 1
        return Answer(response.status, kept, content)


def _whole(answer: Answer) -> web.Response:
    headers = {name: value for name, value in answer.headers.items() if name != "Content-Length"}
    if not answer.body and "Content-Length" in answer.headers:  # of a HEAD
        headers["Content-Length"] = answer.headers["Content-Length"]
    return web.Response(status=answer.status, headers=headers, body=answer.body)


def _cut(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()
