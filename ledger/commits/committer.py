"""Committer: commits what the managed ledgers submit in one tick as one group of the engine.

Rule: operations are confirmed, or fail, in the order in which they were submitted, each once. One
group is in flight at a time; operations that are submitted meanwhile form the next one, and it
waits for more of them for as long as the engine says. A group that was not written fails together
with everything submitted after it, before the committer accepts anything new. A failed sync leaves
an unknown state: the committer stops for good and retries nothing. A fault of a submitter closes
that submitter; a fault between two groups stops the committer.
Must not know: managed ledgers; it sees operations of a Submitter, in order.

| where a group is committed | when                                                               |
|----------------------------|--------------------------------------------------------------------|
| on the event loop          | it is below `on_loop_bytes_max`, the previous one was not slow,    |
|                            | it has no moves, and the index of the engine is not behind         |
| in the commit thread       | otherwise; always if it is synced                                  |

A group is not synced if no operation of it needs that, up to `UNSYNCED_BYTES_MAX`: the next sync
covers it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from queue import SimpleQueue
from threading import Thread
from typing import Generic, Protocol, TypeAlias, TypeVar

from kledger.ledger.engine.base import Buffer, CommitGroup, Move, Row, StorageEngine
from kledger.ledger.engine.errors import StorageWriteFailed
from kledger.ledger.errors import Fenced, LedgerError, StorageFailed, from_engine
from kledger.ledger.position import EARLIEST, Position
from kledger.ledger.storage_health import StorageHealth
from kledger.runtime.blocking import BlockingRunner
from kledger.runtime.clock import Clock
from kledger.runtime.containment import FaultUnit, NamedUnit, unit_of
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import TimerHandle, Timers

logger = logging.getLogger(__name__)

LAZY_ROWS_MAX = 8
"""How many rows may wait for a group that something else needs."""
UNSYNCED_BYTES_MAX = 512 * 1024
"""Data that may wait for a sync which something else needs, and then makes that one longer."""
SLOW_COMMIT_MS = 2
"""After a commit on the event loop that took longer, the next group goes to the commit thread."""
_SPACE = NamedUnit("background work", "on space and checkpoints")
_STOP = NamedUnit("completion", "of a store that stops")

Token = TypeVar("Token")
Token_contra = TypeVar("Token_contra", contravariant=True)
CommitFinished: TypeAlias = Callable[[Token, Exception | None], None]

AppendDone: TypeAlias = Callable[[Position, LedgerError | None], None]
RowsDone: TypeAlias = Callable[[LedgerError | None], None]
Operation: TypeAlias = tuple["Submitter", Position, int, Buffer, AppendDone]
"""The submitter, and four values that only the submitter understands. It is a plain tuple because
every append makes one."""


class Submitter(FaultUnit, Protocol):
    """The owner of operations, which learns their outcome.

    A fault of one of these methods closes the submitter; other submitters are not affected.
    """

    def confirm(self, operation: Operation) -> None:
        """Complete an operation: it is as durable as the store promises."""
        ...

    def group_confirmed(self) -> None:
        """Finish a group: all its operations, at least one of this submitter, are confirmed."""
        ...

    def revert(self) -> None:
        """Forget everything unconfirmed, and submit nothing until `resume`.

        May be called more than once for one failure.
        """
        ...

    def fail(self, operation: Operation, error: LedgerError) -> None:
        """Fail one operation; called in the order of submission, after `revert`."""
        ...

    def resume(self) -> None:
        """Submit again: every failed operation of every submitter has been reported."""
        ...


class CommitRunner(Protocol[Token_contra]):
    """What the committer uses of its `CommitThread`."""

    def submit(self, group: CommitGroup, token: Token_contra) -> None:
        """Commit a group after those submitted before."""
        ...

    def stop(self) -> None:
        """End after all submitted groups; blocks until then. May be repeated."""
        ...

    def abandon(self) -> None:
        """End after the present group; blocks until then."""
        ...


class StartCommits(Protocol):
    """Makes an idle commit thread."""

    def __call__(
        self, engine: StorageEngine, *, sync: bool, on_finished: CommitFinished[Token]
    ) -> CommitRunner[Token]:
        """Return one; the arguments are those of `CommitThread`."""
        ...


class CommitThread(Generic[Token]):
    """The thread in which groups are written and synced, one after the other.

    It runs as little Python as possible, because each line takes the interpreter from the event
    loop. It starts with the first group.
    """

    def __init__(
        self, engine: StorageEngine, *, sync: bool, on_finished: CommitFinished[Token]
    ) -> None:
        """Make an idle one.

        Args:
            engine: where to commit.
            sync: whether groups that need a sync get one.
            on_finished: called in the thread with the token of a group and its error or None.
        """
        self._engine = engine
        self._sync = sync
        self._on_finished = on_finished
        self._queue: SimpleQueue[tuple[CommitGroup, Token] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._is_abandoned = False

    def submit(self, group: CommitGroup, token: Token) -> None:
        """Commit a group after those submitted before."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name="committer", daemon=True)
            self._thread.start()
        self._queue.put((group, token))

    def stop(self) -> None:
        """End the thread after all submitted groups; blocks until then. May be repeated."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()

    def abandon(self) -> None:
        """End the thread after the present group; groups that have not begun are not committed."""
        self._is_abandoned = True
        self.stop()

    def _run(self) -> None:
        get, commit, sync, on_finished = (
            self._queue.get,
            self._engine.commit,
            self._sync,
            self._on_finished,
        )
        while (job := get()) is not None:
            if self._is_abandoned:
                continue
            group, token = job
            try:
                commit(group, sync=sync and group.needs_sync)
            except Exception as error:  # noqa: BLE001 - the event loop decides on any error
                on_finished(token, error)
            else:
                on_finished(token, None)
            del job, group, token  # the thread may wait for long, and would keep them


@dataclass(slots=True)
class _CommitBatch:
    """A group that is committed or indexed, with its operations."""

    group: CommitGroup
    operations: list[Operation]
    size: int
    is_written: bool = False  # set by the thread, before it calls the event loop


class Committer:
    """The only writer of an engine.

    `entries`, `rows`, `drops`, `operations` and `size` are the group being collected. The append
    path of managed ledgers adds to them directly (to rows with `add_rows`) and then calls
    `schedule_commit` unless `is_commit_scheduled`; other callers use the `submit_` methods.
    """

    def __init__(
        self,
        engine: StorageEngine,
        *,
        sync: bool,
        on_loop_bytes_max: int,
        queue_bytes_max: int,
        queue_count_max: int,
        clock: Clock,
        pool: BlockingRunner,
        supervisor: Supervisor,
        timers: Timers,
        on_fatal: Callable[[LedgerError], None],
        health: StorageHealth,
        start_commits: StartCommits = CommitThread,
    ) -> None:
        """Make an idle one, for the running loop.

        Args:
            engine: has no other writer.
            sync: whether confirmed means synced.
            on_loop_bytes_max: groups below this are committed on the event loop.
            queue_bytes_max: see `is_saturated`.
            queue_count_max: see `is_saturated`.
            clock: gives the time of a tick.
            pool: where checkpoints run.
            supervisor: of the checkpoints.
            timers: for groups that wait.
            on_fatal: called once, when the committer stops, before unconfirmed operations fail.
            health: gets the outcome of every write.
            start_commits: makes the commit thread.
        """
        self.entries: list[tuple[int, int, Buffer]] = []
        self.rows: list[Row] = []
        self.drops: list[int] = []
        self.operations: list[Operation] = []
        self.size = 0
        self.is_commit_scheduled = False
        self.tick_ms = 0
        self.tick_count = 0
        """Ticks of the event loop in which something was submitted that is no background work."""
        self.fatal: LedgerError | None = None
        self.on_space: Callable[[], None] = _ignore_space
        """Called after ledgers were dropped and after a checkpoint: files may be removable."""
        self._moves: list[Move] = []
        self._seals = False
        self._unsynced_operations = 0  # of those being collected, how many need no sync
        self._unsynced_bytes = 0  # of groups since the last one that is synced
        self._engine = engine
        self._on_loop_bytes_max = on_loop_bytes_max
        self._queue_bytes_max = queue_bytes_max
        self._queue_count_max = queue_count_max
        self._clock = clock
        self._pool = pool
        self._supervisor = supervisor
        self._timers = timers
        self._containment = supervisor.containment
        self._on_fatal = on_fatal
        self._health = health
        self._loop = asyncio.get_running_loop()
        self._thread: CommitRunner[_CommitBatch] = start_commits(
            engine, sync=sync, on_finished=self._finished_in_thread
        )
        self._sync = sync
        self._batch_in_flight: _CommitBatch | None = None
        self._is_due = False  # a tick ended while a group was in flight: start the next after it
        self._delay: TimerHandle | None = None  # while what is collected waits for more
        self._was_slow = False
        self._checkpointing: asyncio.Task[bool] | None = None
        self._drained: list[Callable[[], None]] = []

    # Submitting

    def schedule_commit(self) -> None:
        """Commit what is collected at the end of this tick; note the time of the tick."""
        self.tick_count += 1
        self._schedule_commit()

    def _schedule_commit(self) -> None:
        self.is_commit_scheduled = True
        self.tick_ms = self._clock.monotonic_ms()
        self._loop.call_soon(self._tick_ended)

    def submit_rows(self, rows: Iterable[Row], done: RowsDone, drops: Iterable[int] = ()) -> None:
        """Commit rows, in order with everything else. Keys are in stored form.

        Raises:
            Fenced: the committer has stopped; `done` is not called.
        """
        self.submit_for(RowsSubmitter(done), rows, drops)

    def submit_rows_lazily(self, rows: Iterable[Row], done: RowsDone) -> None:
        """Commit rows with the next group that something else needs, to save a sync.

        More than LAZY_ROWS_MAX waiting rows are a group of their own.

        Raises:
            Fenced: the committer has stopped; `done` is not called.
        """
        self._add(RowsSubmitter(done), rows)
        if len(self.rows) > LAZY_ROWS_MAX and not self.is_commit_scheduled:
            self.schedule_commit()

    def submit_for(
        self, submitter: Submitter, rows: Iterable[Row], drops: Iterable[int] = ()
    ) -> None:
        """Commit rows as an operation of a submitter, and drop ledgers with them.

        Raises:
            Fenced: the committer has stopped.
        """
        self._add(submitter, rows)
        self.drops.extend(drops)
        if not self.is_commit_scheduled:
            self.schedule_commit()

    def _add(self, submitter: Submitter, rows: Iterable[Row]) -> None:
        self._refuse_after_stop()
        self.add_rows(rows)
        self.operations.append((submitter, EARLIEST, 0, b"", _ignore))

    def submit_group(self, group: CommitGroup, done: RowsDone) -> None:
        """Commit a group of background work, with everything else that is collected.

        Raises:
            Fenced: the committer has stopped; `done` is not called.
        """
        self._refuse_after_stop()
        self.entries += group.entries
        self._moves += group.moves
        self._seals = self._seals or group.seals
        self._unsynced_operations += not group.needs_sync
        self.size += sum(len(data) for _, _, data in group.entries)
        self._add(RowsSubmitter(done), group.rows)
        self.drops += group.drops
        if not self.is_commit_scheduled:
            self._schedule_commit()

    def add_rows(self, rows: Iterable[Row]) -> None:
        """Put rows into the group being collected, for an operation that the caller adds."""
        rows = list(rows)
        self.rows += rows
        self.size += sum(len(key) + (len(value) if value else 0) for key, value in rows)

    def _refuse_after_stop(self) -> None:
        if self.fatal is not None:
            raise Fenced(str(self.fatal))

    async def flush(self) -> None:
        """Wait until everything submitted so far is confirmed or has failed."""
        if self.fatal is not None or (self._batch_in_flight is None and not self.operations):
            return
        waiter = self._loop.create_future()

        def resolved(error: LedgerError | None) -> None:
            if not waiter.done():
                waiter.set_result(None)

        self.submit_rows((), resolved)
        await waiter

    # Back-pressure

    @property
    def queued_bytes(self) -> int:
        """Bytes of all unconfirmed entries and rows."""
        return self.size + (self._batch_in_flight.size if self._batch_in_flight else 0)

    @property
    def queued_count(self) -> int:
        """Number of unconfirmed operations."""
        return len(self.operations) + (
            len(self._batch_in_flight.operations) if self._batch_in_flight else 0
        )

    @property
    def is_saturated(self) -> bool:
        """Whether producers should pause."""
        return (
            self.queued_bytes > self._queue_bytes_max or self.queued_count > self._queue_count_max
        )

    def on_drained(self, callback: Callable[[], None]) -> None:
        """Call back once, on the event loop, when at most half of the limits is used.

        A committer that stops calls back, too.
        """
        self._drained.append(callback)
        if self.fatal is not None or self._is_idle:
            self._loop.call_soon(self._maybe_drained)

    @property
    def _is_idle(self) -> bool:
        """Whether no group is being committed, and none is scheduled or waits for more."""
        return (
            self._batch_in_flight is None and self._delay is None and not self.is_commit_scheduled
        )

    def _maybe_drained(self) -> None:
        # A stopped committer accepts nothing, so its callers must not wait for room.
        if self.fatal is None and (
            self.queued_bytes > self._queue_bytes_max // 2
            or self.queued_count > self._queue_count_max // 2
        ):
            # Lazy rows wait for a group that a producer needs, and the producers wait for room.
            if self._drained and self._is_idle:
                self.schedule_commit()
            return
        callbacks, self._drained = self._drained, []
        for callback in callbacks:
            self._containment.run(unit_of(callback, "completion"), callback)

    # Committing a group

    def _tick_ended(self) -> None:
        self.is_commit_scheduled = False
        if self._batch_in_flight is not None:
            self._is_due = True
        elif self.operations and self._delay is None:
            self._start_or_wait()

    def _start_or_wait(self) -> None:
        """Start the next group now, or later if the engine could not store it earlier anyway."""
        delay_ms = self._engine.commit_delay_ms(self.size) if self.entries else 0
        if delay_ms:
            self._delay = self._timers.call_after(delay_ms, self._delay_ended)
        else:
            self._try_start()

    def _delay_ended(self) -> None:
        self._delay = None
        self._try_start()

    def _try_start(self) -> None:
        """Start the next group; an error here leaves an unknown state, so it stops everything."""
        try:
            self._start()
        except Exception as error:
            logger.exception("a group could not be started")
            self.stop(from_engine(error))

    def _start(self) -> None:
        is_empty = self._is_nothing_collected
        batch = self._take_collected()
        if is_empty:
            self._confirm_batch(batch)
        elif self._can_commit_on_loop(batch):
            self._commit_on_loop(batch)
        else:
            self._was_slow = False
            self._batch_in_flight = batch
            self._thread.submit(batch.group, batch)

    def _can_commit_on_loop(self, batch: _CommitBatch) -> bool:
        if batch.size >= self._on_loop_bytes_max or self._was_slow:
            return False
        return not (batch.group.moves or self._engine.is_behind)

    @property
    def _is_nothing_collected(self) -> bool:
        return not (self.entries or self.rows or self.drops or self._seals)

    def _take_collected(self) -> _CommitBatch:
        group = CommitGroup(entries=self.entries, rows=self.rows, drops=self.drops)
        if self._moves or self._seals:
            group.moves, group.seals = self._moves, self._seals
            self._moves, self._seals = [], False
        if self._unsynced_operations:
            group.needs_sync = self._needs_sync()
            self._unsynced_operations = 0
        self._unsynced_bytes = 0 if group.needs_sync else self._unsynced_bytes + self.size
        batch = _CommitBatch(group, self.operations, self.size)
        self.entries, self.rows, self.drops, self.operations, self.size = [], [], [], [], 0
        self._is_due = False
        return batch

    def _needs_sync(self) -> bool:
        """Return whether what is collected has to be synced."""
        if self._unsynced_operations < len(self.operations):
            return True
        return self._unsynced_bytes + self.size > UNSYNCED_BYTES_MAX

    def _commit_on_loop(self, batch: _CommitBatch) -> None:
        began_ms = self._clock.monotonic_ms()
        try:
            self._engine.commit(batch.group, sync=self._sync and batch.group.needs_sync)
        except Exception as error:  # noqa: BLE001 - decided on in _commit_finished
            self._commit_finished(batch, error)
            return
        self._was_slow = self._clock.monotonic_ms() - began_ms > SLOW_COMMIT_MS
        self._commit_finished(batch, None)

    def _finished_in_thread(self, batch: _CommitBatch, error: Exception | None) -> None:
        batch.is_written = error is None
        try:
            self._loop.call_soon_threadsafe(self._commit_finished, batch, error)
        except RuntimeError:
            # The loop was closed while the group was in flight: no caller is left.
            logger.warning(
                "the event loop closed before a group of %d entries was confirmed",
                len(batch.group.entries),
            )

    def _commit_finished(self, batch: _CommitBatch, error: Exception | None) -> None:
        """Continue with a group whose commit has ended.

        Three cases:
        1. written: index it, start the next group, confirm this one;
        2. not written: fail it and everything submitted after it, go on;
        3. anything else: the state is unknown, stop for good.
        """
        self._batch_in_flight = None
        if self.fatal is not None:
            return
        if error is None:
            error = self._try_index(batch.group)
        if error is None:
            self._health.write_succeeded()
            self._confirm_batch(batch)
        elif isinstance(error, StorageWriteFailed):
            self._health.failed(error, f"writing a group of {len(batch.operations)} operations")
            self._fail_all(batch, error)
        else:
            self.stop(from_engine(error), batch)

    def _confirm_batch(self, batch: _CommitBatch) -> None:
        """Confirm a group, after starting the next one."""
        if self._is_due and not self.is_commit_scheduled:
            self._start_next()
        self._confirm(batch.operations)
        if batch.group.drops:
            self._containment.run(_SPACE, self.on_space)
        self._containment.run(_SPACE, self.maybe_checkpoint)
        if self._drained:
            self._maybe_drained()

    def _start_next(self) -> None:
        """Start the group that was collected meanwhile.

        A synced group is in the thread before this returns. A group that the event loop would
        commit waits for the end of the tick: it must not be confirmed before the previous one.
        """
        if self._sync and self._on_loop_bytes_max == 0 and not self._is_nothing_collected:
            self._start_or_wait()
        else:
            self.schedule_commit()

    def _try_index(self, group: CommitGroup) -> Exception | None:
        try:
            self._engine.index(group)
        except Exception as error:  # noqa: BLE001 - any error stops the store
            # The log has the group and the index lacks it: only a restart can repair that.
            return Fenced(f"a durable group could not be indexed: {error!r}")
        return None

    def _confirm(self, operations: list[Operation]) -> None:
        contained = self._containment.failed
        for operation in operations:
            try:
                operation[0].confirm(operation)
            except Exception as error:  # noqa: BLE001 - it closes its submitter, no other
                contained(operation[0], error)
        for submitter in _submitters(operations):
            try:
                submitter.group_confirmed()
            except Exception as error:  # noqa: BLE001 - it closes its submitter, no other
                contained(submitter, error)

    def _fail_all(self, batch: _CommitBatch, error: Exception) -> None:
        later = self._take_collected()
        self._fail(batch.operations + later.operations, error)
        if self._drained:
            self._maybe_drained()

    def _failure(self, cause: Exception) -> LedgerError:
        """Return a new error for one caller, as a raised error collects a traceback."""
        return from_engine(cause) if self.fatal is None else Fenced(str(cause))

    def _fail(self, operations: Sequence[Operation], cause: Exception) -> None:
        """Fail operations in three rounds: revert all submitters, fail all operations, resume."""
        submitters, run = _submitters(operations), self._containment.run
        for submitter in submitters:
            run(submitter, submitter.revert)
        for operation in operations:
            run(operation[0], operation[0].fail, operation, self._failure(cause))
        for submitter in submitters:
            run(submitter, submitter.resume)

    # Stopping

    def stop(self, error: LedgerError, batch: _CommitBatch | None = None) -> None:
        """Fence: fail everything unconfirmed and accept nothing; the thread may still be busy."""
        if self.fatal is not None:
            return
        self.fatal = error = Fenced(str(error))
        if self._delay is not None:
            self._delay.cancel()
        logger.error("the ledger store stops: %s", error)
        operations = self._take_collected().operations
        if batch := batch or self._batch_in_flight:
            # A group that is still in the thread has no operations left to confirm.
            operations, batch.operations = batch.operations + operations, []
        self._containment.run(_STOP, self._on_fatal, error)
        self._fail(operations, error)
        if self._drained:
            self._loop.call_soon(self._maybe_drained)

    async def detach(self) -> None:
        """Fence, and leave the engine to another store.

        Waits for the group in flight and indexes it if it was written: the engine is then as if it
        had just been opened.
        """
        self.stop(Fenced("the engine was taken over"))
        batch = self._batch_in_flight
        self._engine.release_waiting()
        await self._pool.run(self._thread.abandon)
        if batch is not None and batch.is_written:
            self._try_index(batch.group)

    def abandon(self) -> None:
        """Fence, and never touch the engine again; blocks until the thread has ended."""
        self.stop(Fenced("the engine was taken away"))
        self._thread.abandon()

    async def close(self) -> None:
        """Wait for everything submitted and for a checkpoint, then end the thread; repeatable."""
        await self.flush()
        if self._checkpointing is not None:
            await asyncio.wait([self._checkpointing])
        await self._pool.run(self._thread.stop)

    # Checkpoints

    def maybe_checkpoint(self) -> None:
        """Begin a checkpoint if the engine wants one."""
        if self._checkpointing is None and self.fatal is None and self._engine.checkpoint_due():
            self._start_checkpoint()

    async def checkpoint(self) -> bool:
        """Write a checkpoint of all confirmed groups; it covers none that is confirmed meanwhile.

        A failure is handled like that of any other checkpoint, and not raised.

        Returns:
            Whether all groups that were confirmed before the call are synced.
        """
        while self._checkpointing is not None:
            await asyncio.wait([self._checkpointing])  # it began before some of these groups
        if self.fatal is not None:
            return False
        checkpoint = self._start_checkpoint()
        await asyncio.wait([checkpoint])
        return not checkpoint.cancelled() and checkpoint.result()

    async def make_durable(self) -> None:
        """Sync all confirmed groups, if confirmed does not mean synced.

        For callers that are about to change something outside of the store.

        Raises:
            Fenced: the committer has stopped.
            StorageFailed: the groups may be lost in a power cut.
        """
        self._refuse_after_stop()
        if not self._sync and not await self.checkpoint():
            self._refuse_after_stop()
            raise StorageFailed("a checkpoint could not be written")

    def _start_checkpoint(self) -> asyncio.Task[bool]:
        task = self._supervisor.spawn(self._checkpoint(), "ledger checkpoint")
        self._checkpointing = task
        return task

    async def _checkpoint(self) -> bool:
        is_written = False
        try:
            await self._pool.run(self._engine.checkpoint)
            is_written = True
        except StorageWriteFailed as error:
            self._health.failed(error, "writing a checkpoint of the index")
        except Exception as error:  # noqa: BLE001 - after any other error the state is unknown
            self.stop(from_engine(error))
        finally:
            self._checkpointing = None
        self._containment.run(_SPACE, self.on_space)
        return is_written


class RowsSubmitter:
    """The submitter of one operation without an entry; with no rows at all it is a barrier."""

    __slots__ = ("_done",)
    unit_kind = "completion"

    def __init__(self, done: RowsDone) -> None:
        self._done = done

    @property
    def unit_name(self) -> str:
        """Name of the callback, for the log."""
        return unit_of(self._done, self.unit_kind).unit_name

    def close_after_fault(self, error: Exception) -> None:
        """Do nothing: rows have no state."""

    def confirm(self, operation: Operation) -> None:
        """Call `done`."""
        self._done(None)

    def group_confirmed(self) -> None:
        """Do nothing: `done` was called."""

    def revert(self) -> None:
        """Do nothing: rows have no state."""

    def fail(self, operation: Operation, error: LedgerError) -> None:
        """Call `done` with the error."""
        self._done(error)

    def resume(self) -> None:
        """Do nothing."""


async def submitted(submit: Callable[[RowsDone], None]) -> None:
    """Submit an operation and wait until it is durable.

    Args:
        submit: called once; submits the operation with the given callback.

    Raises:
        LedgerError: the operation failed.
    """
    outcome = asyncio.get_running_loop().create_future()

    def resolve(error: LedgerError | None) -> None:
        if outcome.done():
            return
        if error is None:
            outcome.set_result(None)
        else:
            outcome.set_exception(error)

    submit(resolve)
    await outcome


def ignore_outcome(error: LedgerError | None) -> None:
    """Ignore the outcome: the `done` of rows that are written, or worked out, again if lost."""


def _submitters(operations: Sequence[Operation]) -> list[Submitter]:
    """Return the submitters of operations, each once, in order of its first operation."""
    return list(dict.fromkeys(map(itemgetter(0), operations)))


def _ignore_space() -> None:
    """Stand for `on_space` until it is set."""


def _ignore(position: Position, error: LedgerError | None) -> None:
    """Stand for the `done` of an operation whose submitter calls its own."""
