"""Schedule: virtual time, and the work of other threads.

Rule: time passes only here. The durations of callbacks and of work in threads are drawn from the
seed; so one number determines every interleaving, and reproduces it.
Must not know: what the work is.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import TypeVar

Choice = TypeVar("Choice")


@dataclass(frozen=True, slots=True)
class Pace:
    """Speeds in one run.

    Attributes:
        callback_us: the longest duration of a callback.
        work_us: possible longest durations of work in a thread; one is drawn for each call.
    """

    callback_us: int
    work_us: tuple[int, ...]


class Event:
    """A pending step of a thread."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def finish(self) -> None:
        """Do it now, for a waiting caller; nothing if it is done."""
        action, self.action = self.action, None
        if action is not None:
            action()


class Schedule:
    """Pending events, by due time."""

    def __init__(self, random: Random, pace: Pace) -> None:
        self.now_us = 0
        self.in_thread = False
        """Whether the running code runs in a thread."""
        self.interruption: BaseException | None = None
        """What ends the run before its next callback: a crash, or a broken invariant."""
        self._random = random
        self._pace = pace
        self._order = count()
        self._heap: list[tuple[int, float, int, Event]] = []

    @property
    def next_us(self) -> int | None:
        """When the next event is due."""
        while self._heap and self._heap[0][3].action is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def tie(self) -> float:
        """Draw a number that orders events that are due at the same time."""
        return self._random.random()

    def after(self, delay_us: int, action: Callable[[], None]) -> Event:
        """Schedule a step of a thread; steps that are due at the same time run in random order."""
        event = Event(action)
        entry = (self.now_us + delay_us, self.tie(), next(self._order), event)
        heapq.heappush(self._heap, entry)
        return event

    def work(self, action: Callable[[], None]) -> Event:
        """Schedule a step of a thread after a drawn delay."""
        return self.after(self.work_us(), action)

    def work_us(self) -> int:
        """Draw the duration of a call in a thread."""
        return int(self._random.random() * self._random.choice(self._pace.work_us))

    def pick(self, choices: Sequence[Choice]) -> Choice:
        """Draw an unpredictable decision of a thread."""
        return self._random.choice(choices)

    def pass_time(self) -> None:
        """Advance time by a part of a callback, and run the threads' steps in it."""
        self.now_us += int(self._random.random() * self._pace.callback_us)
        if self._heap and self._heap[0][0] <= self.now_us:
            self._run_due()

    def jump_to(self, when_us: int) -> None:
        """Advance time while the event loop is idle."""
        self.now_us = max(self.now_us, when_us)
        self._run_due()

    def interrupt(self, error: BaseException) -> None:
        """End the run; the first reason counts."""
        if self.interruption is None:
            self.interruption = error

    def forget_all(self) -> None:
        """Drop all threads, as the process has ended."""
        self._heap.clear()
        self.interruption = None

    def _run_due(self) -> None:
        if self.in_thread:
            return
        self.in_thread = True
        try:
            while self._heap and self._heap[0][0] <= self.now_us:
                heapq.heappop(self._heap)[3].finish()
        finally:
            self.in_thread = False
