"""PeerLink: a kept connection to another broker, for one kind of request.

Rule: one request at a time. If the connection has ended, the next request opens a new one; if the
peer is unavailable, the request fails at once.
Must not know: what a request means, when it is retried.
"""

import asyncio
from collections.abc import Awaitable, Callable
from struct import Struct
from typing import Final, Generic, TypeAlias, TypeVar, cast

from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.errors import MalformedMessage
from kledger.gateway.wire.framing import FrameSplitter, make_scratch
from kledger.gateway.wire.header import encode_request_header, response_body_start
from kledger.gateway.wire.schema import ApiMessage
from kledger.runtime.timers import TimerHandle, Timers

RESPONSE_BYTES_MAX: Final = 64 << 20
_SCRATCH_BYTES: Final = 16 << 10
_CLIENT_ID: Final = "kledger-peer"
_NUMBER: Final = Struct(">i")

ResponseT = TypeVar("ResponseT", bound=ApiMessage)
Connect: TypeAlias = Callable[["PeerConnection"], Awaitable[object]]
"""Connects a protocol to a peer. Raises OSError: it is away."""


class PeerUnavailable(Exception):
    """A peer does not answer, and it is not known what it has done with a request."""


class PeerLink(Generic[ResponseT]):
    """Asks one peer one kind of request."""

    def __init__(
        self,
        connect: Connect,
        timers: Timers,
        response_class: type[ResponseT],
        version: int,
        *,
        timeout_ms: int | None,
    ) -> None:
        """Prepare; the first request connects.

        Args:
            connect: to the peer.
            timers: of this broker.
            response_class: of the kind of request.
            version: of the requests.
            timeout_ms: after which a request that is not answered ends its connection; None: it
                lasts as long as the connection.
        """
        self._connect = connect
        self._timers = timers
        self._response_class = response_class
        self._version = version
        self._timeout_ms = timeout_ms
        self._connection: PeerConnection | None = None

    async def ask(self, request: ApiMessage) -> ResponseT:
        """Send a request, and return its response.

        Raises:
            PeerUnavailable: there is none.
        """
        deadline: TimerHandle | None = None
        if self._timeout_ms is not None:
            deadline = self._timers.call_after(self._timeout_ms, self.abort)
        try:
            connection = await self._connected()
            frame = await connection.ask(type(request).__api__.key, self._version, request)
            return decode(self._response_class, self._version, *frame)
        except (OSError, MalformedMessage) as error:
            self.abort()
            raise PeerUnavailable(str(error)) from error
        finally:
            if deadline is not None:
                deadline.cancel()

    async def _connected(self) -> "PeerConnection":
        connection = self._connection
        if connection is None or connection.is_closed:
            connection = self._connection = PeerConnection()
            await self._connect(connection)
        return connection

    def abort(self) -> None:
        """End the connection; the request under way fails."""
        if self._connection is not None:
            self._connection.abort()


class PeerConnection(asyncio.Protocol):
    """One connection to a peer."""

    def __init__(self) -> None:
        self.is_closed = False
        self._transport: asyncio.Transport | None = None
        self._splitter = FrameSplitter(make_scratch(_SCRATCH_BYTES), RESPONSE_BYTES_MAX)
        self._correlation_id = 0
        self._answer: asyncio.Future[memoryview] | None = None

    async def ask(self, key: int, version: int, request: ApiMessage) -> tuple[memoryview, int]:
        """Send a request; return the frame of its response, and where its body begins.

        Raises:
            ConnectionError, MalformedMessage: there is none.
        """
        assert self._answer is None, "a request is under way"
        if self._transport is None or self.is_closed:
            raise ConnectionAbortedError("the connection has ended")
        self._correlation_id += 1
        header = encode_request_header(key, version, self._correlation_id, _CLIENT_ID)
        body = encode(request, version)
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(_NUMBER.pack(len(header) + len(body)) + header + body)
        try:
            frame = await self._answer
        finally:
            self._answer = None
        return frame, response_body_start(frame, key, version)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; a connection that was given up meanwhile ends."""
        self._transport = cast(asyncio.Transport, transport)
        if self.is_closed:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take bytes; what answers no request ends the connection."""
        for frame, _ in self._splitter.feed(data):
            is_answer = len(frame) >= _NUMBER.size and (
                _NUMBER.unpack_from(frame) == (self._correlation_id,)
            )
            if self._answer is None or self._answer.done() or not is_answer:
                self.abort()
                return
            self._answer.set_result(frame)
        if self._splitter.fault is not None:
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the request under way."""
        self._end()

    def eof_received(self) -> bool:
        """Close: the peer has ended."""
        return False

    def abort(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.abort()
        self._end()

    def _end(self) -> None:
        self.is_closed = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionAbortedError("the connection has ended"))
