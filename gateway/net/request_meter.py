"""RequestMeter: what the requests of one connection use of their client's quotas.

Rule: Produce is counted by the bytes of the request, Fetch by those of the response, everything by
the time that it keeps the server busy, and handlers say what else was used. A response is never
held back: it tells how long the client is to wait, and its connection waits (KIP-219). Only the
records of a fetch over its quota stay behind, as the client asks for them again.
Must not know: sockets, how the connection waits.
"""

from importlib import import_module
from struct import Struct
from typing import TYPE_CHECKING

from kledger.gateway.quotas.client_quotas import BYTES_MAX, ClientQuotas
from kledger.gateway.served_apis import HANDLERS_BY_KEY
from kledger.gateway.wire.throttle import set_throttle_time

if TYPE_CHECKING:
    from kledger.gateway.net.router import ResponseFrame
    from kledger.runtime.clock import Clock

HEAD = Struct(">hhih")
"""Key, version, correlation id and the size of the client id."""
PRODUCE, FETCH = 0, 1


class RequestMeter:
    """One connection's meter; of requests that run beside each other only Produce is there.

    Attributes:
        is_open: whether a request that runs alone is being counted.
    """

    __slots__ = (
        "_admitted_bytes",
        "_began_ms",
        "_client_id",
        "_clock",
        "_key",
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
        self._began_ms = 0
        self._produced_bytes = 0
        self._admitted_bytes = 0
        self._wait_ms = 0

    def begin(self, frame: memoryview) -> int:
        """A request is being started; return what its response is to tell, if that is known yet."""
        self._key, self._version, _, size = HEAD.unpack_from(frame)
        name = frame[HEAD.size : HEAD.size + max(size, 0)]
        self._client_id = str(name, "utf-8", "replace")
        self._began_ms = self._clock.monotonic_ms()
        self.is_open = self._key != PRODUCE
        self._wait_ms = self._admitted_bytes = 0
        if self._key == PRODUCE:
            self._produced_bytes = len(frame)
            self._wait_ms = self._quotas.charge_produce(self._client_id, len(frame))
        return self._wait_ms

    def started(self, *, is_put_back: bool) -> int:
        """The request was started, or put back to be started again; return how long to wait."""
        if self._key != PRODUCE:
            return 0
        if is_put_back:
            self._quotas.charge_produce(self._client_id, -self._produced_bytes)
            return 0
        return max(self._wait_ms, self._charge_time())

    @property
    def fetch_bytes_max(self) -> int:
        """How many bytes the response to the fetch that is open may have."""
        is_fetch = self.is_open and self._key == FETCH
        return self._quotas.fetch_bytes_max(self._client_id) if is_fetch else BYTES_MAX

    def admits_fetched(self, size: int) -> bool:
        """Return whether so many bytes of records may leave, and count them then."""
        if not self.is_open or self._key != FETCH:
            return True
        self._wait_ms = self._quotas.admit_fetch(self._client_id, size)
        self._admitted_bytes = 0 if self._wait_ms else size
        return not self._wait_ms

    def add_wait(self, wait_ms: int) -> None:
        """The request that is open used more than its client's quota of something else."""
        self._wait_ms = max(self._wait_ms, wait_ms)

    def answered(
        self, response: "ResponseFrame", *, is_at_once: bool
    ) -> "tuple[ResponseFrame, int]":
        """A request that runs alone was answered.

        Args:
            response: its frame.
            is_at_once: it kept the server busy all the time since it was started.

        Returns:
            The frame to be sent, and how long to wait.
        """
        if not self.is_open:
            return response, 0
        self.is_open = False
        wait_ms = max(self._wait_ms, self._charge_time() if is_at_once else 0)
        if self._key == FETCH and not self._wait_ms:
            size = sum(map(len, response)) - self._admitted_bytes
            wait_ms = max(wait_ms, self._quotas.charge_fetch(self._client_id, size))
        if wait_ms:
            stem = HANDLERS_BY_KEY[self._key].module
            cls = import_module(f"kledger.gateway.wire.messages.{stem}").RESPONSE
            response = set_throttle_time(response, cls, self._version, wait_ms)
        return response, wait_ms

    def _charge_time(self) -> int:
        used_ms = self._clock.monotonic_ms() - self._began_ms
        return self._quotas.charge_time(self._client_id, used_ms) if used_ms else 0
