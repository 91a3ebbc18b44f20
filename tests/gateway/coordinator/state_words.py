"""A group of either protocol with a hand-moved clock: its timers, its waiters and its storage.

`answers` holds the answer of each waiter; records wait in `unstored` until `store` ends their
writes, or are durable at once with `stores_at_once`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from kledger.gateway.coordinator.effects import Cancel, Effect, Persist, Respond, Schedule, TimerKey

R = TypeVar("R")


class AnyGroup(Protocol):
    """What both kinds of groups have."""

    def timer_fired(self, key: TimerKey, now_ms: int) -> list[Effect]: ...

    def abandon(self, waiter: int, now_ms: int) -> list[Effect]: ...


class StateWorld(ABC, Generic[R]):
    """One group and what its table would do for it."""

    def __init__(self, *, stores_at_once: bool) -> None:
        self.stores_at_once = stores_at_once
        self.now_ms = 1_000
        self.timers: dict[TimerKey, int] = {}
        self.answers: dict[int, object] = {}
        self.unstored: list[tuple[R, list[tuple[int, object]]]] = []
        self.durable: R | None = None
        self.waiter_count = 0
        self._abandoned: set[int] = set()

    # What each kind of group does.

    @property
    @abstractmethod
    def hosted(self) -> AnyGroup: ...

    @abstractmethod
    def replay(self, record: R) -> list[Effect]: ...

    @abstractmethod
    def write_failed(self, record: R) -> list[Effect]: ...

    @abstractmethod
    def refusal(self, result: object) -> object: ...

    # The world.

    def next_waiter(self) -> int:
        self.waiter_count += 1
        return self.waiter_count

    def is_waiting(self, waiter: int) -> bool:
        return waiter not in self.answers

    def abandon(self, waiter: int) -> None:
        self._abandoned.add(waiter)
        self.perform(self.hosted.abandon(waiter, self.now_ms))

    def advance(self, ms: int) -> None:
        """Let time pass; timers fire at their time, in order."""
        end_ms = self.now_ms + ms
        while due := [(at, key) for key, at in self.timers.items() if at <= end_ms]:
            at, key = min(due)
            self.now_ms = max(self.now_ms, at)
            del self.timers[key]
            self.perform(self.hosted.timer_fired(key, self.now_ms))
        self.now_ms = end_ms

    def store(self, *, failed: bool = False) -> None:
        """End every write under way."""
        while self.unstored:
            record, answers = self.unstored.pop(0)
            if failed:
                answers = [(waiter, self.refusal(result)) for waiter, result in answers]
                self.perform(self.write_failed(record), is_event=False)
            else:
                self.durable = record
                self.perform(self.replay(record), is_event=False)
            for waiter, result in answers:
                self._answer(waiter, result)

    def perform(self, effects: Iterable[Effect], *, is_event: bool = True) -> None:
        for effect in effects:
            match effect:
                case Respond(waiter, result):
                    self._answer(waiter, result)
                case Schedule(key, delay_ms):
                    assert delay_ms >= 0
                    self.timers[key] = self.now_ms + delay_ms
                case Cancel(key):
                    self.timers.pop(key, None)
                case Persist(None, answers):
                    if self.unstored:
                        self.unstored[-1][1].extend(answers)
                    else:
                        for waiter, result in answers:
                            self._answer(waiter, result)
                case Persist(record, answers):
                    self.unstored.append((record, list(answers)))  # type: ignore[arg-type]
        if self.stores_at_once and is_event:
            self.store()

    def _answer(self, waiter: int, result: object) -> None:
        if waiter not in self._abandoned:
            assert waiter not in self.answers, f"waiter {waiter} answered twice"
            self.answers[waiter] = result
