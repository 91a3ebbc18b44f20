"""Faults: failures of the storage, drawn from the seed.

Rule: an operation checks for a fault before it does anything; it raises only what the interface of
engines allows. Switched off, nothing fails.
Must not know: what the operations work on.

| operation  | possible fault                                                | the store must      |
|------------|---------------------------------------------------------------|---------------------|
| write      | StorageWriteFailed, once or (disk full) for a while           | fail and continue   |
| write      | an exception that no engine should raise                      | fence itself        |
| sync       | SyncFailed, after the group was written                       | fence itself        |
| index      | an error, after the group is durable                          | fence itself        |
| read       | StorageError, EntryCorrupt                                    | report it           |
| look       | StorageError: a row or a count cannot be read while opening   | change nothing      |
| checkpoint | StorageWriteFailed; SyncFailed                                | continue; fence     |
| completion | the callback of an append raises, or that of rows             | close the handle    |
| listener   | a listener of a managed ledger raises                         | call all others     |
| timer      | a callback of a timer raises                                  | fire all others     |
| deliver    | the callback of a consumer raises                             | end its subscription|
| tier       | TierUnavailable, before or after the work is done             | fall back, or retry |
| tier hang  | no answer for long                                            | stop waiting        |
"""

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random

from kledger.ledger import TierUnavailable
from kledger.ledger.engine.errors import EntryCorrupt, StorageError, StorageWriteFailed, SyncFailed
from tests.simulation.clock import SimulatedClock

FULL_OPERATIONS_MAX = 8
RECENT_MS = 2000
"""Longer than any two calls in a thread take."""


class InjectedFault(Exception):
    """A programming error, as far as the store can tell."""


class Faults:
    """Decides for every operation of one store."""

    def __init__(self, random: Random, rates: Mapping[str, float], clock: SimulatedClock) -> None:
        self.is_on = False
        self.counts: Counter[str] = Counter()
        """Number of failures of each operation."""
        self._clock = clock
        self._last_ms: dict[str, int] = {}
        self._random = random
        self._rates = rates
        self._full_operations = 0
        self._causes: dict[str, Callable[[], Exception]] = {
            "write": self._write_error,
            "sync": lambda: SyncFailed("injected"),
            "index": lambda: StorageError("injected into index"),
            "read": self._read_error,
            "lookup": lambda: StorageError("injected into a lookup"),
            "checkpoint": self._checkpoint_error,
            "completion": lambda: InjectedFault("injected into a completion"),
            "listener": lambda: InjectedFault("injected into a listener"),
            "timer": lambda: InjectedFault("injected into a timer"),
            "deliver": lambda: InjectedFault("injected into a delivery"),
            "tier": lambda: TierUnavailable("injected into the tier"),
            "tier hang": lambda: InjectedFault("the tier hangs"),
        }

    @property
    def count(self) -> int:
        """Return the number of all failures."""
        return self.counts.total()

    def was_recent(self, *operations: str) -> bool:
        """Return whether one of these has failed, which may be reported only now."""
        since_ms = self._clock.monotonic_ms() - RECENT_MS
        return any(self._last_ms.get(each, since_ms) > since_ms for each in operations)

    def ask(self, operation: str) -> None:
        """Raise if the operation shall fail."""
        if not self.is_on:
            return
        if operation in {"write", "checkpoint"} and self._full_operations:
            self._full_operations -= 1
            self._raise(operation, StorageWriteFailed("no space left", full=True))
        if self._random.random() < self._rates.get(operation, 0.0):
            self._raise(operation, self._causes[operation]())

    def _raise(self, operation: str, error: Exception) -> None:
        self.counts[operation] += 1
        self._last_ms[operation] = self._clock.monotonic_ms()
        raise error

    def _write_error(self) -> Exception:
        kind = self._random.random()
        if kind < 0.05:
            return OSError("injected, outside of the interface")
        if kind < 0.35:
            self._full_operations = self._random.randrange(FULL_OPERATIONS_MAX)
            return StorageWriteFailed("no space left", full=True)
        return StorageWriteFailed("injected")

    def _read_error(self) -> Exception:
        if self._random.random() < 0.3:
            return EntryCorrupt(0, 0, "injected")
        return StorageError("injected into a read")

    def _checkpoint_error(self) -> Exception:
        if self._random.random() < 0.2:
            return SyncFailed("injected into a checkpoint")
        return StorageWriteFailed("injected into a checkpoint")
