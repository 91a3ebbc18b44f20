"""Connection: one client's socket.

Rule: bytes become requests here, and the responses that are ready leave in one write.
`connection_state` decides their order, the router finds their handlers. Whatever a client sends
can harm only its own connection.
Must not know: APIs, except that Produce pipelines and that ApiVersions is never refused.
"""

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, cast

from kledger.gateway.net.connection_state import (
    HOLD_BLOCKED,
    HOLD_NOT_ADMITTED,
    HOLD_SATURATED,
    HOLD_SLOW_READER,
    HOLD_STOPPING,
    HOLD_THROTTLED,
    Buffer,
    ConnectionState,
    ResponseSlot,
)
from kledger.gateway.net.listener import ListenerState
from kledger.gateway.net.ports import ResponseFrame, ResponsePort
from kledger.gateway.net.request_meter import RequestMeter
from kledger.gateway.net.router import Route, encode_response
from kledger.gateway.net.unsent_bytes import MEASURE_BYTES, ConnectionSpace
from kledger.gateway.peer import Peer
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.errors import MalformedMessage
from kledger.gateway.wire.framing import FrameSplitter
from kledger.gateway.wire.header import (
    PRODUCE_KEY,
    REQUEST_HEAD,
    RequestHeader,
    decode_request_header,
)
from kledger.runtime.deferred import Deferred
from kledger.runtime.metrics import Counter
from kledger.security.principal import BROKER

if TYPE_CHECKING:
    from kledger.gateway.listeners.endpoint import Endpoint
    from kledger.gateway.net.login import Login
    from kledger.runtime.timers import TimerHandle

logger = logging.getLogger(__name__)

HEAD_BYTES = REQUEST_HEAD.size
STALLED_TICKS = 2
"""Idle ticks after which an incomplete frame counts as stalled."""
JOINED_BYTES_MAX = 4 * 1024
"""Buffers of at most this average size are joined, which is cheaper than `writelines`."""


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one socket."""

    __slots__ = (
        "_active_idle_tick",
        "_begun_ms",
        "_current_bytes",
        "_is_flush_scheduled",
        "_is_starting_waiting",
        "_listener",
        "_measure_at",
        "_output_bytes",
        "_pending_bytes",
        "_produced_since_check",
        "_request_ms",
        "_splitter",
        "_throttling",
        "_transport",
        "_written_bytes",
        "connection_id",
        "endpoint",
        "fetch_space",
        "is_closed",
        "login",
        "meter",
        "peer",
        "read_flow",
        "retained_slot",
        "state",
        "throttle_time_ms",
    )

    def __init__(self, listener: ListenerState) -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self.state = ConnectionState(listener.budget)
        self.connection_id = listener.new_connection_id()
        self.peer = Peer("?")
        self.is_closed = False
        self.retained_slot: ResponseSlot | None = None
        self.throttle_time_ms = 0
        self.meter = RequestMeter(listener.services.quotas, listener.services.clock)
        self.fetch_space = ConnectionSpace(listener.unsent, self)
        self._throttling: TimerHandle | None = None
        self._active_idle_tick = listener.idle_tick
        self._splitter = FrameSplitter(listener.scratch, listener.config.socket_request_max_bytes)
        self._pending_bytes = 0
        self._current_bytes = 0
        self._begun_ms = 0
        self._request_ms = Counter()
        self._output_bytes = 0
        self._written_bytes = 0
        self._measure_at = MEASURE_BYTES
        self._produced_since_check = False
        self._is_flush_scheduled = False
        self._is_starting_waiting = False
        self.read_flow = ReadFlow()
        self.endpoint: Endpoint | None = None
        self.login: Login | None = None
        """Of a client that must log in; while it has not, frames are small."""

    def enter(self, endpoint: "Endpoint") -> None:
        """Take the listener that the connection came in on, before the connection is made."""
        self.endpoint = endpoint
        if endpoint.mechanisms or endpoint.tls is not None:
            # A server without logins does not load them.
            from kledger.gateway.net.authentication_state import FRAME_BYTES_MAX
            from kledger.gateway.net.login import Login

            self.login = Login(self, endpoint, self._listener.logins)
            self._splitter.frame_bytes_max = FRAME_BYTES_MAX

    # The life of the socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for admission; no request is started before `begin`."""
        listener = self._listener
        self._transport = cast(asyncio.Transport, transport)
        self.read_flow.begin(self._transport)
        peer = transport.get_extra_info("peername")
        if peer and self.peer.principal is not BROKER:
            self.peer = Peer(str(peer[0]), peer[1])
        if self.endpoint is not None:
            self.peer.listener = self.endpoint.advertised
        self._transport.set_write_buffer_limits(high=listener.config.send_buffer_max_bytes)
        if listener.is_stopping:
            self.abort()
            return
        # Reading cannot be paused here: uvloop begins to read when this has returned.
        self.state.holds |= HOLD_NOT_ADMITTED
        if self.peer.principal is BROKER:
            listener.connection_quotas.admit_broker(self)
        else:
            listener.connection_quotas.connection_opened(self, transport.get_extra_info("socket"))

    def begin(self) -> None:
        """Serve requests from now on."""
        self._active_idle_tick = self._listener.idle_tick
        if self.login is not None:
            self.login.begin()
        self.release(HOLD_NOT_ADMITTED)

    def connection_lost(self, error: Exception | None) -> None:
        """Abandon the open slots, and cancel timers."""
        self.is_closed = True
        if self.login is not None:
            self.login.close()
        self._count_pending(0)
        self._listener.unsent.forget(self)
        if self._throttling is not None:
            self._throttling.cancel()
        retained_slot, self.retained_slot = self.retained_slot, None
        for slot in (*self.state.clear(), *((retained_slot,) if retained_slot is not None else ())):
            self._listener.containment.run(self, slot.abandon)
        self._listener.forget(self)

    def eof_received(self) -> bool:
        """Answer the requests that were read, then close; True keeps the socket open until then."""
        self.read_flow.is_eof = True
        self._count_pending(0)
        self._close_if_finished()
        return True

    def fail(self, reason: str) -> None:
        """Close because of the client, and log why; nothing if it is closed."""
        if self.is_closed:
            return
        self._listener.malformed.value += 1
        self._listener.warnings.warning("closing connection of %s: %s", self.peer_host, reason)
        self.abort()

    def abort(self) -> None:
        """Close without writing what is unsent."""
        self.is_closed = True
        self.state.holds |= HOLD_STOPPING
        if self._transport is not None:
            self._transport.abort()

    def contain(self, error: Exception) -> None:
        """Close because a message is malformed, or because of a fault of this server."""
        if isinstance(error, MalformedMessage):
            self.fail(str(error))
        else:
            self._listener.containment.failed(self, error)

    # TLS and logins.

    def tls_established(self, certificate: bytes | None) -> None:
        """Take the client's certificate in DER, which is verified; None: it has none."""
        if self.login is not None:
            self.login.encrypted(certificate)

    def tls_failed(self, reason: str) -> None:
        """Close because of what came in place of TLS, and log why."""
        if self.login is not None:
            self.login.refuse_handshake(reason)
        else:
            self.fail(f"TLS: {reason}")

    def login_ended(self) -> None:
        """Permit requests of every size: the client has logged in."""
        self._splitter.frame_bytes_max = self._listener.config.socket_request_max_bytes
        if self.endpoint is not None and not self.endpoint.mechanisms:
            self.login = None

    def close_after_fault(self, error: Exception) -> None:
        """Close."""
        self.abort()

    def stop(self) -> None:
        """Start no further request, answer parked ones now, and close when all are answered."""
        self.state.holds |= HOLD_STOPPING
        self.state.drop_waiting()
        self.read_flow.pause()
        for slot in list(self.state.slots):
            slot.answer_now()
        self._close_if_finished()

    @property
    def peer_host(self) -> str:
        """The address of the client."""
        return self.peer.host

    unit_kind, unit_name = "connection", peer_host

    @property
    def is_parked(self) -> bool:
        """Whether its first request waits for an event."""
        return bool(self.state.slots) and self.state.slots[0].is_parked

    def close_if_idle(self, last_idle_tick: int) -> None:
        """Close if nothing arrived since that idle tick and no response is still being read.

        An incomplete frame must not hold memory that other connections wait for: while the budget
        of the server is used up, its connection is closed earlier.
        """
        listener = self._listener
        is_stalled = self._active_idle_tick <= listener.idle_tick - STALLED_TICKS
        if is_stalled and self._pending_bytes and listener.budget.is_exceeded:
            self.fail(f"{self._pending_bytes} bytes of a frame stalled while memory is short")
            return
        is_silent = self._active_idle_tick <= last_idle_tick
        is_served = self.state.request_count and not self.read_flow.is_eof
        if is_silent and (not is_served or self._is_unread()):
            logger.debug("closing idle connection of %s", self.peer_host)
            if self.unsent_bytes or self.state.request_count:
                self.abort()
            elif self._transport is not None:
                self.is_closed = True
                self._transport.close()

    def _close_if_finished(self) -> None:
        if self.state.is_finished and self._transport is not None:
            self.is_closed = True
            self._transport.close()

    # Bytes in.

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go: the frame that they continue, or the shared buffer."""
        return self._splitter.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Start the requests that are complete now."""
        listener = self._listener
        listener.received.value += nbytes
        self._active_idle_tick = listener.idle_tick
        self._begun_ms = listener.now_ms()
        splitter, can_start = self._splitter, self.state.can_start
        try:
            for frame, is_owned in splitter.buffer_updated(nbytes):
                if len(frame) < HEAD_BYTES and not self._has_raw_tokens:
                    self.fail(f"frame of {len(frame)} bytes, expected at least {HEAD_BYTES}")
                elif can_start(frame[0] == frame[1] == PRODUCE_KEY):
                    self._start(frame, is_owned)
                else:
                    self._wait(frame, is_owned)
                if self.is_closed:
                    return
        except Exception as error:  # noqa: BLE001 - see contain
            self.contain(error)
        if splitter.fault is not None:
            self.fail(str(splitter.fault))
        self._count_pending(splitter.pending_bytes)
        self.check_limits()

    @property
    def _has_raw_tokens(self) -> bool:
        return self.login is not None and self.login.has_raw_tokens

    def _count_pending(self, pending_bytes: int) -> None:
        """Count the bytes of an incomplete frame against the budget, not its announced size."""
        if pending_bytes != self._pending_bytes:
            self._listener.budget.used += pending_bytes - self._pending_bytes
            self._pending_bytes = pending_bytes

    # Requests.

    def _wait(self, frame: memoryview, is_owned: bool, *, is_first: bool = False) -> None:
        """Queue a request that cannot start, in memory of its own: the shared buffer is reused."""
        kept = frame if is_owned else memoryview(bytearray(frame))
        is_pipelined = frame[0] == frame[1] == PRODUCE_KEY
        self.state.wait(kept, is_pipelined=is_pipelined, is_first=is_first)

    def _start(self, frame: memoryview, is_owned: bool) -> None:
        listener = self._listener
        if self.login is not None:
            self._current_bytes = len(frame)
            if self.login.takes(frame, self._begun_ms):
                return
        if not listener.quota_state.is_limiting or self.peer.principal is BROKER:
            self._begin(frame, is_owned)
            return
        self.throttle_time_ms = self.meter.begin(frame, self.peer.principal)
        self._begin(frame, is_owned)
        self.throttle_time_ms = 0
        self._throttle(self.meter.started(is_put_back=bool(self.state.holds & HOLD_BLOCKED)))

    def _throttle(self, wait_ms: int) -> None:
        """Start no request for `wait_ms`: the client exceeded a quota."""
        if wait_ms > 0 and not self.is_closed:
            self.state.holds |= HOLD_THROTTLED
            self._throttling = self._listener.services.timers.call_after(
                wait_ms, partial(self.release, HOLD_THROTTLED), self
            )

    def _charge_quotas(self, response: ResponseFrame, *, is_at_once: bool) -> ResponseFrame:
        """Charge what a request that runs alone used; return the response to send."""
        if self.meter.is_open:
            response, wait_ms = self.meter.answered(response, is_at_once=is_at_once)
            self._throttle(wait_ms)
        return response

    def _begin(self, frame: memoryview, is_owned: bool) -> None:
        key, version, correlation_id, client_id_size = REQUEST_HEAD.unpack_from(frame)
        route = self._listener.router.find(key, version)
        if route is None:
            self._answer_unsupported(key, version, correlation_id)
            return
        route.requests.value += 1
        self._current_bytes = len(frame)
        self._request_ms = route.request_ms
        if route.frame_handler is None:
            self._call_handler(route, frame)
            return
        # The usual header has no tagged fields; any other one is decoded.
        start = HEAD_BYTES + client_id_size
        is_flexible = version >= route.flexible_since
        if is_flexible and HEAD_BYTES <= start < len(frame) and not frame[start]:
            start += 1
        elif is_flexible or client_id_size < 0:
            start = decode_request_header(frame).body_start
        blocked = route.frame_handler.start(
            self, frame, version, start, correlation_id, is_owned=is_owned
        )
        if key == PRODUCE_KEY:
            self._produced_since_check = True
        if blocked is not None:
            self._wait(frame, is_owned, is_first=True)
            self.state.holds |= HOLD_BLOCKED
            self._listener.services.supervisor.spawn(
                self._unblock(blocked), "gateway-unblock", unit=self
            )

    def _answer_unsupported(self, key: int, version: int, correlation_id: int) -> None:
        """Answer an unknown version of ApiVersions; close for any other key or version."""
        answer = self._listener.router.unsupported_version_response(key, version, correlation_id)
        if answer is None:
            self.fail(f"unsupported request: key {key}, version {version}")
        else:
            self.respond(answer)

    def _call_handler(self, route: Route, frame: memoryview) -> None:
        """Decode a request and call its handler, which answers now or later."""
        header = decode_request_header(frame)
        context = RequestContext(
            self._listener.services,
            header.api_version,
            header.client_id,
            self.connection_id,
            self.peer,
        )
        result = route.call(context, frame, header.body_start)
        if isinstance(result, Deferred):
            if not result.is_resolved:
                DeferredSlot(self, header, result).begin()
                return
            result = result.result()
        if isinstance(result, CoroutineType):
            slot = ResponseSlot()
            self.open_slot(slot, is_exclusive=True)
            self._listener.services.supervisor.spawn(
                self._answer_later(slot, context, header, result), route.spec.module, unit=self
            )
        else:
            self.respond(self._encoded(context, header, result))

    def _encoded(
        self, context: RequestContext, header: RequestHeader, answer: object
    ) -> ResponseFrame:
        self.meter.add_wait(context.wait_ms)
        return encode_response(header, answer)

    async def _answer_later(
        self,
        slot: ResponseSlot,
        context: RequestContext,
        header: RequestHeader,
        work: Coroutine[Any, Any, object],
    ) -> None:
        try:
            slot.response = self._encoded(context, header, await work)
            self.slot_ready(slot)
        except Exception as error:  # noqa: BLE001 - see contain
            self.contain(error)

    async def _unblock(self, work: Coroutine[Any, Any, None]) -> None:
        await work
        self.release(HOLD_BLOCKED)

    def release(self, hold: int) -> None:
        """Remove one reason to hold requests back."""
        self.state.holds &= ~hold
        self._start_waiting()
        self.check_limits()

    def _start_waiting(self) -> None:
        """Start the waiting requests that may start."""
        if self._is_starting_waiting or self.is_closed:
            return
        self._is_starting_waiting = True
        self._begun_ms = self._listener.now_ms()
        try:
            while (frame := self.state.take_startable()) is not None:
                self._start(frame, is_owned=True)
        except Exception as error:  # noqa: BLE001 - see contain
            self.contain(error)
        self._is_starting_waiting = False

    # Responses.

    def open_slot(self, slot: ResponseSlot, *, is_exclusive: bool) -> None:
        """Append the slot of the request that is being started to the queue of responses."""
        slot.begun_ms, slot.request_ms = self._begun_ms, self._request_ms
        self.state.open(slot, self._current_bytes, is_exclusive)

    def slot_ready(self, slot: ResponseSlot) -> None:
        """Send the responses that are next in order, and start the requests that may start."""
        if self.is_closed:
            return
        slot.request_ms.value += self._listener.now_ms() - slot.begun_ms
        if slot.is_exclusive and slot.response is not None:
            slot.response = self._charge_quotas(slot.response, is_at_once=False)
        if slot is not self.state.slots[0] or not self.state.advance():
            return
        if not self.state.slots:
            # Every request is answered, so nothing can join this write before the end of the tick.
            self.flush()
        elif not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._listener.flush_at_tick_end(self)
        if self.state.waiting_count:
            self._start_waiting()
        if self.read_flow.is_paused:
            self.check_limits()

    def finish_at_tick_end(self, slot: ResponseSlot) -> None:
        """Call `slot.finish` at the end of this tick."""
        self._listener.finish_at_tick_end(self, slot)

    def respond(self, response: ResponseFrame) -> None:
        """Answer a request that runs alone and opened no slot.

        One read may bring thousands of small requests with large responses. These are written
        before the end of the tick, or they would pile up unnoticed for a slow reader.
        """
        self._request_ms.value += self._listener.now_ms() - self._begun_ms
        response = self._charge_quotas(response, is_at_once=True)
        self.state.output.extend(response)
        self._output_bytes += sum(map(len, response))
        if self._output_bytes > self._listener.config.send_buffer_max_bytes:
            self.flush()
        elif not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._listener.flush_at_tick_end(self)

    def end_tick(self) -> None:
        """Write what became ready during this tick."""
        self._is_flush_scheduled = False
        self.flush()

    def flush(self) -> None:
        """Write everything that is ready."""
        self._output_bytes = 0
        if self.is_closed or self._transport is None:
            return
        output = self.state.take_output()
        if output:
            self._write(output)
        if self.state.holds & HOLD_STOPPING or self.read_flow.is_eof:
            self._close_if_finished()

    def _write(self, output: list[Buffer]) -> None:
        assert self._transport is not None, "writing before the connection is made"
        if len(output) > 1:
            size = sum(map(len, output))
            if size <= len(output) * JOINED_BYTES_MAX:
                self._transport.write(b"".join(output))
            else:
                self._transport.writelines(output)
        else:
            size = len(output[0])
            self._transport.write(output[0])
        self._listener.sent.value += size
        self._written_bytes += size
        if self._written_bytes >= self._measure_at:
            self._measure_unsent()

    # What the client does not read.

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were written and that the socket has not taken."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    @property
    def taken_bytes(self) -> int:
        """Bytes that the socket has taken since the connection was made."""
        return self._written_bytes - self.unsent_bytes

    def _measure_unsent(self) -> None:
        self._measure_at = self._written_bytes + MEASURE_BYTES
        self._listener.unsent.measure(self)

    def _is_unread(self) -> bool:
        """Return whether the client read none of its responses for `connections.max.idle.ms`."""
        self._measure_unsent()
        return self._listener.unsent.is_idle(self)

    # Limits.

    def pause_writing(self) -> None:
        """Start no request until the client has read its responses."""
        self.state.holds |= HOLD_SLOW_READER

    def resume_writing(self) -> None:
        """Go on: the client has read its responses."""
        self._measure_unsent()
        self.release(HOLD_SLOW_READER)

    def store_drained(self) -> None:
        """Go on with Produce: the store accepts writes again."""
        self.release(HOLD_SATURATED)

    def check_limits(self) -> None:
        """Pause reading above a limit, and resume below it."""
        if self.is_closed:
            return
        listener, state = self._listener, self.state
        if self._produced_since_check:
            self._produced_since_check = False
            if listener.services.store.is_saturated and not state.holds & HOLD_SATURATED:
                state.holds |= HOLD_SATURATED
                listener.resume_when_drained(self)
        over_budget = listener.budget.is_exceeded
        if over_budget:
            listener.resume_within_budget(self)
        # An incomplete frame is read to its end, because only then its memory can be freed.
        is_between_frames = self._pending_bytes == 0 or state.holds & HOLD_NOT_ADMITTED
        if is_between_frames and (
            over_budget
            or state.holds
            or state.request_count >= listener.config.queued_max_requests
            or state.request_bytes > listener.config.queued_max_connection_bytes
        ):
            self.read_flow.pause()
        elif self.read_flow.is_paused:
            self.read_flow.resume()


class ReadFlow:
    """Pauses and resumes reading of one socket; it does nothing after the client's last byte."""

    __slots__ = ("_transport", "is_eof", "is_paused")

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self.is_paused = False
        self.is_eof = False
        """Whether the client has closed its sending side."""

    def begin(self, transport: asyncio.Transport) -> None:
        """Take the transport, which reads from the beginning."""
        self._transport = transport

    def pause(self) -> None:
        """Leave further bytes to the kernel."""
        if not self.is_paused and not self.is_eof and self._transport is not None:
            self.is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self.is_paused and not self.is_eof and self._transport is not None:
            self.is_paused = False
            self._transport.resume_reading()


class DeferredSlot(ResponseSlot):
    """The slot of a request that waits for others, such as the members of its group; no task.

    Its result is resolved in the middle of another request's work, so the response is encoded and
    the next request started only at the end of that tick.
    """

    __slots__ = ("_header", "_port", "_result")

    def __init__(self, port: ResponsePort, header: RequestHeader, result: Deferred[Any]) -> None:
        super().__init__()
        self._port = port
        self._header = header
        self._result = result

    def begin(self) -> None:
        """Open the slot, and wait for the result."""
        self._port.open_slot(self, is_exclusive=True)
        self._result.when_resolved(self._on_resolved)

    def _on_resolved(self) -> None:
        self._port.finish_at_tick_end(self)

    def finish(self) -> None:
        """Answer."""
        self.response = encode_response(self._header, self._result.result())
        self._port.slot_ready(self)
