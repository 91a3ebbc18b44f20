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

from kledger.gateway.connection_state import (
    HOLD_NOT_READY,
    HOLD_OUTSIDE,
    HOLD_SATURATED,
    HOLD_SLOW_READER,
    HOLD_STOPPING,
    HOLD_THROTTLED,
    ConnectionState,
    Slot,
)
from kledger.gateway.connection_writer import ConnectionWriter
from kledger.gateway.context import Peer, RequestContext
from kledger.gateway.later_slot import LaterSlot
from kledger.gateway.reading import Reading
from kledger.gateway.request_meter import RequestMeter
from kledger.gateway.router import Reply, Route, encode_response
from kledger.gateway.switchboard import Switchboard
from kledger.gateway.wire.errors import MalformedMessage
from kledger.gateway.wire.framing import FrameSplitter
from kledger.gateway.wire.header import RequestHeader, decode_request_header
from kledger.runtime.later import Later
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
        "_activity_tick",
        "_begun_ms",
        "_board",
        "_current_bytes",
        "_has_produced",
        "_is_flush_scheduled",
        "_is_pumping",
        "_output_bytes",
        "_pending_bytes",
        "_request_ms",
        "_splitter",
        "_throttling",
        "_transport",
        "connection_id",
        "is_closed",
        "kept",
        "meter",
        "peer",
        "reading",
        "state",
        "throttle_time_ms",
        "writer",
    )

    def __init__(self, board: Switchboard) -> None:
        self._board = board
        self._transport: asyncio.Transport | None = None
        self.state = ConnectionState(board.budget)
        self.connection_id = board.new_connection_id()
        self.peer = Peer("?")
        self.is_closed = False
        self.kept: Slot | None = None
        self.throttle_time_ms = 0
        self.meter = RequestMeter(board.services.quotas, board.services.clock)
        self.writer = ConnectionWriter(self, board.unsent, board.sent)
        self._throttling: TimerHandle | None = None
        self._activity_tick = board.tick
        self._splitter = FrameSplitter(board.scratch, board.config.socket_request_max_bytes)
        self._pending_bytes = 0
        self._current_bytes = 0
        self._begun_ms = 0
        self._request_ms = Counter()
        self._output_bytes = 0
        self._has_produced = False
        self._is_flush_scheduled = False
        self._is_pumping = False
        self.reading = Reading()

    # The life of the socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask to be let in; nothing is started before."""
        board = self._board
        self._transport = cast(asyncio.Transport, transport)
        self.reading.begin(self._transport)
        peer = transport.get_extra_info("peername")
        if peer:
            self.peer = Peer(str(peer[0]), peer[1])
        self.writer.begin(self._transport, board.config.send_buffer_max_bytes)
        if board.is_stopping:
            self.abort()
            return
        # Reading cannot be paused here: uvloop begins to read when this has returned.
        self.state.holds |= HOLD_OUTSIDE
        board.entrance.arrive(self, transport.get_extra_info("socket"))

    def begin(self) -> None:
        """Serve requests from now on."""
        self._activity_tick = self._board.tick
        self.release(HOLD_OUTSIDE)

    def connection_lost(self, error: Exception | None) -> None:
        """Let go of everything that worked for this connection."""
        self.is_closed = True
        self._count_pending(0)
        self.writer.close()
        if self._throttling is not None:
            self._throttling.cancel()
        kept, self.kept = self.kept, None
        for slot in (*self.state.clear(), *((kept,) if kept is not None else ())):
            self._board.containment.run(self, slot.abandon)
        self._board.forget(self)

    def eof_received(self) -> bool:
        """Answer what the peer has asked, and close behind it; True keeps the socket open."""
        self.reading.is_over = True
        self._count_pending(0)
        self._close_if_finished()
        return True

    def fail(self, reason: str) -> None:
        """Close because of what the peer did, and say so once."""
        if self.is_closed:
            return
        self._board.malformed.value += 1
        self._board.warnings.warning("closing connection of %s: %s", self.peer_host, reason)
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
            self._board.containment.failed(self, error)

    def close_after_fault(self, error: Exception) -> None:
        """Close."""
        self.abort()

    def stop(self) -> None:
        """Start nothing more, hasten what is parked, and close when all is answered."""
        self.state.holds |= HOLD_STOPPING
        self.state.drop_waiting()
        self.reading.pause()
        for slot in list(self.state.slots):
            slot.hasten()
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

    def close_if_idle(self, last_tick: int) -> None:
        """Close if nothing arrived since that tick, unless a peer that reads on is owed a response.

        Half a frame that does not go on must not hold the memory that others wait for, so it has
        less time while the server's budget is used up.
        """
        board = self._board
        is_stalled = self._activity_tick <= board.tick - STALLED_TICKS
        if is_stalled and self._pending_bytes and board.budget.is_exceeded:
            self.fail(f"{self._pending_bytes} bytes of a frame stalled while memory is short")
            return
        is_silent = self._activity_tick <= last_tick
        is_served = self.state.request_count and not self.reading.is_over
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
        board = self._board
        board.received.value += nbytes
        self._activity_tick = board.tick
        self._begun_ms = board.now_ms()
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
            self._board.budget.used += pending_bytes - self._pending_bytes
            self._pending_bytes = pending_bytes

    # Requests.

    def _wait(self, frame: memoryview, is_owned: bool, *, is_first: bool = False) -> None:
        """Keep a request that cannot start; in memory of its own, as the shared one is reused."""
        kept = frame if is_owned else memoryview(bytearray(frame))
        is_pipelined = frame[0] == frame[1] == PRODUCE
        self.state.wait(kept, is_pipelined=is_pipelined, is_first=is_first)

    def _start(self, frame: memoryview, is_owned: bool) -> None:
        board = self._board
        if not board.quota_state.is_limiting:
            self._begin(frame, is_owned)
            return
        self.throttle_time_ms = self.meter.begin(frame)
        self._begin(frame, is_owned)
        self.throttle_time_ms = 0
        self._throttle(self.meter.started(is_put_back=bool(self.state.holds & HOLD_NOT_READY)))

    def _throttle(self, wait_ms: int) -> None:
        """Start no request for some time, as the client used more than its quota."""
        if wait_ms > 0 and not self.is_closed:
            self.state.holds |= HOLD_THROTTLED
            self._throttling = self._board.services.timers.call_after(
                wait_ms, partial(self.release, HOLD_THROTTLED), self
            )

    def _metered(self, response: Reply, *, is_at_once: bool) -> Reply:
        """Count what a request that runs alone used; return the response to be sent."""
        if self.meter.is_open:
            response, wait_ms = self.meter.answered(response, is_at_once=is_at_once)
            self._throttle(wait_ms)
        return response

    def _begin(self, frame: memoryview, is_owned: bool) -> None:
        key, version, correlation_id, client_id_size = HEAD.unpack_from(frame)
        route = self._board.router.find(key, version)
        if route is None:
            self._refuse(key, version, correlation_id)
            return
        route.requests.value += 1
        self._current_bytes = len(frame)
        self._request_ms = route.request_ms
        if route.hot is None:
            self._call(route, frame)
            return
        # The usual header ends here; any other one is read with care.
        start = HEAD.size + client_id_size
        if version >= route.flexible_since and HEAD.size <= start < len(frame) and not frame[start]:
            start += 1
        elif version >= route.flexible_since or client_id_size < 0:
            start = decode_request_header(frame).body_start
        blocked = route.hot.start(self, frame, version, start, correlation_id, is_owned=is_owned)
        if key == PRODUCE:
            self._has_produced = True
        if blocked is not None:
            self._wait(frame, is_owned, is_first=True)
            self.state.holds |= HOLD_NOT_READY
            self._board.services.supervisor.spawn(
                self._unblock(blocked), "gateway-unblock", unit=self
            )

    def _refuse(self, key: int, version: int, correlation_id: int) -> None:
        """Three cases: a version of ApiVersions is answered, a key or any other version closes."""
        answer = self._board.router.refusal(key, version, correlation_id)
        if answer is None:
            self.fail(f"unsupported request: key {key}, version {version}")
        else:
            self.reply(answer)

    def _call(self, route: Route, frame: memoryview) -> None:
        """Decode the request and let its handler answer, now or later."""
        header = decode_request_header(frame)
        context = RequestContext(
            self._board.services,
            header.api_version,
            header.client_id,
            self.connection_id,
            self.peer,
        )
        result = route.call(context, frame, header.body_start)
        if isinstance(result, Later):
            if not result.is_settled:
                LaterSlot(self, header, result).begin()
                return
            result = result.result()
        if isinstance(result, CoroutineType):
            slot = Slot()
            self.open_slot(slot, is_exclusive=True)
            self._board.services.supervisor.spawn(
                self._answer_later(slot, context, header, result), route.spec.module, unit=self
            )
        else:
            self.reply(self._encoded(context, header, result))

    def _encoded(self, context: RequestContext, header: RequestHeader, answer: object) -> Reply:
        self.meter.owe(context.wait_ms)
        return encode_response(header, answer)

    async def _answer_later(
        self,
        slot: Slot,
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
        self.release(HOLD_NOT_READY)

    def release(self, hold: int) -> None:
        """One reason less to hold requests back."""
        self.state.holds &= ~hold
        self._pump()
        self.check_limits()

    def _pump(self) -> None:
        """Start the waiting requests that may start."""
        if self._is_pumping or self.is_closed:
            return
        self._is_pumping = True
        self._begun_ms = self._board.now_ms()
        try:
            while (frame := self.state.take_startable()) is not None:
                self._start(frame, is_owned=True)
        except Exception as error:  # noqa: BLE001 - see contain
            self.contain(error)
        self._is_pumping = False

    # Responses.

    def open_slot(self, slot: Slot, *, is_exclusive: bool) -> None:
        """Keep a place for the response of the request that is being started."""
        slot.begun_ms, slot.request_ms = self._begun_ms, self._request_ms
        self.state.open(slot, self._current_bytes, is_exclusive)

    def slot_ready(self, slot: Slot) -> None:
        """A response is complete; let what may leave leave, and what may start start."""
        if self.is_closed:
            return
        slot.request_ms.value += self._board.now_ms() - slot.begun_ms
        if slot.is_exclusive and slot.response is not None:
            slot.response = self._metered(slot.response, is_at_once=False)
        if slot is not self.state.slots[0] or not self.state.advance():
            return
        if not self.state.slots:
            # Everything is answered, so nothing can join this write: spare it a loop turn.
            self.flush()
        elif not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._board.flush_soon(self)
        if self.state.waiting_count:
            self._pump()
        if self.reading.is_paused:
            self.check_limits()

    def finish_soon(self, slot: Slot) -> None:
        """Let a slot act at the end of the loop turn."""
        self._board.finish_soon(self, slot)

    def reply(self, response: Reply) -> None:
        """Answer a request that runs alone and kept no slot.

        One read may hold thousands of small requests with large answers: they must not pile up
        until the end of the turn, where a slow reader would be noticed.
        """
        self._request_ms.value += self._board.now_ms() - self._begun_ms
        response = self._metered(response, is_at_once=True)
        self.state.output.extend(response)
        self._output_bytes += sum(map(len, response))
        if self._output_bytes > self._board.config.send_buffer_max_bytes:
            self.flush()
        elif not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._board.flush_soon(self)

    def end_turn(self) -> None:
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
        if self.state.holds & HOLD_STOPPING or self.reading.is_over:
            self._close_if_finished()

    # Limits.

    def pause_writing(self) -> None:
        """The peer reads slowly: start nothing until it has caught up."""
        self.state.holds |= HOLD_SLOW_READER

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self.writer.look()
        self.release(HOLD_SLOW_READER)

    def store_drained(self) -> None:
        """The store accepts writes again."""
        self.release(HOLD_SATURATED)

    def check_limits(self) -> None:
        """Stop reading over a limit, and read on below it."""
        if self.is_closed:
            return
        board, state = self._board, self.state
        if self._has_produced:
            self._has_produced = False
            if board.services.store.is_saturated and not state.holds & HOLD_SATURATED:
                state.holds |= HOLD_SATURATED
                board.resume_when_drained(self)
        over_budget = board.budget.is_exceeded
        if over_budget:
            board.resume_within_budget(self)
        # A frame that began must be able to end, or nobody would ever get room again.
        is_between_frames = self._pending_bytes == 0 or state.holds & HOLD_OUTSIDE
        if is_between_frames and (
            over_budget
            or state.holds
            or state.request_count >= board.config.queued_max_requests
            or state.request_bytes > board.config.queued_max_connection_bytes
        ):
            self.reading.pause()
        else:
            self.reading.resume()
