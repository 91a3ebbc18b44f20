"""Connection state: which request of one connection may start, and which response may be sent.

Rule: responses are sent in the order of their requests. Produce pipelines behind Produce; any other
request starts when all earlier responses are complete, runs alone, and later ones wait for it.
Kafka serves a connection one request at a time, so a client can see no difference but speed.
Must not know: sockets, the contents of frames, the event loop.
"""

from collections import deque
from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview

# Why no request of a connection may start for now; several may hold at once.
HOLD_SLOW_READER = 1
"""The client does not read its responses: another one would only pile up."""
HOLD_BLOCKED = 2
"""The first waiting request needs something that is being prepared, such as an open log."""
HOLD_SATURATED = 4
"""The write queue of the store is full."""
HOLD_STOPPING = 8
"""The server is stopping: started requests are answered, no other one is started."""
HOLD_THROTTLED = 16
"""The client exceeded a quota: its response carries the throttle time, and its next request waits
(KIP-219)."""


class MsCounter(Protocol):
    """A counter of milliseconds."""

    value: int


HOLD_NOT_ADMITTED = 32
"""The connection is not admitted: there are too many, or it came too early."""


class ResponseSlot:
    """One response in the queue of a connection.

    Attributes:
        response: the buffers of the whole frame; None until the response is ready.
        request_bytes: bytes of the request; they count against limits until it is answered.
        begun_ms: monotonic time at which the request was started.
        request_ms: counts the time from its start to its response; set when it is opened.
    """

    __slots__ = ("begun_ms", "is_exclusive", "request_bytes", "request_ms", "response")

    def __init__(self) -> None:
        self.response: Sequence[Buffer] | None = None
        self.request_bytes = self.begun_ms = 0
        self.request_ms: MsCounter
        self.is_exclusive = False

    @property
    def is_parked(self) -> bool:
        """Whether it waits for an event, not for work that is under way."""
        return False

    def abandon(self) -> None:
        """Drop what would complete this slot: its connection is closed."""

    def finish(self) -> None:
        """Act at the end of the tick, after `finish_at_tick_end`."""

    def answer_now(self) -> None:
        """Answer now with what there is, if possible: the server is stopping."""


class ByteBudget:
    """Bytes of requests that all connections of a listener hold together."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    @property
    def is_exceeded(self) -> bool:
        """Whether no further bytes may be read."""
        return self.used > self.limit


class ConnectionState:
    """The requests of one connection that were read and whose responses are not sent."""

    __slots__ = ("_budget", "_waiting", "holds", "is_exclusive", "output", "request_bytes", "slots")

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._waiting: deque[tuple[memoryview, bool]] = deque()
        self.slots: deque[ResponseSlot] = deque()
        self.output: list[Buffer] = []
        """Buffers of complete responses that are next in order, ready to be written."""
        self.is_exclusive = False
        """Whether a request that runs alone is running."""
        self.holds = 0
        self.request_bytes = 0

    @property
    def request_count(self) -> int:
        """Requests that were read and are not answered."""
        return len(self.slots) + len(self._waiting)

    @property
    def waiting_count(self) -> int:
        """Requests that were read and not started."""
        return len(self._waiting)

    @property
    def is_finished(self) -> bool:
        """Whether all requests are answered, and all responses taken by `take_output`."""
        return not self.slots and not self._waiting and not self.output

    def can_start(self, is_pipelined: bool) -> bool:
        """Return whether a request that just arrived may start at once."""
        if self._waiting or self.holds or self.is_exclusive:
            return False
        return is_pipelined or not self.slots

    def wait(self, frame: memoryview, *, is_pipelined: bool, is_first: bool = False) -> None:
        """Queue a request that cannot start; `is_first` puts one back that was started."""
        self._count(len(frame))
        if is_first:
            self._waiting.appendleft((frame, is_pipelined))
        else:
            self._waiting.append((frame, is_pipelined))

    def take_startable(self) -> memoryview | None:
        """Remove and return the first waiting request if it may start now."""
        if not self._waiting or self.holds or self.is_exclusive:
            return None
        frame, is_pipelined = self._waiting[0]
        if self.slots and not is_pipelined:
            return None
        del self._waiting[0]
        self._count(-len(frame))
        return frame

    def open(self, slot: ResponseSlot, request_bytes: int, is_exclusive: bool) -> None:
        """Append the slot of a started request to the queue of responses."""
        assert not self.is_exclusive, "a request started beside one that must run alone"
        assert not (is_exclusive and self.slots), "an exclusive request started behind others"
        slot.request_bytes = request_bytes
        slot.is_exclusive = self.is_exclusive = is_exclusive
        self.slots.append(slot)
        self.request_bytes += request_bytes
        self._budget.used += request_bytes

    def advance(self) -> bool:
        """Move the responses that are next in order to the output; return whether any moved."""
        slots = self.slots
        moved = False
        while slots and (response := slots[0].response) is not None:
            slot = slots.popleft()
            self.request_bytes -= slot.request_bytes
            self._budget.used -= slot.request_bytes
            if slot.is_exclusive:
                self.is_exclusive = False
            self.output.extend(response)
            moved = True
        return moved

    def take_output(self) -> list[Buffer]:
        """Remove and return what is ready to be written."""
        output = self.output
        self.output = []
        return output

    def clear(self) -> list[ResponseSlot]:
        """Forget everything, as the connection is closed; return the slots that were open."""
        abandoned = list(self.slots)
        self._count(-self.request_bytes)
        self.slots.clear()
        self._waiting.clear()
        self.output = []
        self.is_exclusive = False
        return abandoned

    def drop_waiting(self) -> None:
        """Forget the requests that did not start."""
        for frame, _ in self._waiting:
            self._count(-len(frame))
        self._waiting.clear()

    def _count(self, request_bytes: int) -> None:
        self.request_bytes += request_bytes
        self._budget.used += request_bytes
