"""RequestMeter: what the requests of one connection use of their client's quotas.

Rule: Produce is charged by the bytes of the request, Fetch by those of the response, every request
by the time that it keeps the server busy; handlers charge other quotas. A response is never held
back: it carries how long the client must wait, and its connection starts no request for as long
(KIP-219). Only the records of a fetch above its quota are left out; the client fetches them again.
Must not know: sockets, how the connection waits.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from kledger.gateway.net.ports import ResponseFrame
from kledger.gateway.quotas.client_quotas import BYTES_MAX, ClientQuotas
from kledger.gateway.served_apis import HANDLERS_BY_KEY
from kledger.gateway.wire.header import FETCH_KEY, PRODUCE_KEY, REQUEST_HEAD
from kledger.gateway.wire.throttle import set_throttle_time
from kledger.security.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from kledger.runtime.clock import Clock


class RequestMeter:
    """The meter of one connection, where only Produce requests run beside each other.

    Attributes:
        is_open: whether a request that runs alone is being metered.
    """

    __slots__ = (
        "_admitted_bytes",
        "_began_ms",
        "_client_id",
        "_clock",
        "_key",
        "_principal",
        "_produced_bytes",
        "_quotas",
        "_version",
        "_wait_ms",
        "is_open",
    )

    def __init__(self, quotas: ClientQuotas, clock: "Clock") -> None:
        self._quotas = quotas
        self._clock = clock
        self.is_open = False
        self._key = self._version = 0
        self._client_id = ""
        self._principal = ANONYMOUS
        self._began_ms = 0
        self._produced_bytes = 0
        self._admitted_bytes = 0
        self._wait_ms = 0

    def begin(self, frame: memoryview, principal: Principal) -> int:
        """Charge the start of a request; return the throttle time if it is known already, or 0."""
        self._principal = principal
        self._key, self._version, _, size = REQUEST_HEAD.unpack_from(frame)
        name = frame[REQUEST_HEAD.size : REQUEST_HEAD.size + max(size, 0)]
        self._client_id = str(name, "utf-8", "replace")
        self._began_ms = self._clock.monotonic_ms()
        self.is_open = self._key != PRODUCE_KEY
        self._wait_ms = self._admitted_bytes = 0
        if self._key == PRODUCE_KEY:
            self._produced_bytes = len(frame)
            self._wait_ms = self._quotas.charge_produce(
                self._principal, self._client_id, len(frame)
            )
        return self._wait_ms

    def started(self, *, is_put_back: bool) -> int:
        """Charge a Produce that was started, or refund one that was put back; return ms to wait."""
        if self._key != PRODUCE_KEY:
            return 0
        if is_put_back:
            self._quotas.charge_produce(self._principal, self._client_id, -self._produced_bytes)
            return 0
        return max(self._wait_ms, self._charge_time())

    @property
    def fetch_bytes_max(self) -> int:
        """How many bytes the response to the open fetch may have."""
        is_fetch = self.is_open and self._key == FETCH_KEY
        return (
            self._quotas.fetch_bytes_max(self._principal, self._client_id)
            if is_fetch
            else BYTES_MAX
        )

    def admits_fetched(self, size: int) -> bool:
        """Return whether that many bytes of records may be sent now; if so, they are charged."""
        if not self.is_open or self._key != FETCH_KEY:
            return True
        self._wait_ms = self._quotas.admit_fetch(self._principal, self._client_id, size)
        self._admitted_bytes = 0 if self._wait_ms else size
        return not self._wait_ms

    def add_wait(self, wait_ms: int) -> None:
        """Let the client of the open request wait for a quota that its handler has charged."""
        self._wait_ms = max(self._wait_ms, wait_ms)

    def answered(self, response: ResponseFrame, *, is_at_once: bool) -> tuple[ResponseFrame, int]:
        """Charge the response of a request that runs alone.

        Args:
            response: its frame.
            is_at_once: the request kept the server busy from its start to its response.

        Returns:
            The frame to send, and how many milliseconds the connection must wait.
        """
        if not self.is_open:
            return response, 0
        self.is_open = False
        wait_ms = max(self._wait_ms, self._charge_time() if is_at_once else 0)
        if self._key == FETCH_KEY and not self._wait_ms:
            size = sum(map(len, response)) - self._admitted_bytes
            wait_ms = max(
                wait_ms, self._quotas.charge_fetch(self._principal, self._client_id, size)
            )
        if wait_ms:
            stem = HANDLERS_BY_KEY[self._key].module
            cls = import_module(f"kledger.gateway.wire.messages.{stem}").RESPONSE
            response = set_throttle_time(response, cls, self._version, wait_ms)
        return response, wait_ms

    def _charge_time(self) -> int:
        used_ms = self._clock.monotonic_ms() - self._began_ms
        return self._quotas.charge_time(self._principal, self._client_id, used_ms) if used_ms else 0
