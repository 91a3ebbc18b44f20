"""Connection state: which request of one connection may start, and which response may leave.

Rule: responses leave in the order of their requests. Produce pipelines behind Produce; any other
request starts when every earlier response is complete, runs alone, and what comes after it waits.
Kafka serves a connection one request at a time, so a client cannot see a difference but speed.
Must not know: sockets, frames' contents, the event loop.
"""

from collections import deque
from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview

# Why nothing may start on a connection for the time being; several may hold at once.
HOLD_SLOW_READER = 1
"""The peer does not take its responses: another one would only pile up."""
HOLD_BLOCKED = 2
"""The first waiting request needs something that is being fetched, such as a partition's log."""
HOLD_SATURATED = 4
"""The store has as much to write as it accepts."""
HOLD_STOPPING = 8
"""The server is about to stop; started requests are answered, others are not started."""
HOLD_THROTTLED = 16
"""The client used more than its quota: it was told so, and its next request waits (KIP-219)."""


class MsCounter(Protocol):
    """A number that is added to."""

    value: int


HOLD_NOT_ADMITTED = 32
"""The connection was not let in: there is no place for it yet, or it came too early."""


class ResponseSlot:
    """The place of one response in the order of a connection.

    Attributes:
        response: the whole response frame in pieces; None while it is awaited.
        request_bytes: what the request counts against the limits until it is answered.
        begun_ms: monotonic time at which the request was started.
        request_ms: where the time until its response is counted; there once it is opened.
    """

    __slots__ = ("begun_ms", "is_exclusive", "request_bytes", "request_ms", "response")

    def __init__(self) -> None:
        self.response: Sequence[Buffer] | None = None
        self.request_bytes = self.begun_ms = 0
        self.request_ms: MsCounter
        self.is_exclusive = False

    @property
    def is_parked(self) -> bool:
        """Whether it waits for something to happen, not for work that is under way."""
        return False

    def abandon(self) -> None:
        """The connection is gone: let go of whatever was to complete this slot."""

    def finish(self) -> None:
        """The end of the loop turn that was asked for is there."""

    def answer_now(self) -> None:
        """The server is about to stop: answer now with what there is, if it can be done."""


class ByteBudget:
    """Bytes that all connections of a server hold together."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    @property
    def is_exceeded(self) -> bool:
        """Whether no more may be read."""
        return self.used > self.limit


class ConnectionState:
    """The requests of one connection that were read and whose responses have not left."""

    __slots__ = ("_budget", "_waiting", "holds", "is_exclusive", "output", "request_bytes", "slots")

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._waiting: deque[tuple[memoryview, bool]] = deque()
        self.slots: deque[ResponseSlot] = deque()
        self.output: list[Buffer] = []
        """Pieces of complete responses whose turn has come, ready to be written."""
        self.is_exclusive = False
        """Whether a request that must run alone is running."""
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
        """Whether everything that was read is answered, and every answer was taken to be sent."""
        return not self.slots and not self._waiting and not self.output

    def can_start(self, is_pipelined: bool) -> bool:
        """Return whether a request that just arrived may start at once."""
        if self._waiting or self.holds or self.is_exclusive:
            return False
        return is_pipelined or not self.slots

    def wait(self, frame: memoryview, *, is_pipelined: bool, is_first: bool = False) -> None:
        """Queue a request that cannot start; `is_first` puts one back that had been taken out."""
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
        """Give a started request its place in the order of responses."""
        assert not self.is_exclusive, "a request started beside one that must run alone"
        assert not (is_exclusive and self.slots), "an exclusive request started behind others"
        slot.request_bytes = request_bytes
        slot.is_exclusive = self.is_exclusive = is_exclusive
        self.slots.append(slot)
        self.request_bytes += request_bytes
        self._budget.used += request_bytes

    def advance(self) -> bool:
        """Move the responses whose turn has come to the output; return whether there were any."""
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
        """Forget everything because the connection is gone; return the slots that were open."""
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
