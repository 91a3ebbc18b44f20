"""Object writer: stores the object of a group, however often it must be tried.

Rule: `wal_plan` decides when each PUT begins. A key that no group names in the end, because another
attempt was faster or all have failed, is deleted when no PUT of it can be in flight any more.
Must not know: the format of objects.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Future

from kledger.ledger.cluster.object_format import ObjectName
from kledger.ledger.cluster.wal_objects import ObjectStoreFailed, WalObjects
from kledger.ledger.cluster.wal_plan import (
    BeginPut,
    GiveUp,
    PutLatencies,
    PutPace,
    PutState,
    WaitForPuts,
    WalLimits,
)
from kledger.ledger.engine.base import Buffer
from kledger.ledger.engine.errors import StorageWriteFailed

logger = logging.getLogger(__name__)

LATE_PUT_MS = 15 * 60_000
"""A PUT of a broken connection may be stored so much later; its key is deleted then."""
STEP_MS = 500
"""A wait ends so often, to see whether the engine is being closed."""


class ObjectWriter:
    """The PUTs of one owner; for two threads, the committer's and the upkeep's."""

    def __init__(
        self, objects: WalObjects, limits: WalLimits, *, now_ms: Callable[[], int]
    ) -> None:
        """Args: now_ms: a monotonic clock."""
        self.puts = self.put_failures = self.hedges = self.put_bytes = 0
        self._objects = objects
        self._limits = limits
        self._now_ms = now_ms
        self._pace = PutPace(limits)
        self._latencies = PutLatencies()
        self._abandoned: dict[str, int] = {}
        """Keys that no group will name, and when they are deleted."""
        self._repeated: dict[str, int] = {}
        """Keys of objects of which another PUT has failed, and until when it may be stored."""
        self._is_stopped = False

    def delay_ms(self) -> int:
        """Return the time until the PUT of a group may begin."""
        now_ms = self._now_ms()
        return self._pace.next_at_ms(now_ms) - now_ms

    def put(self, name: ObjectName, data: Buffer, *, is_paced: bool) -> str:
        """Store an object; return its key.

        Args:
            name: what it was written for.
            data: its bytes, which must not change any more.
            is_paced: whether its PUT counts for the PUTs of groups in a second.

        Raises:
            StorageWriteFailed: no key is to be used, though something may be stored.
        """
        now_ms = self._now_ms()
        begins_ms = self._pace.next_at_ms(now_ms) if is_paced else now_ms
        hedge_ms = int(self._latencies.p95_ms * self._limits.hedge_factor)
        state = PutState(self._limits, now_ms, begins_ms, hedge_ms)
        under_way: dict[Future[None], int] = {}
        stored: int | None = None
        try:
            while stored is None:
                self._step(state, name, data, under_way, is_paced=is_paced)
                stored = self._take_ended(state, under_way)
        finally:
            late_ms = self._now_ms() + LATE_PUT_MS
            for attempt in state.attempts_begun:
                if attempt != stored:
                    self._abandoned[name.key(attempt)] = late_ms
                elif state.is_repeated:
                    self._repeated[name.key(attempt)] = late_ms
        self.put_bytes += len(data)
        return name.key(stored)

    def stop(self) -> None:
        """Let the present and every later `put` fail soon."""
        self._is_stopped = True

    def deleted(self, key: str) -> None:
        """Note that an object was deleted: a failed PUT of its key may still be stored."""
        if (late_ms := self._repeated.pop(key, None)) is not None:
            self._abandoned[key] = late_ms

    def take_abandoned(self, now_ms: int) -> list[str]:
        """Return keys that are to be deleted now, each once."""
        _take_due(self._repeated, now_ms)
        return _take_due(self._abandoned, now_ms)

    def _step(
        self,
        state: PutState,
        name: ObjectName,
        data: Buffer,
        under_way: dict[Future[None], int],
        *,
        is_paced: bool,
    ) -> None:
        """Perform the next step of a state."""
        now_ms = self._now_ms()
        if self._is_stopped:
            raise StorageWriteFailed("the engine is being closed")
        match state.next_step(now_ms):
            case BeginPut(attempt):
                if is_paced and not self._has_begun(state, attempt):
                    self._pace.began(now_ms)
                self.puts += 1
                self.hedges += attempt > 0
                under_way[self._objects.begin_put(name.key(attempt), data)] = attempt
            case WaitForPuts(until_ms):
                self._objects.wait(under_way, min(until_ms - now_ms, STEP_MS))
            case GiveUp(reason):
                raise StorageWriteFailed(f"object {name.key(0)}: {reason}")

    @staticmethod
    def _has_begun(state: PutState, attempt: int) -> bool:
        return attempt > 0 or state.is_repeated

    def _take_ended(self, state: PutState, under_way: dict[Future[None], int]) -> int | None:
        """Note the PUTs that have ended; return the attempt that is stored."""
        for future in [each for each in under_way if each.done()]:
            attempt, now_ms = under_way.pop(future), self._now_ms()
            error = future.exception()
            if error is None:
                self._latencies.add(state.succeeded(attempt, now_ms))
                self._pace.succeeded()
                return attempt
            if not isinstance(error, ObjectStoreFailed):
                raise error
            self.put_failures += 1
            self._pace.failed()
            state.failed(attempt, str(error), now_ms)
            logger.info("a PUT is repeated: %s", error)
        return None


def _take_due(keys: dict[str, int], now_ms: int) -> list[str]:
    """Remove the keys whose time has come, and return them; another thread may add some."""
    due = [key for key, at_ms in list(keys.items()) if at_ms <= now_ms]
    for key in due:
        del keys[key]
    return due
