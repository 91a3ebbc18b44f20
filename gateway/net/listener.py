"""ListenerState: what all connections of one server share.

Rule: one receive buffer serves all connections, because a read is split into frames before the next
read begins. Responses of one tick are written at its end, in one write per connection.
Must not know: what requests mean.
"""

import asyncio
import logging

from kledger.gateway.net.connection_quotas import ConnectionQuotas
from kledger.gateway.net.connection_state import ByteBudget, ResponseSlot
from kledger.gateway.net.logins import Logins
from kledger.gateway.net.ports import ServedConnection
from kledger.gateway.net.router import Router
from kledger.gateway.net.tls_transport import READ_BYTES, HandshakeQueue
from kledger.gateway.net.unsent_bytes import UnsentBytes
from kledger.gateway.services import Services
from kledger.gateway.wire.framing import make_scratch
from kledger.runtime.logs import RateLimitedLog
from kledger.runtime.signal import Signal

IDLE_TICKS = 16
"""Idle ticks in `connections.max.idle.ms`: precise to 1/16, and no read asks a clock."""
WARNINGS_PER_SECOND = 10


class ListenerState:
    """Shared memory, limits, work at the end of a tick, and the set of connections."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.config = services.config
        self.quota_state = services.quotas.state
        self.containment = services.supervisor.containment
        self.router = Router(services)
        self.budget = ByteBudget(services.config.queued_max_request_bytes)
        self.unsent = UnsentBytes(services)
        self.warnings = RateLimitedLog(
            logging.getLogger("kledger.gateway.net.connection"), WARNINGS_PER_SECOND, services.clock
        )
        self.scratch = make_scratch()
        self.encrypted_scratch = make_scratch(READ_BYTES)
        self.handshakes = HandshakeQueue()
        self.connection_quotas = ConnectionQuotas[ServedConnection](services)
        self.connections = self.connection_quotas.admitted
        self.logins = Logins(services)
        self.connection_closed = Signal()
        self.is_stopping = False
        self.idle_tick = 0
        """Moves on `IDLE_TICKS` times in `connections.max.idle.ms`."""
        self._next_connection_id = 0
        self._to_flush: list[ServedConnection] = []
        self._to_finish: list[tuple[ServedConnection, ResponseSlot]] = []
        self._over_budget: set[ServedConnection] = set()
        self._awaiting_drain: set[ServedConnection] = set()
        self._is_tick_end_scheduled = False
        self._loop = asyncio.get_running_loop()
        metrics = services.metrics
        self.malformed = metrics.counter("malformed_requests", "connections closed for what came")
        self.received = metrics.counter("received_bytes", "bytes that Kafka clients sent")
        self.sent = metrics.counter("sent_bytes", "bytes that were sent to Kafka clients")
        self.now_ms = services.clock.monotonic_ms
        metrics.gauge("connections", lambda: len(self.connections), "open Kafka connections")
        metrics.gauge(
            "parked_fetches",
            lambda: sum(each.is_parked for each in self.connections),
            "fetches that wait for records",
        )
        metrics.gauge(
            "request_bytes_in_flight",
            lambda: self.budget.used,
            "bytes of requests that are not answered",
        )

    def new_connection_id(self) -> int:
        """Return a number that no other connection of this server has."""
        self._next_connection_id += 1
        return self._next_connection_id

    # The end of a tick.

    def flush_at_tick_end(self, connection: ServedConnection) -> None:
        """Call `connection.end_tick` at the end of this tick."""
        self._to_flush.append(connection)
        self._schedule_tick_end()

    def finish_at_tick_end(self, connection: ServedConnection, slot: ResponseSlot) -> None:
        """Call `slot.finish` once at the end of this tick, before connections write."""
        self._to_finish.append((connection, slot))
        self._schedule_tick_end()

    def _schedule_tick_end(self) -> None:
        if not self._is_tick_end_scheduled:
            self._is_tick_end_scheduled = True
            self._loop.call_soon(self._end_tick)

    def _end_tick(self) -> None:
        """Finish slots, then write; an exception closes the connection that raised it, alone."""
        contain = self.containment.failed
        if self._to_finish:
            to_finish, self._to_finish = self._to_finish, []
            for connection, slot in to_finish:
                try:
                    slot.finish()
                except Exception as error:  # noqa: BLE001 - see above
                    contain(connection, error)
        self._is_tick_end_scheduled = False
        to_flush, self._to_flush = self._to_flush, []
        for connection in to_flush:
            try:
                connection.end_tick()
            except Exception as error:  # noqa: BLE001 - see above
                contain(connection, error)
        if self._over_budget and not self.budget.is_exceeded:
            over, self._over_budget = self._over_budget, set()
            for connection in over:
                self.containment.run(connection, connection.check_limits)

    # Back-pressure.

    def resume_within_budget(self, connection: ServedConnection) -> None:
        """Call `connection.check_limits` when the budget of request bytes has room again."""
        self._over_budget.add(connection)

    def resume_when_drained(self, connection: ServedConnection) -> None:
        """Call `connection.store_drained` when the store accepts writes again."""
        if not self._awaiting_drain:
            self.services.store.on_drained(self._drained)
        self._awaiting_drain.add(connection)

    def _drained(self) -> None:
        waiting, self._awaiting_drain = self._awaiting_drain, set()
        for connection in waiting:
            self.containment.run(connection, connection.store_drained)

    def forget(self, connection: ServedConnection) -> None:
        """Forget a closed connection."""
        self.connection_quotas.leave(connection)
        self.services.telemetry.disconnected(connection.connection_id)
        self._over_budget.discard(connection)
        self._awaiting_drain.discard(connection)
        if self._over_budget:
            self._schedule_tick_end()
        self.connection_closed.notify()

    def abort_all(self) -> None:
        """Close every connection without writing what is unsent."""
        for connection in list(self.connections):
            connection.abort()

    # Idle connections.

    def start_idle_checks(self) -> None:
        """Begin to close connections that sent nothing for `connections.max.idle.ms`."""
        if self.config.connections_max_idle_ms > 0:
            period_ms = max(self.config.connections_max_idle_ms // IDLE_TICKS, 1)
            self.services.timers.call_after(period_ms, self._sweep)

    def _sweep(self) -> None:
        if self.is_stopping:
            return
        self.start_idle_checks()
        self.idle_tick += 1
        self.connection_quotas.admit_waiting()  # `max.connections` may have been raised
        for connection in list(self.connections):
            self.containment.run(connection, connection.close_if_idle, self.idle_tick - IDLE_TICKS)
