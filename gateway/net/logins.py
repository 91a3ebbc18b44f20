"""Logins: what the logins of all connections share: their limits, their threads, the audit log.

Rule: connections that have not logged in are limited; above it the oldest is closed, so that silent
ones never keep a client out. Hashing runs in threads. A login is one audit line, and the failures
of one address within a second are one.
Must not know: mechanisms, sockets.
"""

import logging
import resource
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from kledger.gateway.net.failed_logins_state import FailedLogins
from kledger.gateway.services import CatchUp, Services
from kledger.runtime.blocking import BlockingPool
from kledger.security.audit import quoted
from kledger.security.principal import Principal

logger = logging.getLogger("kledger.audit")

UNAUTHENTICATED_MAX: Final = 1_024
"""Connections whose clients have not logged in; fewer if the process may open few files."""
FILES_SHARE: Final = 4
"""Connections without a login have at most this part of the files that the process may open."""
THREADS: Final = 2
LOG_INTERVAL_MS: Final = 1_000

T = TypeVar("T")


class PendingLogin(Protocol):
    """A login that may be ended from outside."""

    def give_up(self, reason: str) -> None:
        """Close its connection, and log why."""
        ...


class Logins:
    """The logins of one server."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._failed = FailedLogins()
        self._pending: dict[PendingLogin, None] = {}
        self._pool: BlockingPool | None = None
        self._is_logging = False
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._pending_max = min(UNAUTHENTICATED_MAX, limit // FILES_SHARE if limit > 0 else limit)
        counter = services.metrics.counter
        self._successes = counter("logins", "logins of Kafka clients that succeeded")
        self._failures = counter("failed_logins", "logins of Kafka clients that failed")
        services.metrics.gauge(
            "unauthenticated_connections",
            lambda: len(self._pending),
            "Kafka connections that have not logged in",
        )
        self.timers = services.timers
        self.wall_ms = services.clock.now_ms
        self.now_ms = services.clock.monotonic_ms
        self.spawn = services.supervisor.spawn

    @property
    def catch_up(self) -> CatchUp | None:
        """Applies the users and tokens that other brokers have changed; None: there are none."""
        return self._services.catch_up

    @property
    def failure_delay_ms(self) -> int:
        """How long the answer to a failed login waits."""
        return self._services.config.connection_failed_authentication_delay_ms

    def begin(self, login: PendingLogin) -> None:
        """Count a connection whose client has not logged in; close the oldest above the limit."""
        self._pending[login] = None
        while len(self._pending) > max(self._pending_max, 1):
            oldest = next(iter(self._pending))
            del self._pending[oldest]
            oldest.give_up(f"more than {self._pending_max} connections have not logged in")

    def end(self, login: PendingLogin) -> None:
        """Count a connection no more: its client has logged in, or it is closed."""
        self._pending.pop(login, None)

    def admits(self, address: str) -> bool:
        """Return whether a client of an address may try to log in; not after many failures."""
        return self._failed.admits(address, self.now_ms())

    def succeeded(self, principal: Principal, address: str, mechanism: str, listener: str) -> None:
        """Log that a client has logged in."""
        self._successes.value += 1
        logger.info(
            "login principal=%s address=%s mechanism=%s listener=%s",
            quoted(str(principal)),
            quoted(address),
            mechanism,
            listener,
        )

    def failed(self, address: str, reason: str) -> None:
        """Count a failed login, and log it within a second with the others of its address."""
        self._failures.value += 1
        self._failed.failed(address, reason, self.now_ms())
        if not self._is_logging:
            self._is_logging = True
            self.timers.call_after(LOG_INTERVAL_MS, self._log_failures)

    def _log_failures(self) -> None:
        self._is_logging = False
        for line in self._failed.take_lines():
            logger.warning(
                "failed logins address=%s count=%d last=%s",
                quoted(line.address),
                line.count,
                quoted(line.reason),
            )

    async def run(self, work: Callable[[], T]) -> T:
        """Do work in a thread."""
        if self._pool is None:
            self._pool = BlockingPool(THREADS)
        return await self._pool.run(work)

    def close(self) -> None:
        """Log what is not logged yet, and end the threads. Idempotent."""
        self._log_failures()
        if self._pool is not None:
            self._pool.close()
