"""Schedule: virtual time, and what other threads do in it.

Rule: time passes only here. A callback of the event loop takes a moment, work in a thread takes
longer, and both are drawn from the seed; so one number decides every order in which the two can
meet, and the same number decides it again.
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
    """How fast things go in one run.

    Attributes:
        callback_us: the longest time that a callback takes.
        work_us: how long work in a thread takes at most; one of them is drawn for each piece.
    """

    callback_us: int
    work_us: tuple[int, ...]


class Event:
    """Something that a thread will do."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def finish(self) -> None:
        """Do it now, for somebody who waits for it; nothing if it is done."""
        action, self.action = self.action, None
        if action is not None:
            action()


class Schedule:
    """What is still to come, by the time at which it is due."""

    def __init__(self, random: Random, pace: Pace) -> None:
        self.now_us = 0
        self.in_thread = False
        """Whether what runs at this moment runs beside the event loop."""
        self.interruption: BaseException | None = None
        """What ends the run before its next callback: a crash, or an invariant that broke."""
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
        """Draw what decides between two things that are due at the same time."""
        return self._random.random()

    def after(self, delay_us: int, action: Callable[[], None]) -> Event:
        """Let a thread do something in a while; of two of one moment either may be first."""
        event = Event(action)
        entry = (self.now_us + delay_us, self.tie(), next(self._order), event)
        heapq.heappush(self._heap, entry)
        return event

    def work(self, action: Callable[[], None]) -> Event:
        """Let a thread do something as soon as it gets to it."""
        return self.after(self.work_us(), action)

    def work_us(self) -> int:
        """Draw how long a piece of work takes."""
        return int(self._random.random() * self._random.choice(self._pace.work_us))

    def pick(self, choices: Sequence[Choice]) -> Choice:
        """Draw what a thread decides in a way that nobody can foresee."""
        return self._random.choice(choices)

    def pass_time(self) -> None:
        """Let the time of a part of a callback pass, and happen what threads do in it."""
        self.now_us += int(self._random.random() * self._pace.callback_us)
        if self._heap and self._heap[0][0] <= self.now_us:
            self._run_due()

    def jump_to(self, when_us: int) -> None:
        """Let time pass in which the event loop has nothing to do."""
        self.now_us = max(self.now_us, when_us)
        self._run_due()

    def interrupt(self, error: BaseException) -> None:
        """End the run; the first reason counts."""
        if self.interruption is None:
            self.interruption = error

    def forget_all(self) -> None:
        """The process with its threads has died."""
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
