"""Faulty engine: any engine, with faults that a test injects.

Rule: a fault is used by the first operation that begins after it was armed. Apart from faults it
behaves as the inner engine.
Must not know: the store on top.

| operation | begins                                                       |
|-----------|--------------------------------------------------------------|
| commit    | before a group is written                                    |
| sync      | after a group was written, before it is synced               |
| read      | before entries are read from storage                         |

A held operation blocks its thread, so `needs_thread` is True: a store makes every commit and read
in a thread.
"""

import asyncio
import os
from collections import defaultdict, deque
from collections.abc import Callable
from threading import Event, Lock
from typing import Literal, TypeAlias

from kledger.ledger.engine.base import Buffer, CommitGroup, TwoStepEngine
from kledger.ledger.engine.errors import FULL_ERRORS, StorageError, StorageWriteFailed, SyncFailed
from kledger.ledger.engine.log_rocksdb import LogRocksdbEngine
from kledger.ledger.engine.memory import MemoryEngine

Operation: TypeAlias = Literal["commit", "read", "sync"]
OPERATIONS: tuple[Operation, ...] = ("commit", "read", "sync")
REACHED_TIMEOUT_MS = 60_000


class Hold:
    """One operation, held at its beginning until the test releases it or lets it fail."""

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        self._lock = Lock()
        self._has_reached = Event()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._decided = Event()
        self._error: BaseException | None = None

    async def reached(self) -> None:
        """Wait until the operation is held."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if self._has_reached.is_set():
                return
            self._waiters.append((loop, waiter))
        await waiter

    def wait_reached(self, timeout_ms: int = REACHED_TIMEOUT_MS) -> None:
        """Do the same in a program without an event loop; never on the event loop of the store.

        Raises:
            TimeoutError: no such operation began in time.
        """
        if not self._has_reached.wait(timeout_ms / 1000):
            raise TimeoutError(f"no {self._operation} began within {timeout_ms} ms")

    @property
    def is_waiting(self) -> bool:
        """Whether an operation is held now."""
        return self._has_reached.is_set() and not self._decided.is_set()

    def end(self) -> None:
        """End the operation of an owner that was replaced.

        A commit has written nothing yet and fails; a sync or a read continues.
        """
        if self._operation == "commit":
            self.fail(StorageError("the engine has another owner"))
        self.release()

    def release(self) -> None:
        """Let the operation continue, or not be held if it has not begun."""
        self._decided.set()

    def fail(self, error: BaseException | None = None) -> None:
        """Let the operation fail."""
        if not self._decided.is_set():
            self._error = _as_raised(self._operation, error)
            self._decided.set()

    def pass_through(self) -> None:
        """Hold the operation, in its own thread."""
        with self._lock:
            self._has_reached.set()
            waiters, self._waiters = self._waiters, []
        for loop, waiter in waiters:
            loop.call_soon_threadsafe(_wake, waiter)
        if not self._decided.is_set() and _is_on_a_loop():
            raise RuntimeError(
                f"a held {self._operation} was made on the event loop, so nothing could release "
                "it: an engine with needs_thread needs a helper thread"
            )
        self._decided.wait()
        if self._error is not None:
            raise self._error


class FaultInjectingEngine:
    """The default engine for a path (None: memory), or a given one, with faults."""

    needs_thread = True

    def __init__(self, inner: str | os.PathLike[str] | TwoStepEngine | None = None) -> None:
        self._inner: TwoStepEngine
        if inner is None:
            self._inner = MemoryEngine(keeps_groups=True)
        elif isinstance(inner, str | os.PathLike):
            self._inner = LogRocksdbEngine(inner)
        else:
            self._inner = inner
        self.calls: dict[str, int] = dict.fromkeys(OPERATIONS, 0)
        self._lock = Lock()
        self._inner_lock = Lock()
        self._armed: defaultdict[str, deque[Callable[[], None]]] = defaultdict(deque)
        self._holds: list[Hold] = []
        self._incarnation = 0
        self._is_cut = False
        self._failure: str | None = None
        self._is_closed = False

    # Faults

    def hold_next(self, op: Operation) -> Hold:
        """Hold the next operation of a kind at its beginning."""
        hold = Hold(op)
        self._holds.append(hold)
        self._arm(op, hold.pass_through)
        return hold

    def fail_next(self, op: Operation, error: BaseException | None = None) -> None:
        """Let the next operation of a kind fail; an OSError is translated as an engine does."""
        raised = _as_raised(op, error)

        def fail() -> None:
            raise raised

        self._arm(op, fail)

    def delay_next(self, op: Operation, ms: int) -> None:
        """Let the next operation of a kind take this long, in real time."""
        self._arm(op, lambda: _wait(ms))

    def disarm(self) -> None:
        """Remove all unused faults, and release what is held."""
        with self._lock:
            self._armed.clear()
            holds, self._holds = self._holds, []
        for hold in holds:
            hold.release()

    def drop_unsynced(self) -> None:
        """Lose what no sync covered, as a power cut does; the engine then serves a new store.

        Operations of the old store fail, begun or not.
        """
        with self._lock:
            self._incarnation += 1
            self._is_cut = True
            holds, self._holds = self._holds, []
        for hold in holds:
            hold.fail(StorageError("the engine was cut off"))
        self._end_owner()
        with self._inner_lock:
            self._inner.drop_unsynced()
        with self._lock:
            self._armed.clear()
            self._failure = None
            self._is_cut = False

    def _end_owner(self) -> None:
        """Wait until the store on top begins no more operations; they are refused until then."""

    # StorageEngine

    @property
    def is_behind(self) -> bool:
        """Whether the next commit of the inner engine waits for its index."""
        return self._inner.is_behind

    def commit_delay_ms(self, size: int) -> int:
        """Ask the inner engine; this is neither counted nor held."""
        return self._inner.commit_delay_ms(size)

    def commit(self, group: CommitGroup, *, sync: bool) -> None:
        """Commit, with the faults of "commit" and, with `sync`, of "sync"."""
        incarnation = self._enter()
        self._begin("commit")
        with self._inner_lock:
            self._refuse_before_restart(incarnation)
            self._inner.write(group, sync_follows=sync)
        if not sync:
            return
        try:
            self._begin("sync")
            with self._inner_lock:
                self._refuse_before_restart(incarnation)
                self._inner.sync()
        except Exception as error:
            if incarnation == self._incarnation:
                self._failure = f"a sync failed: {error}"
            if isinstance(error, SyncFailed):
                raise
            raise SyncFailed(str(error)) from error

    def index(self, group: CommitGroup) -> None:
        """Make the oldest committed group visible."""
        self._inner.index(group)

    def read(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[Buffer]:
        """Read, with the faults of "read"."""
        incarnation = self._enter()
        self._begin("read")
        self._refuse_before_restart(incarnation)
        return self._inner.read(ledger_id, first_entry, last_entry, bytes_max)

    def read_resident(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> None:
        """Return None, as a read may be held: it must be made in a thread."""

    def last_entry(self, ledger_id: int) -> int:
        """Return the newest entry id of a ledger."""
        return self._inner.last_entry(ledger_id)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a row."""
        return self._inner.get(key)

    def scan(
        self, start: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        """Return rows; see `StorageEngine`."""
        return self._inner.scan(start, end, reverse=reverse, limit=limit)

    def checkpoint_due(self) -> bool:
        """Return whether the inner engine wants a checkpoint."""
        return self._inner.checkpoint_due()

    def checkpoint(self) -> None:
        """Checkpoint the inner engine; its sync does not count as "sync"."""
        incarnation = self._enter()
        with self._inner_lock:
            self._refuse_before_restart(incarnation)
            self._inner.checkpoint()

    def next_moves(self, *, dead_share_max: float, bytes_max: int) -> CommitGroup | None:
        """Search in the inner engine; this does not count as "read"."""
        incarnation = self._enter()
        with self._inner_lock:
            self._refuse_before_restart(incarnation)
            return self._inner.next_moves(dead_share_max=dead_share_max, bytes_max=bytes_max)

    def release_waiting(self) -> None:
        """End the held operations that have begun."""
        for hold in self._holds:
            if hold.is_waiting:
                hold.end()

    def close(self) -> None:
        """Let held operations fail, and close the inner engine. May be repeated."""
        if self._is_closed:
            return
        self._is_closed = True
        for hold in self._holds:
            hold.fail(StorageError("the engine was closed"))
        with self._inner_lock:
            self._inner.close()

    # Inside

    def _arm(self, op: Operation, fault: Callable[[], None]) -> None:
        assert op in OPERATIONS, f"{op} is none of {OPERATIONS}"
        with self._lock:
            self._armed[op].append(fault)

    def _begin(self, op: Operation) -> None:
        with self._lock:
            self.calls[op] += 1
            fault = self._armed[op].popleft() if self._armed[op] else None
        if fault is not None:
            fault()

    def _enter(self) -> int:
        """Begin an operation; return its incarnation: the number of power cuts before it."""
        with self._lock:
            if self._failure is not None:
                raise SyncFailed(self._failure)
            if self._is_cut:
                raise StorageError("the engine was cut off")
            return self._incarnation

    def _refuse_before_restart(self, incarnation: int) -> None:
        if incarnation != self._incarnation:
            raise StorageError("the engine was cut off")


def _as_raised(operation: Operation, error: BaseException | None) -> BaseException:
    """Return the error to raise for an injected one; three cases: None, an OSError, any other."""
    text = f"injected into {operation}" if error is None else str(error)
    if error is not None and not isinstance(error, OSError):
        return error
    if operation == "commit":
        is_full = isinstance(error, OSError) and error.errno in FULL_ERRORS
        return StorageWriteFailed(text, full=is_full)
    return SyncFailed(text) if operation == "sync" else StorageError(text)


def _is_on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _wait(ms: int) -> None:
    Event().wait(ms / 1000)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
