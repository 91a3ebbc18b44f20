"""RpcConnection: a native client's connection to a server in another process.

Rule: calls are sent only after both sides have agreed on a version. While the connection is lost,
calls wait for it up to the operation timeout, and it is retried with growing delays as long as a
call waits. All addresses of the server are tried before a delay. A server that does not answer is
Unavailable, a server without a common version is NotAllowed. A refused first connection is given up
sooner than a silent one.
Must not know: the calls.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any

import grpc.aio

from kledger.native.backoff import Backoff
from kledger.native.client.operations import OPERATION_TIMEOUT_MS
from kledger.native.errors import AlreadyClosed, KledgerError, Unavailable
from kledger.native.proto import kledger_native_pb2 as pb
from kledger.native.rpc.client_credentials import ANONYMOUS_CREDENTIALS, ClientCredentials
from kledger.native.rpc.protocol import (
    CALLS,
    VERSION_KEY,
    VERSION_MAX,
    VERSION_MIN,
    Option,
    agree,
    connection_options,
    error_of_call,
    is_lost,
    serialized,
)
from kledger.runtime.clock import Clock
from kledger.runtime.entropy import Entropy
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers

logger = logging.getLogger(__name__)

HELLO_TIMEOUT_MS = 5_000
"""The time limit of one attempt to connect."""
REFUSED_WITHIN_MS = 1_000
"""An attempt that fails sooner was refused: most likely there is no server. A longer one has
reached a silent server, which may be starting or busy."""
RECONNECT_FIRST_MS = 100
RECONNECT_MAX_MS = 5_000
KEEPALIVE_MS = 5_000
"""As `native.keepalive_ms` of a server: after twice this time of silence the connection is lost."""


class RpcConnection:
    """A connection that is restored automatically."""

    def __init__(
        self,
        *addresses: str,
        clock: Clock,
        entropy: Entropy,
        supervisor: Supervisor,
        keepalive_ms: int = KEEPALIVE_MS,
        versions: tuple[int, int] = (VERSION_MIN, VERSION_MAX),
        operation_timeout_ms: int = OPERATION_TIMEOUT_MS,
        credentials: ClientCredentials = ANONYMOUS_CREDENTIALS,
    ) -> None:
        """Prepare; nothing is sent yet.

        Args:
            addresses: of the same server, tried one after the other.
            clock: for delays and time limits.
            entropy: for the random part of delays.
            supervisor: of its tasks.
            keepalive_ms: silence after which the server is pinged, and its time to answer.
            versions: the lowest and the highest protocol version of this client.
            operation_timeout_ms: the limit of a call, with its wait for the connection.
            credentials: of this client.

        Raises:
            InvalidArgument: a file of the credentials cannot be read.
        """
        self._credentials = credentials
        self.operation_timeout_ms = operation_timeout_ms
        self._addresses = deque(addresses)
        self._tried_addresses = 0
        self.clock = clock
        self.supervisor = supervisor
        self.timers = Timers(clock, supervisor)
        self._versions = versions
        self._backoff = Backoff(entropy, first_ms=RECONNECT_FIRST_MS, max_ms=RECONNECT_MAX_MS)
        self._options = _options(keepalive_ms)
        self._channel: Any = self._new_channel()
        self._is_closed = False
        self._waiters: dict[asyncio.Future[None], int | None] = {}  # -> when a refusal is final
        self._reconnect_task: asyncio.Task[None] | None = None
        self._failure: KledgerError | None = None
        self.version = 0
        """The agreed protocol version; 0 while the connection is lost."""
        self.message_bytes_max = 0
        """The largest message that the server accepts."""
        self.brokers: tuple[str, ...] = ()
        """Of the server's cluster, when they were asked for; see HelloResponse."""

    @property
    def address(self) -> str:
        """The address in use, or being tried."""
        return self._addresses[0]

    async def ready(self, timeout_ms: int | None = None, *, retry_ms: int | None = None) -> None:
        """Return when the connection is ready, at once if it is.

        Args:
            timeout_ms: the time limit; None: the operation timeout.
            retry_ms: how long a refused connection is retried; None: until the time limit.

        Raises:
            Unavailable: there was no connection in that time.
            NotAllowed: the server supports none of the client's versions.
            AlreadyClosed: the connection was closed.
        """
        if self._is_closed:
            raise self.closed()
        if self.version:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        until_ms = None if retry_ms is None else self.clock.monotonic_ms() + retry_ms
        self._waiters[waiter] = until_ms
        if self._reconnect_task is None:
            self._reconnect_task = self.supervisor.spawn(self._reconnect(), "native connection")
        limit_ms = self.operation_timeout_ms if timeout_ms is None else timeout_ms
        timer = self.timers.call_after(limit_ms, lambda: self._on_wait_timeout(waiter, limit_ms))
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiters.pop(waiter, None)

    async def call(self, name: str, request: Any) -> Any:
        """Make a call with one answer.

        Raises:
            KledgerError: the server's error, or Unavailable.
        """
        begun_ms = self.clock.monotonic_ms()
        await self.ready()
        waited_ms = self.clock.monotonic_ms() - begun_ms
        try:
            return await self._unary(name, request, max(1, self.operation_timeout_ms - waited_ms))
        except grpc.aio.AioRpcError as error:
            raise self.explain(error) from None
        except asyncio.CancelledError:
            if is_own_task_cancelled():
                raise
            raise self.closed() from None

    async def ask_brokers(self) -> tuple[str, ...]:
        """Return the brokers of the server's cluster, as they are now. Raises as `call`."""
        self.brokers = tuple((await self.call("Hello", self._hello_request())).brokers)
        return self.brokers

    def stream(self, name: str) -> Any:
        """Begin a stream on a connection that is ready."""
        call = CALLS[name]
        return self._channel.stream_stream(
            call.path,
            request_serializer=serialized,
            response_deserializer=call.response.FromString,
        )(metadata=self._metadata())

    def explain(self, error: grpc.aio.AioRpcError) -> KledgerError:
        """Return the error of a failed call; mark the connection as lost if it is."""
        if is_lost(error):
            self.version = 0
        return error_of_call(error, self.address)

    def closed(self) -> AlreadyClosed:
        """Return the error of calls on a closed connection."""
        return AlreadyClosed(f"the connection to {self.address} is closed")

    async def close(self) -> None:
        """Close; waiting calls fail. May be repeated."""
        self._is_closed = True
        self.version = 0
        self._finish_waiters(self.closed())
        await self._channel.close()

    async def _reconnect(self) -> None:
        is_silent = False
        try:
            while self._waiters:
                begun_ms = self.clock.monotonic_ms()
                failure = await self._hello()
                if not isinstance(failure, Unavailable):
                    self._finish_waiters(failure)
                    return
                self._failure = failure
                now_ms = self.clock.monotonic_ms()
                # gRPC repeats the error of a long attempt at once during its own backoff.
                is_silent = is_silent or now_ms - begun_ms >= REFUSED_WITHIN_MS
                if await self._next_address():
                    continue
                pause_ms = self._backoff.next_ms()
                if not is_silent:
                    self._fail_expired_waiters(failure, now_ms + pause_ms)
                if self._waiters:
                    await self.clock.sleep(pause_ms)
        finally:
            self._reconnect_task = None

    async def _next_address(self) -> bool:
        """Switch to the next address; return whether it was not tried yet in this round."""
        if len(self._addresses) == 1 or self._is_closed:
            return False  # gRPC reconnects to the only one itself.
        self._tried_addresses = (self._tried_addresses + 1) % len(self._addresses)
        self._addresses.rotate(-1)
        channel, self._channel = self._channel, self._new_channel()
        await channel.close()
        return self._tried_addresses > 0

    def _new_channel(self) -> Any:
        return self._credentials.channel(self.address, self._options)

    async def _hello(self) -> KledgerError | None:
        """Try to agree on a version; return the error, or None."""
        try:
            answer = await self._unary("Hello", self._hello_request(), HELLO_TIMEOUT_MS)
            server = (answer.version_min, answer.version_max)
            self.version = agree(client=self._versions, server=server)
        except grpc.aio.AioRpcError as error:
            return error_of_call(error, self.address)
        except KledgerError as error:
            return error
        self.message_bytes_max = answer.message_bytes_max
        self.brokers = tuple(answer.brokers)
        self._backoff.reset()
        self._tried_addresses = 0
        return None

    def _hello_request(self) -> pb.HelloRequest:
        lowest, highest = self._versions
        return pb.HelloRequest(version_min=lowest, version_max=highest, client="kledger")

    async def _unary(self, name: str, request: Any, timeout_ms: int) -> Any:
        call = CALLS[name]
        return await self._channel.unary_unary(
            call.path,
            request_serializer=call.request.SerializeToString,
            response_deserializer=call.response.FromString,
        )(request, timeout=timeout_ms / 1000, metadata=self._metadata())

    def _metadata(self) -> Sequence[tuple[str, str]]:
        return ((VERSION_KEY, str(self.version)), *self._credentials.metadata())

    def _finish_waiters(self, failure: KledgerError | None) -> None:
        """End every wait, with a failure or without."""
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if waiter.done():
                continue
            if failure is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(type(failure)(*failure.args))

    def _fail_expired_waiters(self, failure: KledgerError, next_try_ms: int) -> None:
        """Fail the waiters whose time for refusals ends before the next attempt."""
        for waiter, until_ms in list(self._waiters.items()):
            if until_ms is not None and until_ms < next_try_ms:
                del self._waiters[waiter]
                if not waiter.done():
                    waiter.set_exception(type(failure)(*failure.args))

    def _on_wait_timeout(self, waiter: asyncio.Future[None], timeout_ms: int) -> None:
        if not waiter.done():
            why = self._failure or f"{self.address} does not answer"
            waiter.set_exception(Unavailable(f"no connection within {timeout_ms} ms: {why}"))


def is_own_task_cancelled() -> bool:
    """Return whether the current task was cancelled, and not only the call that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _options(keepalive_ms: int) -> Sequence[Option]:
    return (
        *connection_options(keepalive_ms),
        ("grpc.max_receive_message_length", -1),
        # `Backoff` delays the attempts; gRPC's own delays stay short.
        ("grpc.initial_reconnect_backoff_ms", RECONNECT_FIRST_MS),
        ("grpc.max_reconnect_backoff_ms", RECONNECT_FIRST_MS),
        ("grpc.min_reconnect_backoff_ms", HELLO_TIMEOUT_MS),
        ("grpc.dns_min_time_between_resolutions_ms", RECONNECT_FIRST_MS),
        # A proxy for web pages does not carry this protocol.
        ("grpc.enable_http_proxy", 0),
        # Clients of one process do not share a lost connection.
        ("grpc.use_local_subchannel_pool", 1),
    )
