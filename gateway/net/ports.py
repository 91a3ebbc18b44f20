"""Ports: what the parts of the gateway see of one connection.

Rule: a part names here what it calls, and gets the connection itself; so nothing below the
connection imports it. `ResponsePort` is for the handlers of Produce and Fetch, `NewConnection` for
the quotas of connections, `ServedConnection` for the listener.
Must not know: sockets, what a request means.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from kledger.gateway.net.connection_state import ResponseSlot
from kledger.gateway.peer import Peer
from kledger.gateway.wire.primitives import Buffer
from kledger.runtime.containment import FaultUnit

ResponseFrame = Sequence[Buffer]
"""The whole frame of a response, with its size, as buffers that follow each other."""


class FetchMeter(Protocol):
    """The quota of a client, as its fetch sees it."""

    @property
    def fetch_bytes_max(self) -> int:
        """How many bytes the response may have."""
        ...

    def admits_fetched(self, size: int) -> bool:
        """Return whether that many bytes of records may be sent now; if not, the client waits."""
        ...


class FetchSpace(Protocol):
    """The space that unsent responses of all connections leave for the fetches of one."""

    @property
    def fetch_bytes_max(self) -> int:
        """How many bytes a fetch may add now; its first batch may be larger."""
        ...

    def admitted_bytes(self) -> int:
        """Return `fetch_bytes_max`; 0: a fetch must `wait_for_room` before it is answered."""
        ...

    def wait_for_room(self, resume: Callable[[], None]) -> None:
        """Call `resume` when there is room; never after the connection was closed."""
        ...

    def reserve(self, size: int) -> None:
        """Reserve bytes for a read of the storage; a second reservation replaces the first."""
        ...

    def release(self) -> None:
        """Release what was reserved."""
        ...


class ResponsePort(FaultUnit, Protocol):
    """The connection of a request, as the handlers of Produce and Fetch see it."""

    connection_id: int
    peer: Peer
    """The client."""
    throttle_time_ms: int
    """How long the client of the request that is being started must wait (KIP-219)."""
    retained_slot: ResponseSlot | None
    """What a handler keeps for the next request of this connection; abandoned with it."""
    is_closed: bool
    """Whether nothing more will be sent."""

    @property
    def peer_host(self) -> str:
        """The address of the client."""
        ...

    @property
    def fetch_space(self) -> FetchSpace:
        """What the unsent responses of all connections leave for its fetches."""
        ...

    @property
    def meter(self) -> FetchMeter:
        """What the client's quota leaves for its fetch."""
        ...

    def open_slot(self, slot: ResponseSlot, *, is_exclusive: bool) -> None:
        """Append a slot to the queue of responses; exclusive: no later request starts before it."""
        ...

    def slot_ready(self, slot: ResponseSlot) -> None:
        """Send the slot's response as soon as all responses before it were sent."""
        ...

    def respond(self, response: ResponseFrame) -> None:
        """Answer a request that runs alone and opened no slot."""
        ...

    def finish_at_tick_end(self, slot: ResponseSlot) -> None:
        """Call `slot.finish` once at the end of this tick, before responses are written."""
        ...

    def fail(self, reason: str) -> None:
        """Close the connection because of its client, and log why."""
        ...

    def abort(self) -> None:
        """Close the connection without writing what is unsent."""
        ...

    def contain(self, error: Exception) -> None:
        """Close the connection because of an error of its request, and log it."""
        ...


class FrameHandler(Protocol):
    """A handler that reads the frame itself: Produce and Fetch."""

    def start(
        self,
        port: ResponsePort,
        frame: memoryview,
        version: int,
        body_start: int,
        correlation_id: int,
        *,
        is_owned: bool,
    ) -> Coroutine[Any, Any, None] | None:
        """Start one request.

        Args:
            port: the connection of the request.
            frame: the request without its size. Valid during this call only, unless `is_owned`.
            version: API version.
            body_start: where the header ends.
            correlation_id: of the request.
            is_owned: the memory of `frame` is never written again, so parts of it may be kept.

        Returns:
            None if the request was started. Otherwise a coroutine, which the connection runs before
            it starts the same request again.

        Raises:
            MalformedMessage: the connection is closed.
        """
        ...


class NewConnection(FaultUnit, Protocol):
    """A connection that `ConnectionQuotas` admits or closes."""

    @property
    def peer_host(self) -> str:
        """The address of the client."""
        ...

    def begin(self) -> None:
        """Serve requests from now on."""
        ...

    def fail(self, reason: str) -> None:
        """Close the connection because of its client, and log why."""
        ...

    def abort(self) -> None:
        """Close the connection without writing what is unsent."""
        ...


class ServedConnection(NewConnection, Protocol):
    """A connection as its listener sees it."""

    connection_id: int

    @property
    def is_parked(self) -> bool:
        """Whether its first request waits for an event."""
        ...

    def end_tick(self) -> None:
        """Write responses: the end of the tick has come."""
        ...

    def check_limits(self) -> None:
        """Pause or resume reading, by the limits."""
        ...

    def store_drained(self) -> None:
        """Go on with Produce: the store accepts writes again."""
        ...

    def close_if_idle(self, last_idle_tick: int) -> None:
        """Close if nothing arrived since that idle tick."""
        ...
