"""WAL plan: whether a group goes inline or into an object, and when each PUT of it begins.

Rule: a small group goes inline while the budget of the database lasts, any other one becomes an
object. PUTs of groups begin at most so many times a second; after a failure under one key the same
key is used again, and beside a PUT that takes much longer than usual a second one begins, once,
under a key of its own. Which of the two is stored first is the object.
Must not know: object stores, databases, clocks. Times are milliseconds of a monotonic clock.

| limit                     | why                                                                  |
|---------------------------|----------------------------------------------------------------------|
| `puts_per_second`         | a PUT has a price; at 8 a second it is $105 a month                  |
| `inline_group_bytes_max`  | 64 KiB inline cost the database 1.1 ms, less than half of a PUT      |
| `inline_bytes_per_second` | inline bytes go through the database's own log, and to its standby   |
"""

from bisect import insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

LATENCIES_KEPT = 200
"""PUTs that the usual latency is taken of; the oldest are forgotten."""
USUAL_P95_MS = 150
"""Taken as usual until `LATENCIES_MIN` PUTs were measured."""
LATENCIES_MIN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WalLimits:
    """Limits of the writing of groups.

    Attributes:
        puts_per_second: how often a PUT of a group begins at most; retries and second PUTs do not
            count.
        inline_group_bytes_max: a group up to this size may go inline.
        inline_bytes_per_second: how much goes inline in the long run.
        inline_alive_bytes_max: how much may be inline at once, until it is collected into objects.
        hedge_factor: a second PUT begins after so many times the usual p95.
        backoff_ms: before the second, third ... try under one key; the last one repeats.
        give_up_ms: a group whose object is not stored after so long has failed.
    """

    puts_per_second: float = 8.0
    inline_group_bytes_max: int = 64 * 1024
    inline_bytes_per_second: int = 1_000_000
    inline_alive_bytes_max: int = 64 * 1024 * 1024
    hedge_factor: float = 2.0
    backoff_ms: Sequence[int] = (50, 100, 200, 500, 1000, 2000)
    give_up_ms: int = 60_000

    @property
    def put_period_ms(self) -> int:
        """Time between the beginnings of two PUTs at least."""
        return int(1000 / self.puts_per_second)


class InlineBudget:
    """How much may still go inline: a bucket of one second's worth that fills up continuously."""

    def __init__(self, limits: WalLimits, now_ms: int) -> None:
        self._limits = limits
        self._left = float(limits.inline_bytes_per_second)
        self._at_ms = now_ms

    def take(self, size: int, alive_bytes: int, now_ms: int) -> bool:
        """Return whether a group goes inline, and count it if it does.

        Args:
            size: of the group, in bytes.
            alive_bytes: what is inline now.
            now_ms: the time.
        """
        if not self.would_take(size, now_ms):
            return False
        if size + alive_bytes > self._limits.inline_alive_bytes_max:
            return False
        self._left -= size
        return True

    def would_take(self, size: int, now_ms: int) -> bool:
        """Return whether a group may go inline, unless too much is."""
        rate = self._limits.inline_bytes_per_second
        self._left = min(rate, self._left + (now_ms - self._at_ms) * rate / 1000)
        self._at_ms = now_ms
        return size <= min(self._limits.inline_group_bytes_max, self._left)


class PutLatencies:
    """How long PUTs take."""

    def __init__(self) -> None:
        self._newest: deque[int] = deque()
        self._sorted: list[int] = []

    def add(self, ms: int) -> None:
        """Note a PUT that has succeeded."""
        self._newest.append(ms)
        insort(self._sorted, ms)
        if len(self._newest) > LATENCIES_KEPT:
            self._sorted.remove(self._newest.popleft())

    @property
    def p95_ms(self) -> int:
        """Return the usual p95."""
        if len(self._sorted) < LATENCIES_MIN:
            return USUAL_P95_MS
        return self._sorted[len(self._sorted) * 95 // 100]


@dataclass(frozen=True, slots=True)
class BeginPut:
    """Begin a PUT under the key of an attempt."""

    attempt: int


@dataclass(frozen=True, slots=True)
class WaitForPuts:
    """Wait until a PUT ends, or until a time."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The object is not stored, and no PUT begins any more."""

    reason: str


PutStep: TypeAlias = BeginPut | WaitForPuts | GiveUp


@dataclass(slots=True)
class _Attempt:
    """The tries under one key."""

    number: int
    next_at_ms: int
    began_ms: int = -1
    is_under_way: bool = False
    failures: int = 0


@dataclass(slots=True)
class PutState:
    """The PUTs of one object, until it is stored.

    Attributes:
        limits: of all objects.
        began_ms: when the object was complete.
        begins_at_ms: when its first PUT may begin.
        hedge_after_ms: a second PUT begins after so long; 0: never.
    """

    limits: WalLimits
    began_ms: int
    begins_at_ms: int
    hedge_after_ms: int
    last_error: str = "no answer"
    _attempts: list[_Attempt] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._attempts.append(_Attempt(0, self.begins_at_ms))

    @property
    def attempts_begun(self) -> list[int]:
        """Attempts under whose keys something may be stored, now or later."""
        return [each.number for each in self._attempts if each.began_ms >= 0]

    @property
    def is_repeated(self) -> bool:
        """Whether a PUT has failed, so that the next one is not the first."""
        return any(each.failures for each in self._attempts)

    def next_step(self, now_ms: int) -> PutStep:
        """Return what to do now; after a `BeginPut`, ask again."""
        deadline = max(self.began_ms, self.begins_at_ms) + self.limits.give_up_ms
        if now_ms >= deadline:
            return GiveUp(f"not stored within {self.limits.give_up_ms} ms: {self.last_error}")
        until_ms = deadline
        for attempt in self._attempts:
            if attempt.is_under_way:
                continue
            if attempt.next_at_ms <= now_ms:
                attempt.began_ms, attempt.is_under_way = now_ms, True
                return BeginPut(attempt.number)
            until_ms = min(until_ms, attempt.next_at_ms)
        first = self._attempts[0]
        if len(self._attempts) == 1 and first.is_under_way and self.hedge_after_ms:
            hedge_at_ms = first.began_ms + self.hedge_after_ms
            if hedge_at_ms <= now_ms:
                self._attempts.append(_Attempt(1, now_ms, now_ms, is_under_way=True))
                return BeginPut(1)
            until_ms = min(until_ms, hedge_at_ms)
        return WaitForPuts(until_ms)

    def failed(self, attempt: int, reason: str, now_ms: int) -> None:
        """Note that the PUT of an attempt has failed; it may have been stored, or be stored yet."""
        self.last_error = reason
        tries = self._attempts[attempt]
        backoff = self.limits.backoff_ms
        tries.next_at_ms = now_ms + backoff[min(tries.failures, len(backoff) - 1)]
        tries.failures += 1
        tries.is_under_way = False

    def succeeded(self, attempt: int, now_ms: int) -> int:
        """Note that the object is stored; return how long its PUT took."""
        return now_ms - self._attempts[attempt].began_ms


class PutPace:
    """When the next group's PUT may begin. A failure halves the budget; each success gives back."""

    def __init__(self, limits: WalLimits) -> None:
        self._limits = limits
        self._share = 1.0
        self._last_ms: int | None = None

    def next_at_ms(self, now_ms: int) -> int:
        """Return when a PUT may begin, at the earliest now."""
        if self._last_ms is None:
            return now_ms
        return max(now_ms, self._last_ms + int(self._limits.put_period_ms / self._share))

    def began(self, now_ms: int) -> None:
        """Note that the first PUT of a group has begun."""
        self._last_ms = now_ms

    def failed(self) -> None:
        """Note a failure: the store may have too much to do."""
        self._share = max(self._share / 2, 1 / 16)

    def succeeded(self) -> None:
        """Note a success."""
        self._share = min(1.0, self._share + 1 / 32)
