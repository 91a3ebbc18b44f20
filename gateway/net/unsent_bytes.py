"""UnsentBytes: delays fetches, and closes connections, while responses wait for slow clients.

Rule: `unsent_state` decides; here are the clock, the queue of fetches that wait for room, and the
measurements of sockets. A transport does not report what it has written, so the count may be too
high for a moment, and too low by at most `MEASURE_BYTES` for each connection. When most of the
unsent bytes are sent, freed memory is returned to the operating system.
Must not know: what a fetch is. Streams of native clients have other limits.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kledger.gateway.net.unsent_state import UnsentState
from kledger.gateway.services import Services
from kledger.runtime.free_memory import FreeMemory, release_free_memory
from kledger.runtime.logs import RateLimitedLog

if TYPE_CHECKING:
    from kledger.runtime.timers import TimerHandle

logger = logging.getLogger(__name__)

MEASURE_BYTES = 64 * 1024
"""A connection is measured after each so many bytes that were written to it."""
MEASURE_PERIOD_MS = 50
"""How often all connections are measured while there is no room; never more often."""
CALM_PERIOD_MS = 1_000
"""The same while there is room and many bytes are unsent."""
WARNINGS_PER_SECOND = 1


class SendingConnection(Protocol):
    """A connection, as its unsent bytes are measured."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were written and that the socket has not taken."""
        ...

    @property
    def taken_bytes(self) -> int:
        """Bytes that the socket has taken since the connection was made."""
        ...

    @property
    def peer_host(self) -> str:
        """The address of the client."""
        ...

    def abort(self) -> None:
        """Close without writing what is unsent."""
        ...


class UnsentBytes:
    """The unsent responses of all connections of one listener."""

    def __init__(
        self, services: Services, *, give_back: Callable[[], object] = release_free_memory
    ) -> None:
        """Args: give_back: returns freed memory to the operating system; may block."""
        self.state: UnsentState[SendingConnection] = UnsentState(
            services.config.queued_max_response_bytes
        )
        self._services = services
        self._now_ms = services.clock.monotonic_ms
        self._memory = FreeMemory(services.clock, services.supervisor, give_back=give_back)
        self._waiting: dict[SendingConnection, Callable[[], None]] = {}
        self._has_queue = False
        """Whether fetches wait because nothing is free: later ones queue behind them."""
        self._timer: TimerHandle | None = None
        self._timer_ms = 0
        self._measured_ms = 0
        self._warnings = RateLimitedLog(logger, WARNINGS_PER_SECOND, services.clock)
        self._closed = services.metrics.counter(
            "slow_readers_closed", "connections closed as others needed what they did not read"
        )
        services.metrics.gauge(
            "response_bytes_unsent",
            lambda: self.state.total,
            "bytes of responses that Kafka clients have not taken yet",
        )
        services.metrics.gauge(
            "fetches_waiting_for_room",
            lambda: len(self._waiting),
            "fetches that wait until others have taken their responses",
        )

    def close(self) -> None:
        """Stop measuring: the listener has stopped."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._memory.close()

    # Called by connections.

    def measure(self, connection: SendingConnection) -> None:
        """Record the unsent bytes of a connection now."""
        state, unsent = self.state, connection.unsent_bytes
        if unsent or state.is_holding(connection):
            state.record_unsent(connection, unsent, connection.taken_bytes, self._now_ms())
        if state.is_high:
            self._arm()

    def fetch_bytes_max(self) -> int:
        """Return how many bytes a fetch may add now."""
        if self.state.is_crowded:
            self._measure_all()
        return self.state.fetch_bytes_max

    def has_room(self, connection: SendingConnection) -> bool:
        """Return whether a fetch may be answered now; if not, it must `wait`."""
        if not self.state.is_crowded:
            return True
        self._make_room()
        return not self._has_queue and self._has_room(connection)

    def wait(self, connection: SendingConnection, resume: Callable[[], None]) -> None:
        """Call `resume` when there is room, in the order of these calls."""
        self._waiting[connection] = resume
        self._has_queue = self._has_queue or self.state.is_full
        self._arm()

    def is_idle(self, connection: SendingConnection) -> bool:
        """Return whether a connection has sent nothing for `connections.max.idle.ms`."""
        idle_ms = self._services.config.connections_max_idle_ms
        return self.state.is_idle(connection, self._now_ms() - idle_ms)

    def forget(self, connection: SendingConnection) -> None:
        """Forget a closed connection."""
        self._waiting.pop(connection, None)
        self.state.forget(connection)

    # Inside.

    def _has_room(self, connection: SendingConnection) -> bool:
        state = self.state
        return not state.is_full and not (state.is_crowded and connection.unsent_bytes)

    def _measure_all(self) -> None:
        now_ms = self._now_ms()
        if now_ms - self._measured_ms < MEASURE_PERIOD_MS:
            return
        self._measured_ms = now_ms
        for connection in self.state.holders:
            self.state.record_unsent(
                connection, connection.unsent_bytes, connection.taken_bytes, now_ms
            )

    def _make_room(self) -> None:
        """Measure all connections; while there is no room, close stalled ones."""
        self._measure_all()
        state = self.state
        while state.is_full and (stalled := state.stalled(self._now_ms())) is not None:
            self._warnings.warning(
                "closing connection of %s: it does not read its responses, %d bytes of "
                "all connections wait to be sent, at most %d may",
                stalled.peer_host,
                state.total,
                state.limit,
            )
            self._closed.value += 1
            self.forget(stalled)
            stalled.abort()

    def _arm(self) -> None:
        is_urgent = bool(self._waiting) or self.state.is_full
        due_ms = self._now_ms() + (MEASURE_PERIOD_MS if is_urgent else CALM_PERIOD_MS)
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer_ms = due_ms
        self._timer = self._services.timers.call_at(due_ms, self._tick)

    def _tick(self) -> None:
        self._timer = None
        try:
            self._make_room()
            self._resume_waiting()
            if self.state.has_fallen():
                self._memory.give_back_soon()
        finally:
            if self._waiting or self.state.is_high:
                self._arm()

    def _resume_waiting(self) -> None:
        """Resume fetches for which there is room; one with unsent bytes does not block others."""
        for connection, resume in list(self._waiting.items()):
            if self.state.is_full:
                return
            # A resumed fetch may close another connection that waits.
            if connection in self._waiting and self._has_room(connection):
                del self._waiting[connection]
                resume()
        self._has_queue = False


class ConnectionSpace:
    """`FetchSpace` of one connection."""

    __slots__ = ("_connection", "_unsent")

    def __init__(self, unsent: UnsentBytes, connection: SendingConnection) -> None:
        self._unsent = unsent
        self._connection = connection

    @property
    def fetch_bytes_max(self) -> int:
        """How many bytes a fetch may add now; its first batch may be larger."""
        return self._unsent.fetch_bytes_max()

    def admitted_bytes(self) -> int:
        """Return `fetch_bytes_max`; 0: a fetch must `wait_for_room` before it is answered."""
        state = self._unsent.state
        if state.is_crowded and not self._unsent.has_room(self._connection):
            return 0
        return state.fetch_bytes_max

    def wait_for_room(self, resume: Callable[[], None]) -> None:
        """Call `resume` when there is room; never after the connection was closed."""
        self._unsent.wait(self._connection, resume)

    def reserve(self, size: int) -> None:
        """Reserve bytes for a read of the storage; a second reservation replaces the first."""
        self._unsent.state.reserve(self._connection, size)

    def release(self) -> None:
        """Release what was reserved."""
        self._unsent.state.release(self._connection)
