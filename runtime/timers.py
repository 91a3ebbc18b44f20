"""Timers: many deadlines, at most one sleeping task.

Rule: `TimerTable` only knows deadlines and is plain data, for pure states and simulations; `Timers`
sleeps until the nearest one and calls back on the loop, never early, in the order of deadlines.
Setting or cancelling costs a heap entry, not a task or a timer of the loop. A callback that raises
closes the unit of failure that it belongs to; all other deadlines stay.
Must not know: what a key or a callback is for.
"""

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Hashable
from itertools import count
from typing import Generic, TypeVar

from kledger.runtime.clock import Clock
from kledger.runtime.containment import FaultUnit, unit_of
from kledger.runtime.tasks import Supervisor

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")

STALE_MIN = 8
"""Cancelled heap entries that are tolerated before the heap is rebuilt."""


class TimerTable(Generic[Key]):
    """One deadline per key; keys of one deadline are due in the order in which they were set."""

    __slots__ = ("_heap", "_live", "_order")

    def __init__(self) -> None:
        self._order = count()
        self._live: dict[Key, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, Key]] = []

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, key: Key) -> bool:
        return key in self._live

    def set(self, key: Key, deadline_ms: int) -> None:
        """Set the deadline of `key`; an older one is replaced."""
        order = next(self._order)
        self._live[key] = (deadline_ms, order)
        heapq.heappush(self._heap, (deadline_ms, order, key))
        self._maybe_rebuild()

    def cancel(self, key: Key) -> bool:
        """Forget the deadline of `key`; return whether it had one."""
        was_set = self._live.pop(key, None) is not None
        self._maybe_rebuild()
        return was_set

    def pop_due(self, now_ms: int) -> list[Key]:
        """Remove and return the keys whose deadline is `now_ms` or before, earliest first."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            deadline_ms, order, key = heapq.heappop(self._heap)
            if self._live.get(key) == (deadline_ms, order):
                del self._live[key]
                due.append(key)
        return due

    def next_deadline_ms(self) -> int | None:
        """Return the nearest deadline, or None when no key has one."""
        while self._heap:
            deadline_ms, order, key = self._heap[0]
            if self._live.get(key) == (deadline_ms, order):
                return deadline_ms
            heapq.heappop(self._heap)
        return None

    def _maybe_rebuild(self) -> None:
        if len(self._heap) > 2 * len(self._live) + STALE_MIN:
            self._heap = [(deadline, order, key) for key, (deadline, order) in self._live.items()]
            heapq.heapify(self._heap)


class TimerHandle:
    """One pending call, to cancel it."""

    __slots__ = ("_callback", "_table", "_unit")

    def __init__(
        self,
        table: "TimerTable[TimerHandle]",
        callback: Callable[[], None],
        unit: FaultUnit | None,
    ) -> None:
        self._table = table
        self._callback = callback
        self._unit = unit

    @property
    def is_pending(self) -> bool:
        """Whether the call was neither made nor cancelled."""
        return self in self._table

    def cancel(self) -> None:
        """Cancel the call; does nothing if it was made or cancelled."""
        self._table.cancel(self)
        self.release()  # its heap entry may stay for long

    @property
    def unit(self) -> FaultUnit:
        """What a fault of the call closes."""
        return self._unit or unit_of(self._callback, "timer")

    def fire(self) -> None:
        """Make the call; only for `Timers`."""
        self._callback()

    def release(self) -> None:
        """Drop the reference to the callback, as the owner may keep the handle."""
        self._callback, self._unit = _no_callback, None


def _no_callback() -> None:
    """Do nothing: the call was made, or cancelled."""


class Timers:
    """Calls back at given times."""

    def __init__(self, clock: Clock, supervisor: Supervisor) -> None:
        self._clock = clock
        self._supervisor = supervisor
        self._table: TimerTable[TimerHandle] = TimerTable()
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_ms = 0

    def __len__(self) -> int:
        return len(self._table)

    def call_at(
        self, deadline_ms: int, callback: Callable[[], None], unit: FaultUnit | None = None
    ) -> TimerHandle:
        """Call `callback` once, when the clock's monotonic time reaches `deadline_ms`.

        Args:
            deadline_ms: the time.
            callback: what to call; a periodic one must set its next call before it does anything
                that
                may raise.
            unit: what a fault of the callback closes; None when there is nothing to close.
        """
        handle = TimerHandle(self._table, callback, unit)
        self._table.set(handle, deadline_ms)
        if self._alarm is None or deadline_ms < self._alarm_ms:
            self._arm(deadline_ms)
        return handle

    def call_after(
        self, delay_ms: int, callback: Callable[[], None], unit: FaultUnit | None = None
    ) -> TimerHandle:
        """Call `callback` once, `delay_ms` from now; see `call_at`."""
        return self.call_at(self._clock.monotonic_ms() + delay_ms, callback, unit)

    def _arm(self, deadline_ms: int) -> None:
        """Replace the sleeping task by one that wakes at `deadline_ms`."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_ms = deadline_ms
        self._alarm = self._supervisor.spawn(self._sleep_and_fire(), "timers")

    async def _sleep_and_fire(self) -> None:
        while (deadline_ms := self._table.next_deadline_ms()) is not None:
            self._alarm_ms = deadline_ms
            delay_ms = deadline_ms - self._clock.monotonic_ms()
            if delay_ms > 0:
                await self._clock.sleep(delay_ms)
            # While callbacks run, a new deadline must not cancel this task: it re-reads the table.
            self._alarm_ms = -1
            for handle in self._table.pop_due(self._clock.monotonic_ms()):
                try:
                    handle.fire()
                except Exception as error:  # noqa: BLE001 - it closes the timer's unit
                    self._supervisor.containment.failed(handle.unit, error)
                handle.release()
        self._alarm = None


async def within(timers: Timers, limit_ms: int, work: Awaitable[Result]) -> Result:
    """Await work for a limited time; it is cancelled when the time is over.

    Args:
        timers: that measure it.
        limit_ms: how long it may take.
        work: what the calling task awaits.

    Raises:
        TimeoutError: it was cancelled.
    """
    task, is_over = asyncio.current_task(), False
    assert task is not None, "called outside a task"

    def end() -> None:
        nonlocal is_over
        is_over = True
        task.cancel()

    timer = timers.call_after(limit_ms, end)
    try:
        return await work
    except asyncio.CancelledError:
        # Another caller has cancelled the task: it ends.
        if is_over and task.uncancel() == 0:
            raise TimeoutError(f"not done within {limit_ms} ms") from None
        raise
    finally:
        timer.cancel()
