"""Connection: one client's socket.

Rule: bytes become requests here and pieces of responses become one write here; the order is decided
by `connection_state`, the meaning by the router. Whatever a peer sends, only its own connection
can suffer from it.
Must not know: APIs, except that Produce pipelines and that ApiVersions is never refused.
"""

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from struct import Struct
from types import CoroutineType
from typing import TYPE_CHECKING, Any, cast

from kledger.gateway.net.connection_state import (
    HOLD_BLOCKED,
    HOLD_NOT_ADMITTED,
    HOLD_SATURATED,
    HOLD_SLOW_READER,
    HOLD_STOPPING,
    HOLD_THROTTLED,
    ConnectionState,
    ResponseSlot,
)
from kledger.gateway.net.connection_writer import ConnectionWriter
from kledger.gateway.net.deferred_slot import DeferredSlot
from kledger.gateway.net.listener import ListenerState
from kledger.gateway.net.read_flow import ReadFlow
from kledger.gateway.net.request_meter import RequestMeter
from kledger.gateway.net.router import ResponseFrame, Route, encode_response
from kledger.gateway.request_context import Peer, RequestContext
from kledger.gateway.wire.errors import MalformedMessage
from kledger.gateway.wire.framing import FrameSplitter
from kledger.gateway.wire.header import RequestHeader, decode_request_header
from kledger.runtime.deferred import Deferred
from kledger.runtime.metrics import Counter

if TYPE_CHECKING:
    from kledger.runtime.timers import TimerHandle

logger = logging.getLogger(__name__)

HEAD = Struct(">hhih")
"""Key, version, correlation id and the size of the client id: what every request begins with."""

PRODUCE = 0
STALLED_TICKS = 2
"""Parts of the idle time after which half a frame counts as stalled."""


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one socket."""

    __slots__ = (
        "_active_idle_tick",
        "_begun_ms",
        "_current_bytes",
        "_is_flush_scheduled",
        "_is_starting_waiting",
        "_listener",
        "_output_bytes",
        "_pending_bytes",
        "_produced_since_check",
        "_request_ms",
        "_splitter",
        "_throttling",
        "_transport",
        "connection_id",
        "is_closed",
        "meter",
        "peer",
        "read_flow",
        "retained_slot",
        "state",
        "throttle_time_ms",
        "writer",
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
        self.writer = ConnectionWriter(self, listener.unsent, listener.sent)
        self._throttling: TimerHandle | None = None
        self._active_idle_tick = listener.idle_tick
        self._splitter = FrameSplitter(listener.scratch, listener.config.socket_request_max_bytes)
        self._pending_bytes = 0
        self._current_bytes = 0
        self._begun_ms = 0
        self._request_ms = Counter()
        self._output_bytes = 0
        self._produced_since_check = False
        self._is_flush_scheduled = False
        self._is_starting_waiting = False
        self.read_flow = ReadFlow()

    # The life of the socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask to be let in; nothing is started before."""
        listener = self._listener
        self._transport = cast(asyncio.Transport, transport)
        self.read_flow.begin(self._transport)
        peer = transport.get_extra_info("peername")
        if peer:
            self.peer = Peer(str(peer[0]), peer[1])
        self.writer.begin(self._transport, listener.config.send_buffer_max_bytes)
        if listener.is_stopping:
            self.abort()
            return
        # Reading cannot be paused here: uvloop begins to read when this has returned.
        self.state.holds |= HOLD_NOT_ADMITTED
        listener.connection_quotas.connection_opened(self, transport.get_extra_info("socket"))

    def begin(self) -> None:
        """Serve requests from now on."""
        self._active_idle_tick = self._listener.idle_tick
        self.release(HOLD_NOT_ADMITTED)

    def connection_lost(self, error: Exception | None) -> None:
        """Let go of everything that worked for this connection."""
        self.is_closed = True
        self._count_pending(0)
        self.writer.close()
        if self._throttling is not None:
            self._throttling.cancel()
        retained_slot, self.retained_slot = self.retained_slot, None
        for slot in (*self.state.clear(), *((retained_slot,) if retained_slot is not None else ())):
            self._listener.containment.run(self, slot.abandon)
        self._listener.forget(self)

    def eof_received(self) -> bool:
        """Answer what the peer has asked, and close behind it; True keeps the socket open."""
        self.read_flow.is_eof = True
        self._count_pending(0)
        self._close_if_finished()
        return True

    def fail(self, reason: str) -> None:
        """Close because of what the peer did, and say so once."""
        if self.is_closed:
            return
        self._listener.malformed.value += 1
        self._listener.warnings.warning("closing connection of %s: %s", self.peer_host, reason)
        self.abort()

    def abort(self) -> None:
        """Close without writing what is left."""
        self.is_closed = True
        self.state.holds |= HOLD_STOPPING
        if self._transport is not None:
            self._transport.abort()

    def contain(self, error: Exception) -> None:
        """Close because of what a request ended with: the peer's mistake, or a fault of ours."""
        if isinstance(error, MalformedMessage):
            self.fail(str(error))
        else:
            self._listener.containment.failed(self, error)

    def close_after_fault(self, error: Exception) -> None:
        """Close."""
        self.abort()

    def stop(self) -> None:
        """Start nothing more, hasten what is parked, and close when all is answered."""
        self.state.holds |= HOLD_STOPPING
        self.state.drop_waiting()
        self.read_flow.pause()
        for slot in list(self.state.slots):
            slot.answer_now()
        self._close_if_finished()

    @property
    def peer_host(self) -> str:
        """The address of the other end."""
        return self.peer.host

    unit_kind, unit_name = "connection", peer_host

    @property
    def is_parked(self) -> bool:
        """Whether a request of it waits for something to happen."""
        return bool(self.state.slots) and self.state.slots[0].is_parked

    def close_if_idle(self, last_idle_tick: int) -> None:
        """Close if nothing arrived since that tick, unless a peer that reads on is owed a response.

        Half a frame that does not go on must not hold the memory that others wait for, so it has
        less time while the server's budget is used up.
        """
        listener = self._listener
        is_stalled = self._active_idle_tick <= listener.idle_tick - STALLED_TICKS
        if is_stalled and self._pending_bytes and listener.budget.is_exceeded:
            self.fail(f"{self._pending_bytes} bytes of a frame stalled while memory is short")
            return
        is_silent = self._active_idle_tick <= last_idle_tick
        is_served = self.state.request_count and not self.read_flow.is_eof
        if is_silent and (not is_served or self.writer.is_idle()):
            logger.debug("closing idle connection of %s", self.peer_host)
            if self.writer.unsent_bytes or self.state.request_count:
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
        """Return where the next bytes go: the frame they belong to, or the shared buffer."""
        return self._splitter.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Start every request that is complete now."""
        listener = self._listener
        listener.received.value += nbytes
        self._active_idle_tick = listener.idle_tick
        self._begun_ms = listener.now_ms()
        splitter, can_start = self._splitter, self.state.can_start
        try:
            for frame, is_owned in splitter.buffer_updated(nbytes):
                if len(frame) < HEAD.size:
                    self.fail(f"frame of {len(frame)} bytes, expected at least {HEAD.size}")
                elif can_start(frame[0] == frame[1] == PRODUCE):
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

    def _count_pending(self, pending_bytes: int) -> None:
        """Count the bytes of a frame that is not complete; its announced size is only a claim."""
        if pending_bytes != self._pending_bytes:
            self._listener.budget.used += pending_bytes - self._pending_bytes
            self._pending_bytes = pending_bytes

    # Requests.

    def _wait(self, frame: memoryview, is_owned: bool, *, is_first: bool = False) -> None:
        """Keep a request that cannot start; in memory of its own, as the shared one is reused."""
        retained_slot = frame if is_owned else memoryview(bytearray(frame))
        is_pipelined = frame[0] == frame[1] == PRODUCE
        self.state.wait(retained_slot, is_pipelined=is_pipelined, is_first=is_first)

    def _start(self, frame: memoryview, is_owned: bool) -> None:
        listener = self._listener
        if not listener.quota_state.is_limiting:
            self._begin(frame, is_owned)
            return
        self.throttle_time_ms = self.meter.begin(frame)
        self._begin(frame, is_owned)
        self.throttle_time_ms = 0
        self._throttle(self.meter.started(is_put_back=bool(self.state.holds & HOLD_BLOCKED)))

    def _throttle(self, wait_ms: int) -> None:
        """Start no request for some time, as the client used more than its quota."""
        if wait_ms > 0 and not self.is_closed:
            self.state.holds |= HOLD_THROTTLED
            self._throttling = self._listener.services.timers.call_after(
                wait_ms, partial(self.release, HOLD_THROTTLED), self
            )

    def _charge_quotas(self, response: ResponseFrame, *, is_at_once: bool) -> ResponseFrame:
        """Count what a request that runs alone used; return the response to be sent."""
        if self.meter.is_open:
            response, wait_ms = self.meter.answered(response, is_at_once=is_at_once)
            self._throttle(wait_ms)
        return response

    def _begin(self, frame: memoryview, is_owned: bool) -> None:
        key, version, correlation_id, client_id_size = HEAD.unpack_from(frame)
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
        # The usual header ends here; any other one is read with care.
        start = HEAD.size + client_id_size
        if version >= route.flexible_since and HEAD.size <= start < len(frame) and not frame[start]:
            start += 1
        elif version >= route.flexible_since or client_id_size < 0:
            start = decode_request_header(frame).body_start
        blocked = route.frame_handler.start(
            self, frame, version, start, correlation_id, is_owned=is_owned
        )
        if key == PRODUCE:
            self._produced_since_check = True
        if blocked is not None:
            self._wait(frame, is_owned, is_first=True)
            self.state.holds |= HOLD_BLOCKED
            self._listener.services.supervisor.spawn(
                self._unblock(blocked), "gateway-unblock", unit=self
            )

    def _answer_unsupported(self, key: int, version: int, correlation_id: int) -> None:
        """Three cases: a version of ApiVersions is answered, a key or any other version closes."""
        answer = self._listener.router.unsupported_version_response(key, version, correlation_id)
        if answer is None:
            self.fail(f"unsupported request: key {key}, version {version}")
        else:
            self.respond(answer)

    def _call_handler(self, route: Route, frame: memoryview) -> None:
        """Decode the request and let its handler answer, now or later."""
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
        """One reason less to hold requests back."""
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
        """Keep a place for the response of the request that is being started."""
        slot.begun_ms, slot.request_ms = self._begun_ms, self._request_ms
        self.state.open(slot, self._current_bytes, is_exclusive)

    def slot_ready(self, slot: ResponseSlot) -> None:
        """A response is complete; let what may leave leave, and what may start start."""
        if self.is_closed:
            return
        slot.request_ms.value += self._listener.now_ms() - slot.begun_ms
        if slot.is_exclusive and slot.response is not None:
            slot.response = self._charge_quotas(slot.response, is_at_once=False)
        if slot is not self.state.slots[0] or not self.state.advance():
            return
        if not self.state.slots:
            # Everything is answered, so nothing can join this write: spare it a loop turn.
            self.flush()
        elif not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._listener.flush_at_tick_end(self)
        if self.state.waiting_count:
            self._start_waiting()
        if self.read_flow.is_paused:
            self.check_limits()

    def finish_at_tick_end(self, slot: ResponseSlot) -> None:
        """Let a slot act at the end of the loop turn."""
        self._listener.finish_at_tick_end(self, slot)

    def respond(self, response: ResponseFrame) -> None:
        """Answer a request that runs alone and kept no slot.

        One read may hold thousands of small requests with large answers: they must not pile up
        until the end of the turn, where a slow reader would be noticed.
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
        """The end of the loop turn that was asked for is there."""
        self._is_flush_scheduled = False
        self.flush()

    def flush(self) -> None:
        """Write everything that is ready."""
        self._output_bytes = 0
        if self.is_closed or self._transport is None:
            return
        output = self.state.take_output()
        if output:
            self.writer.write(output)
        if self.state.holds & HOLD_STOPPING or self.read_flow.is_eof:
            self._close_if_finished()

    # Limits.

    def pause_writing(self) -> None:
        """The peer reads slowly: start nothing until it has caught up."""
        self.state.holds |= HOLD_SLOW_READER

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self.writer.measure()
        self.release(HOLD_SLOW_READER)

    def store_drained(self) -> None:
        """The store accepts writes again."""
        self.release(HOLD_SATURATED)

    def check_limits(self) -> None:
        """Stop reading over a limit, and read on below it."""
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
        # A frame that began must be able to end, or nobody would ever get room again.
        is_between_frames = self._pending_bytes == 0 or state.holds & HOLD_NOT_ADMITTED
        if is_between_frames and (
            over_budget
            or state.holds
            or state.request_count >= listener.config.queued_max_requests
            or state.request_bytes > listener.config.queued_max_connection_bytes
        ):
            self.read_flow.pause()
        else:
            self.read_flow.resume()
