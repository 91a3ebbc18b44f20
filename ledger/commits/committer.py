"""Committer: turns what the managed ledgers submit in one loop turn into one group of the engine.

Rule: everything is confirmed, or fails, in the order in which it was submitted. One group is under
way at a time; what comes meanwhile makes up the next. A group that was not written fails together
with all that was submitted behind it, before anything new is accepted. A sync that failed leaves an
unknown state: the committer stops for good, and nothing is ever tried again. What a submitter
raises closes that submitter; what goes wrong between two groups stops the committer.
Must not know: managed ledgers; it sees operations of a Submitter, in order.

| where a group is committed | when                                                               |
|----------------------------|--------------------------------------------------------------------|
| on the loop                | it is below `on_loop_bytes_max`, the group before was not slow,    |
|                            | it moves nothing, and the engine is not behind with its index      |
| in the helper thread       | otherwise; with a sync always                                      |
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
from kledger.ledger.errors import Fenced, LedgerError, from_engine
from kledger.ledger.position import EARLIEST, Position
from kledger.ledger.storage_health import StorageHealth
from kledger.runtime.blocking import BlockingRunner
from kledger.runtime.clock import Clock
from kledger.runtime.containment import FaultUnit, NamedUnit, unit_of
from kledger.runtime.tasks import Supervisor

__all__ = [
    "AppendDone",
    "CommitFinished",
    "CommitRunner",
    "CommitThread",
    "Committer",
    "Operation",
    "Row",
    "RowsDone",
    "RowsSubmitter",
    "StartCommits",
    "Submitter",
    "ignore_outcome",
    "submitted",
]

logger = logging.getLogger(__name__)

LAZY_ROWS_MAX = 8
"""Rows that may wait for a group to come; who reads what they describe does without them."""
SLOW_COMMIT_MS = 2
"""A commit on the loop that took longer sends the next group to the helper thread."""
_SPACE = NamedUnit("background work", "on space and checkpoints")
_STOP = NamedUnit("completion", "of a store that stops")

Token = TypeVar("Token")
Token_contra = TypeVar("Token_contra", contravariant=True)
CommitFinished: TypeAlias = Callable[[Token, Exception | None], None]

AppendDone: TypeAlias = Callable[[Position, LedgerError | None], None]
RowsDone: TypeAlias = Callable[[LedgerError | None], None]
Operation: TypeAlias = tuple["Submitter", Position, int, Buffer, AppendDone]
"""Who submitted it, and four values that only the submitter understands: a plain tuple, as one is
made for every append."""


class Submitter(FaultUnit, Protocol):
    """Who learns what became of operations. `revert` may come more than once for one failure.

    A fault of one of these methods closes the submitter; the others are told all the same.
    """

    def confirm(self, operation: Operation) -> None:
        """The operation is as durable as the store promises."""
        ...

    def group_confirmed(self) -> None:
        """All operations of a group were confirmed, at least one of them of this submitter."""
        ...

    def revert(self) -> None:
        """Nothing unconfirmed of this submitter exists; take nothing new until `resume`."""
        ...

    def fail(self, operation: Operation, error: LedgerError) -> None:
        """Tell the caller of one operation; called in the order of submission, after `revert`."""
        ...

    def resume(self) -> None:
        """Every failure was told; go on."""
        ...


class CommitRunner(Protocol[Token_contra]):
    """What the committer knows of its thread; see `CommitThread`."""

    def submit(self, group: CommitGroup, token: Token_contra) -> None:
        """Commit a group behind those submitted before."""
        ...

    def stop(self) -> None:
        """End after what is in hand; blocks until then. May be repeated."""
        ...

    def abandon(self) -> None:
        """End after what has begun; blocks until then."""
        ...


class StartCommits(Protocol):
    """Makes an idle commit thread."""

    def __call__(
        self, engine: StorageEngine, *, sync: bool, on_finished: CommitFinished[Token]
    ) -> CommitRunner[Token]:
        """Return it; the arguments are those of `CommitThread`."""
        ...


class CommitThread(Generic[Token]):
    """Commits one group after the other; starts with the first."""

    def __init__(
        self, engine: StorageEngine, *, sync: bool, on_finished: CommitFinished[Token]
    ) -> None:
        """Make an idle one.

        Args:
            engine: where to commit.
            sync: passed on to every commit.
            on_finished: called in the thread with the token of a group and its error, if it has
                one.
        """
        self._engine = engine
        self._sync = sync
        self._on_finished = on_finished
        self._queue: SimpleQueue[tuple[CommitGroup, Token] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._is_abandoned = False

    def submit(self, group: CommitGroup, token: Token) -> None:
        """Commit a group behind those submitted before."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name="committer", daemon=True)
            self._thread.start()
        self._queue.put((group, token))

    def stop(self) -> None:
        """End the thread after what it has in hand; blocks until then. May be repeated."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()

    def abandon(self) -> None:
        """End the thread after what it has begun; what it has not begun is never committed."""
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
                commit(group, sync=sync)
            except Exception as error:  # noqa: BLE001 - whatever it is, the loop decides on it
                on_finished(token, error)
            else:
                on_finished(token, None)


@dataclass(slots=True)
class _CommitBatch:
    """A group under way, or being collected."""

    group: CommitGroup
    operations: list[Operation]
    size: int
    is_written: bool = False  # told by the thread, before it tells the loop


class Committer:
    """The only writer of an engine.

    `entries`, `rows`, `drops`, `operations` and `size` are the group being collected. They are
    open to the append path of managed ledgers, which adds to them itself (rows by `add_rows`) and
    then calls `schedule_commit` unless `is_commit_scheduled`; everyone else calls `submit_rows`.
    What nobody called `schedule_commit` for waits for a group that somebody else needs.
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
        on_fatal: Callable[[LedgerError], None],
        health: StorageHealth,
        start_commits: StartCommits = CommitThread,
    ) -> None:
        """Make an idle one, for the running loop.

        Args:
            engine: nobody else writes to it.
            sync: whether confirmed means synced.
            on_loop_bytes_max: groups below this are committed on the loop.
            queue_bytes_max: see `is_saturated`.
            queue_count_max: see `is_saturated`.
            clock: tells the time of a turn.
            pool: where checkpoints run.
            supervisor: of the checkpoints.
            on_fatal: called once, when the committer stops and before the unconfirmed hear of it.
            health: hears what becomes of writes.
            start_commits: makes the helper thread.
        """
        self.entries: list[tuple[int, int, Buffer]] = []
        self.rows: list[Row] = []
        self.drops: list[int] = []
        self.operations: list[Operation] = []
        self.size = 0
        self.is_commit_scheduled = False
        self.tick_ms = 0
        self.tick_count = 0
        """Turns of the loop in which something was submitted."""
        self.fatal: LedgerError | None = None
        self.on_space: Callable[[], None] = _ignore_space
        """Called when ledgers were dropped, and after a checkpoint: space may have become free."""
        self._moves: list[Move] = []
        self._seals = False
        self._engine = engine
        self._on_loop_bytes_max = on_loop_bytes_max
        self._queue_bytes_max = queue_bytes_max
        self._queue_count_max = queue_count_max
        self._clock = clock
        self._pool = pool
        self._supervisor = supervisor
        self._containment = supervisor.containment
        self._on_fatal = on_fatal
        self._health = health
        self._loop = asyncio.get_running_loop()
        self._thread: CommitRunner[_CommitBatch] = start_commits(
            engine, sync=sync, on_finished=self._finished_in_thread
        )
        self._sync = sync
        self._batch_in_flight: _CommitBatch | None = None
        self._is_due = False  # a turn ended behind a group under way: the next one is wanted
        self._was_slow = False
        self._checkpointing: asyncio.Task[None] | None = None
        self._drained: list[Callable[[], None]] = []

    # Taking in

    def schedule_commit(self) -> None:
        """Commit what is collected at the end of this loop turn; note the turn's time."""
        self.is_commit_scheduled = True
        self.tick_count += 1
        self.tick_ms = self._clock.monotonic_ms()
        self._loop.call_soon(self._tick_ended)

    def submit_rows(self, rows: Iterable[Row], done: RowsDone, drops: Iterable[int] = ()) -> None:
        """Commit rows, in order with everything else. A key stands in stored form.

        Raises:
            Fenced: the committer has stopped; `done` is not called.
        """
        self.submit_for(RowsSubmitter(done), rows, drops)

    def submit_rows_lazily(self, rows: Iterable[Row], done: RowsDone) -> None:
        """Commit rows with the next group that is needed anyway: they cost no sync of their own.

        When more than LAZY_ROWS_MAX rows wait, that group is needed.

        Raises:
            Fenced: the committer has stopped; `done` is not called.
        """
        self._add(RowsSubmitter(done), rows)
        if len(self.rows) > LAZY_ROWS_MAX and not self.is_commit_scheduled:
            self.schedule_commit()

    def submit_for(
        self, submitter: Submitter, rows: Iterable[Row], drops: Iterable[int] = ()
    ) -> None:
        """Commit rows for a submitter that needs to know in which order they are confirmed.

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
        """Commit what the engine wants to be moved, with everything else that is collected.

        Raises:
            Fenced: the committer has stopped; `done` is not called.
        """
        self._refuse_after_stop()
        self.entries += group.entries
        self._moves += group.moves
        self._seals = self._seals or group.seals
        self.size += sum(len(data) for _, _, data in group.entries)
        self.submit_for(RowsSubmitter(done), group.rows, group.drops)

    def add_rows(self, rows: Iterable[Row]) -> None:
        """Put rows into the group being collected, for an operation that the caller adds."""
        rows = list(rows)
        self.rows += rows
        self.size += sum(len(key) + (len(value) if value else 0) for key, value in rows)

    def _refuse_after_stop(self) -> None:
        if self.fatal is not None:
            raise Fenced(str(self.fatal))

    async def flush(self) -> None:
        """Wait until all that was submitted so far is confirmed or has failed."""
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
        """Bytes of all entries and rows that are not confirmed yet."""
        return self.size + (self._batch_in_flight.size if self._batch_in_flight else 0)

    @property
    def queued_count(self) -> int:
        """The same as a number of operations."""
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
        """Call back once, on the loop, when at most half of the limits is in use, or never will."""
        self._drained.append(callback)
        if self.fatal is not None or (
            self._batch_in_flight is None and not self.is_commit_scheduled
        ):
            self._loop.call_soon(self._maybe_drained)

    def _maybe_drained(self) -> None:
        # Nothing is accepted any more by one that has stopped, so who waits must not wait for room.
        if self.fatal is None and (
            self.queued_bytes > self._queue_bytes_max // 2
            or self.queued_count > self._queue_count_max // 2
        ):
            return
        callbacks, self._drained = self._drained, []
        for callback in callbacks:
            self._containment.run(unit_of(callback, "completion"), callback)

    # A group's way

    def _tick_ended(self) -> None:
        self.is_commit_scheduled = False
        if self._batch_in_flight is not None:
            self._is_due = True
        elif self.operations:
            self._try_start()

    def _try_start(self) -> None:
        """Start the next group; where that fails, nobody knows how far it has come."""
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
        batch = _CommitBatch(group, self.operations, self.size)
        self.entries, self.rows, self.drops, self.operations, self.size = [], [], [], [], 0
        self._is_due = False
        return batch

    def _commit_on_loop(self, batch: _CommitBatch) -> None:
        began_ms = self._clock.monotonic_ms()
        try:
            self._engine.commit(batch.group, sync=self._sync)
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
            # The loop was closed over a group under way: nobody is left to tell.
            logger.warning(
                "the event loop closed before a group of %d entries was confirmed",
                len(batch.group.entries),
            )

    def _commit_finished(self, batch: _CommitBatch, error: Exception | None) -> None:
        """Continue with a group whose commit has ended.

        Three cases:
        1. written: index it, send the next group on its way, confirm;
        2. not written: fail it and all behind it, go on;
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
        """Confirm a group, with the next one on its way already."""
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

        It is in the thread before this returns. What would be confirmed on the loop waits for the
        end of the turn: it must not overtake the group before.
        """
        if self._sync and self._on_loop_bytes_max == 0 and not self._is_nothing_collected:
            self._try_start()
        else:
            self.schedule_commit()

    def _try_index(self, group: CommitGroup) -> Exception | None:
        try:
            self._engine.index(group)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing may go on
            # The log has the group, the index does not: only a restart can tell.
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
        behind = self._take_collected()
        self._fail(batch.operations + behind.operations, error)
        if self._drained:
            self._maybe_drained()

    def _failure(self, cause: Exception) -> LedgerError:
        """Return an error of its own for one caller: what is raised collects a traceback."""
        return from_engine(cause) if self.fatal is None else Fenced(str(cause))

    def _fail(self, operations: Sequence[Operation], cause: Exception) -> None:
        """Fail operations in three rounds: all states go back, all callers hear, all go on."""
        submitters, run = _submitters(operations), self._containment.run
        for submitter in submitters:
            run(submitter, submitter.revert)
        for operation in operations:
            run(operation[0], operation[0].fail, operation, self._failure(cause))
        for submitter in submitters:
            run(submitter, submitter.resume)

    # Stopping

    def stop(self, error: LedgerError, batch: _CommitBatch | None = None) -> None:
        """Fence: fail everything unconfirmed, now and for ever; the thread may still be busy."""
        if self.fatal is not None:
            return
        self.fatal = error = Fenced(str(error))
        logger.error("the ledger store stops: %s", error)
        operations = self._take_collected().operations
        if batch := batch or self._batch_in_flight:
            # A group still in the thread has nobody to tell any more when it lands.
            operations, batch.operations = batch.operations + operations, []
        self._containment.run(_STOP, self._on_fatal, error)
        self._fail(operations, error)
        if self._drained:
            self._loop.call_soon(self._maybe_drained)

    async def detach(self) -> None:
        """Fence, and let go of an engine that somebody else goes on with.

        What is under way ends first, and what was written of it is indexed: the engine is then as
        if it had just been opened.
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
        """Wait for what is under way, then end the thread. May be repeated."""
        await self.flush()
        if self._checkpointing is not None:
            await asyncio.wait([self._checkpointing])
        await self._pool.run(self._thread.stop)

    # Checkpoints

    def maybe_checkpoint(self) -> None:
        """Begin a checkpoint if the engine wants one."""
        if self._checkpointing is None and self.fatal is None and self._engine.checkpoint_due():
            work = self._checkpoint()
            self._checkpointing = self._supervisor.spawn(work, "ledger checkpoint")

    async def _checkpoint(self) -> None:
        try:
            await self._pool.run(self._engine.checkpoint)
        except StorageWriteFailed as error:
            self._health.failed(error, "writing a checkpoint of the index")
        except Exception as error:  # noqa: BLE001 - whatever it is, the state is unknown
            self.stop(from_engine(error))
        finally:
            self._checkpointing = None
        self._containment.run(_SPACE, self.on_space)


class RowsSubmitter:
    """The submitter of one operation without an entry; with no rows at all it is a barrier."""

    __slots__ = ("_done",)
    unit_kind = "completion"

    def __init__(self, done: RowsDone) -> None:
        self._done = done

    @property
    def unit_name(self) -> str:
        """The callback, for the log."""
        return unit_of(self._done, self.unit_kind).unit_name

    def close_after_fault(self, error: Exception) -> None:
        """Nothing to close: rows have no state."""

    def confirm(self, operation: Operation) -> None:
        """Tell the caller."""
        self._done(None)

    def group_confirmed(self) -> None:
        """Nothing to do: the caller was told."""

    def revert(self) -> None:
        """Nothing to do: rows have no state."""

    def fail(self, operation: Operation, error: LedgerError) -> None:
        """Tell the caller."""
        self._done(error)

    def resume(self) -> None:
        """Nothing to do."""


async def submitted(submit: Callable[[RowsDone], None]) -> None:
    """Submit something and wait until it is durable.

    Args:
        submit: submits it, with the callback that it is given.

    Raises:
        LedgerError: what became of it instead.
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
    """Be the `done` of what nobody waits for: what was not stored is wanted again later."""


def _submitters(operations: Sequence[Operation]) -> list[Submitter]:
    """Return everyone who submitted one of the operations, once, in order of the first."""
    return list(dict.fromkeys(map(itemgetter(0), operations)))


def _ignore_space() -> None:
    """Whoever wants to know about space sets `on_space`."""


def _ignore(position: Position, error: LedgerError | None) -> None:
    """The end of an operation whose submitter tells its caller itself."""
