"""Effects: what a group wants done, as plain data.

Rule: a group never acts; each of its entry points fills one `Transition` and returns the effects,
in the order in which the group table performs them. One waiter is answered exactly once.
Must not know: groups, records, the table.
"""

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias


class TimerKey(NamedTuple):
    """Names one timer of a group; setting it again replaces it."""

    kind: str
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Respond:
    """Answer the request that waits under `waiter` with `result`."""

    waiter: int
    result: object


@dataclass(frozen=True, slots=True)
class Schedule:
    """Call `timer_fired(key)` after `delay_ms`, which replaces an earlier timer of that key."""

    key: TimerKey
    delay_ms: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Make sure that the timer does not fire; nothing if there is none."""

    key: TimerKey


@dataclass(frozen=True, slots=True)
class Persist:
    """Write a record; the group's `replay` gets it when it is durable.

    Attributes:
        record: None if nothing has changed.
        answers: waiters and their results, for when this record and every one before it are
            durable. If the last of these writes fails, each waiter gets its refusal instead.
    """

    record: object
    answers: tuple[tuple[int, object], ...] = ()


Effect: TypeAlias = Respond | Schedule | Cancel | Persist


@dataclass(slots=True)
class Transition:
    """One event being handled: its time, and the effects collected so far.

    Attributes:
        now_ms: monotonic time of the event.
        effects: in order.
    """

    now_ms: int
    effects: list[Effect] = field(default_factory=list)

    def answer(self, waiter: int, result: object) -> None:
        """Add a `Respond`."""
        self.effects.append(Respond(waiter, result))

    def schedule(self, key: TimerKey, delay_ms: int) -> None:
        """Add a `Schedule`."""
        self.effects.append(Schedule(key, delay_ms))

    def cancel(self, key: TimerKey) -> None:
        """Add a `Cancel`."""
        self.effects.append(Cancel(key))

    def persist(self, record: object, *answers: tuple[int, object]) -> None:
        """Add a `Persist`."""
        self.effects.append(Persist(record, answers))
