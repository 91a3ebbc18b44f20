"""Shared database: the rows that all nodes of a cluster share, as one process has them open.

Rule: the process has one copy of the rows, to which it applies its own writes and those that it
reads, so all its nodes see one order. A write is decided and written under one lock of the
database. If the connection dies during a write, the next connection takes the lock and reads
whether the write took effect; the caller waits for that. While the database is unavailable, changes
fail, reads return the copy, and polls are repeated.
Must not know: what rows mean.

Two connections: one for the lock and writes, one that listens and reads. `DatabaseRows` is what one
node uses.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from kledger.ledger.cluster import shared_statements as statements
from kledger.ledger.cluster.database import (
    DatabaseError,
    DatabaseUnusable,
    NoCluster,
    UnknownOutcome,
)
from kledger.ledger.cluster.postgres_connection import (
    READ_TIMEOUT_MS,
    TIMEOUT_MS,
    PostgresConnection,
)
from kledger.ledger.cluster.shared_copy import FoundRows, SharedCopy, found_rows
from kledger.ledger.commits.committer import RowsDone
from kledger.ledger.engine.base import Row
from kledger.ledger.errors import AlreadyClosed, LedgerError, StorageFailed, StoreUnusable
from kledger.ledger.shared_tables import SharedTables
from kledger.runtime.clock import Clock
from kledger.runtime.containment import Containment, NamedUnit
from kledger.runtime.entropy import Entropy, SystemEntropy
from kledger.runtime.tasks import Supervisor

logger = logging.getLogger(__name__)

POLL_MS: Final = 1_000
"""How often a process polls for changes, in case a notification was lost."""
LOCK_TIMEOUT_MS: Final = 15_000
"""How long a change waits for the lock, which a stopped process keeps for 10 s at most."""
PAUSES_MS: Final = (20, 50, 100, 200, 500, 1_000)
"""Before the second, third ... try to settle the outcome of a write; the last one repeats."""
DELETIONS_MAX: Final = 10_000
"""Rows of deletions that are kept for processes which have not seen them, others read all rows."""
FORGET_ROWS: Final = 1_000
"""How many more there must be before they are deleted together."""
TOKEN_BYTES: Final = 16
_COMPLETION = NamedUnit("completion", "a write of shared tables")


class SharedDatabase:
    """The shared rows of a cluster; one for each process, `tables` makes those of a node."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        supervisor: Supervisor,
        timeout_ms: int = TIMEOUT_MS,
        entropy: Entropy | None = None,
    ) -> None:
        """Make one without rows; see `open`."""
        self.copy = SharedCopy()
        self.settled_count = 0
        """Writes whose connection died."""
        self._clock = clock
        self._supervisor = supervisor
        self._entropy = entropy or SystemEntropy()
        self._writer = PostgresConnection(url, supervisor, timeout_ms)
        self._reader = PostgresConnection(url, supervisor, timeout_ms)
        self._queue = LockQueue()
        self._operations = asyncio.Lock()
        """Serializes the use of `_writer`."""
        self._hold: _Hold | None = None
        self._open: list[DatabaseRows] = []
        self._listening: Any = None
        self._next_poll: asyncio.Future[None] | None = None
        self._is_polling = self._is_following = False
        self._is_closed = False

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        clock: Clock,
        supervisor: Supervisor,
        timeout_ms: int = TIMEOUT_MS,
    ) -> "SharedDatabase":
        """Read all rows, and follow changes from then on.

        Args:
            url: of the cluster's database.
            clock: for the interval of polls.
            supervisor: runs the tasks; it is closed after the database.
            timeout_ms: after which the connection of a write counts as lost.

        Raises:
            StorageFailed: the database is unavailable.
            StoreUnusable: it has no cluster, or cannot be used.
        """
        database = cls(url, clock=clock, supervisor=supervisor, timeout_ms=timeout_ms)
        try:
            await database.catch_up()
        except BaseException as error:
            await database.close()
            if isinstance(error.__cause__, NoCluster):
                raise StoreUnusable(
                    "the database has no cluster of several nodes; `kledger cluster init` makes one"
                ) from error
            if isinstance(error.__cause__, DatabaseUnusable):
                raise StoreUnusable(str(error.__cause__)) from error
            raise
        database._is_following = True
        supervisor.spawn(database._poll_at_intervals(), "changes of shared tables")
        return database

    async def tables(self, containment: Containment) -> SharedTables:
        """Return the tables of a node, which know everything that was written before.

        Args:
            containment: for faults of their followers.

        Raises:
            AlreadyClosed: the database is closed.
            StorageFailed: it is away.
        """
        await asyncio.shield(self.poll())
        return SharedTables(DatabaseRows(self, containment), containment)

    def check_open(self) -> None:
        """Raise AlreadyClosed after `close`."""
        if self._is_closed:
            raise AlreadyClosed("the shared tables are closed")

    async def close(self) -> None:
        """End both connections; what is being written fails, and may be there. Idempotent.

        The tables of all nodes are closed before.
        """
        if not self._is_closed:
            self._is_closed = True
            self._queue.fail(AlreadyClosed("the shared tables are closed"))
            self._writer.close()
            self._reader.close()
        if self._hold is not None:
            await self._hold.ended.wait()

    # The lock

    async def lock(self, owner: "DatabaseRows | None") -> None:
        """Take the lock and everything that others have written; see `SharedRows.lock`.

        Args:
            owner: the node that takes it; None: the process itself.
        """
        self.check_open()
        await self._queue.take()
        self._hold = hold = _Hold(owner)
        try:
            await self._supervisor.finish(self._take(hold), "the lock of shared tables")
        except DatabaseError as error:
            failed = _storage_failed(error)
            self._queue.fail(failed)  # they would find the same, one after the other
            self.unlock()
            raise failed from error
        except BaseException:
            self.unlock()
            raise
        if self._is_closed or (owner is not None and owner.is_closed):
            self.unlock()
            raise AlreadyClosed("the shared tables are closed")

    def unlock(self) -> None:
        """Let others take the lock, behind everything that was written."""
        assert self._hold is not None, "the lock is not held"
        self._supervisor.spawn(self._release(self._hold), "the lock of shared tables")

    async def catch_up(self) -> None:
        """Apply what others have written, under the lock: certainly the newest."""
        await self.lock(None)
        self.unlock()

    async def released(self, owner: "DatabaseRows") -> None:
        """Wait until a node does not have the lock."""
        while (hold := self._hold) is not None and hold.owner is owner:
            await hold.ended.wait()

    async def _take(self, hold: "_Hold") -> None:
        async with self._operations:
            self._apply(await _asked(self._writer, partial(self._lock, hold), LOCK_TIMEOUT_MS))

    async def _lock(self, hold: "_Hold", connection: Any) -> FoundRows:
        await connection.fetch(statements.LOCK, statements.LOCK_KEY)
        hold.connection = connection
        found = await self._read_changes(connection)
        if not found.continues:
            found = found_rows(await connection.fetch(statements.ALL), is_all=True)
        return found

    async def _release(self, hold: "_Hold") -> None:
        async with self._operations:
            try:
                if hold.connection is not None and hold.connection is self._writer.current:
                    await self._writer.use(self._unlock, READ_TIMEOUT_MS)
            except DatabaseError as error:
                self._writer.drop()  # the lock ends with its connection
                logger.debug("the lock of shared tables ends with its connection: %s", error)
            finally:
                self._hold = None
                hold.ended.set()
                self._queue.pass_on()

    async def _unlock(self, connection: Any) -> None:
        end = self.copy.seen - DELETIONS_MAX
        if end - self.copy.forgotten >= FORGET_ROWS:
            await connection.fetch(statements.FORGET, end)
        await connection.fetch(statements.UNLOCK)

    # Writes

    def write(self, owner: "DatabaseRows", rows: Sequence[Row], done: RowsDone) -> None:
        """Write rows under the lock that a node has; see `SharedRows.write`."""
        hold = self._hold
        assert hold is not None, "rows are written without the lock"
        assert hold.owner is owner, "rows are written under the lock of another node"
        self._supervisor.spawn(self._write(hold, owner, rows, done), "a write of shared tables")

    async def _write(
        self, hold: "_Hold", owner: "DatabaseRows", rows: Sequence[Row], done: RowsDone
    ) -> None:
        token = self._entropy.token(TOKEN_BYTES)
        async with self._operations:
            # What was decided on a write that failed fails, too.
            failed = hold.error
            if rows and failed is None:
                try:
                    await self._written(hold, rows, token)
                except LedgerError as error:
                    failed = hold.error = error
                except DatabaseError as error:
                    failed = hold.error = _storage_failed(error)
            with owner.containment.guarding(_COMPLETION):
                # One for each caller, as a raised error collects a traceback.
                done(None if failed is None else StorageFailed(str(failed)))
            if failed is None:
                self._notify(rows, except_for=owner)

    async def _written(self, hold: "_Hold", rows: Sequence[Row], token: bytes) -> None:
        """Write rows; `copy` has them then. Raises LedgerError, DatabaseError: they are not."""
        seen = self.copy.seen
        arguments = statements.write_arguments(seen, token, rows)
        number = seen + len(rows)
        while True:
            try:
                took_effect = await self._writer.use(partial(self._send, hold, arguments))
            except UnknownOutcome as error:
                logger.info("the outcome of a write of shared tables is to be settled: %s", error)
                took_effect = None
            if took_effect is None:
                took_effect = await self._settle(hold, number, token)
            if took_effect:
                self.copy.wrote(rows, number, token)
                return
            if hold.error is not None:
                raise hold.error

    async def _send(
        self, hold: "_Hold", arguments: tuple[object, ...], connection: Any
    ) -> bool | None:
        """Return whether a write took effect; None: the lock was lost, nothing was sent."""
        if connection is not hold.connection:
            return None
        if await connection.fetch(statements.WRITE, *arguments):
            return True
        hold.error = StorageFailed("shared tables: others have written under the lock")
        return False

    async def _settle(self, hold: "_Hold", number: int, token: bytes) -> bool:
        """Return whether a write is there, when that cannot change any more.

        Afterwards the lock is held again, and `hold.error` says why nothing else may be written
        under it, if others have written meanwhile.
        """
        self.settled_count += 1
        ask = partial(self._ask_for_write, hold, number, token)
        tries = 0
        while True:
            try:
                return await self._writer.use(ask, LOCK_TIMEOUT_MS)
            except DatabaseError as error:
                self._queue.fail(_storage_failed(error))
                if self._is_closed or (hold.owner is not None and hold.owner.is_closed):
                    raise
                if tries == 0:
                    logger.warning("the outcome of a change waits for the database: %s", error)
                await self._clock.sleep(PAUSES_MS[min(tries, len(PAUSES_MS) - 1)])
                tries += 1

    async def _ask_for_write(
        self, hold: "_Hold", number: int, token: bytes, connection: Any
    ) -> bool:
        await connection.fetch(statements.LOCK, statements.LOCK_KEY)
        hold.connection = connection
        copy = self.copy
        [found] = await connection.fetch(statements.SETTLE, copy.seen, copy.token, number, token)
        await connection.fetch(statements.BARRIER)
        is_written = bool(found["is_written"])
        expected = number if is_written else copy.seen
        if found["number"] != expected or not (found["continues"] or is_written):
            hold.error = StorageFailed(
                f"shared tables: expected that row {expected} is the newest, got "
                f"{found['number']}: the lock was lost, and others have written"
            )
        return is_written

    # Changes of others

    def poll(self) -> "asyncio.Future[None]":
        """Begin to read what others have written, or join a poll that has not begun.

        Raises:
            AlreadyClosed: the database is closed.
        """
        self.check_open()
        if self._next_poll is None:
            self._next_poll = asyncio.get_running_loop().create_future()
            if not self._is_polling:
                self._is_polling = True
                self._supervisor.spawn(self._run_polls(), "a poll of shared tables")
        return self._next_poll

    async def _run_polls(self) -> None:
        try:
            while (poll := self._next_poll) is not None:
                self._next_poll = None
                error: LedgerError | None = None
                try:
                    await self._poll_once()
                except LedgerError as failed:
                    error = failed
                except DatabaseError as failed:
                    error = _storage_failed(failed)
                self._note_following(error)
                if not poll.done():
                    _resolve(poll, error)
        finally:
            self._is_polling = False

    async def _poll_once(self) -> None:
        found = await _asked(self._reader, self._listen_and_read, READ_TIMEOUT_MS)
        # A write under way may be among what was found, and its outcome comes first. What does not
        # continue is read under the lock, from where it is sure to be the newest.
        if found.continues and (self._hold is None or found.number <= self.copy.seen):
            self._apply(found)
        else:
            await self.catch_up()

    async def _listen_and_read(self, connection: Any) -> FoundRows:
        if connection is not self._listening:
            await connection.add_listener(statements.CHANNEL, self._notified)
            self._listening = connection
        return await self._read_changes(connection)

    async def _read_changes(self, connection: Any) -> FoundRows:
        seen, token = self.copy.seen, self.copy.token
        return found_rows(await connection.fetch(statements.CHANGES, seen, token), is_all=False)

    def _notified(self, _connection: Any, _process: int, _channel: str, number: str) -> None:
        # While this process has the lock, no other one writes.
        if self._hold is None and int(number) > self.copy.seen:
            self._poll_in_background()

    def _poll_in_background(self) -> None:
        with suppress(AlreadyClosed):
            self.poll()

    async def _poll_at_intervals(self) -> None:
        while not self._is_closed:
            await self._clock.sleep(POLL_MS)
            self._poll_in_background()

    def _note_following(self, error: LedgerError | None) -> None:
        """Log once that changes of others cannot be read, and once that they can again."""
        is_following = error is None
        if is_following != self._is_following and not self._is_closed:
            if error is None:
                logger.info("changes of shared tables are followed again")
            else:
                logger.warning("changes of shared tables are not followed for now: %s", error)
            self._is_following = is_following

    def _apply(self, found: FoundRows) -> None:
        self._notify(self.copy.take(found))

    def _notify(self, rows: Sequence[Row], *, except_for: "DatabaseRows | None" = None) -> None:
        if rows:
            for each in tuple(self._open):
                if each is not except_for:
                    each.changed(rows)

    def join(self, rows: "DatabaseRows") -> None:
        """Notify a node of changes from now on."""
        self._open.append(rows)

    def leave(self, rows: "DatabaseRows") -> None:
        """Notify a node no more."""
        self._open.remove(rows)


class DatabaseRows:
    """The `SharedRows` of one node."""

    def __init__(self, database: SharedDatabase, containment: Containment) -> None:
        """Args: containment: for faults of those that have written."""
        self.is_closed = False
        self.containment = containment
        self.changed: Callable[[Sequence[Row]], None]
        """Called with rows that others have written, also other nodes of this process."""
        self._database = database

    def follow(
        self, changed: Callable[[Sequence[Row]], None], lost: Callable[[BaseException], None]
    ) -> None:
        """Call `changed` from now on; nothing is ever lost, as all rows can be read again."""
        self.changed = changed
        self._database.join(self)

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Return the rows of a prefix as the process knows them; does not block."""
        return self._database.copy.scan(prefix)

    async def lock(self) -> None:
        """Take the lock of the database."""
        self._check_open()
        await self._database.lock(self)

    def unlock(self) -> None:
        """Let others take the lock, behind everything that was written."""
        self._database.unlock()

    def write(self, rows: Sequence[Row], done: RowsDone) -> None:
        """Write rows in one transaction."""
        self._database.write(self, rows, done)

    def poll(self) -> "asyncio.Future[None]":
        """Return a future; done when `changed` has all rows of others. Nodes share polls."""
        self._check_open()
        return self._database.poll()

    async def close(self) -> None:
        """Wait for what is being decided and written. Idempotent.

        While the database is unavailable, what is being written fails, and may be there
        nevertheless.
        """
        if not self.is_closed:
            self.is_closed = True
            await self._database.released(self)
            self._database.leave(self)

    def _check_open(self) -> None:
        if self.is_closed:
            raise AlreadyClosed("the shared tables are closed")


class LockQueue:
    """The tasks of one process that wait for the lock of the database, in their order."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Wait until this task is first in the queue; raises what `fail` was called with."""
        if not self._is_taken:
            self._is_taken = True
            return
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(ready)
        try:
            await ready
        except asyncio.CancelledError:
            if ready.done() and not ready.cancelled() and ready.exception() is None:
                self.pass_on()
            raise

    def pass_on(self) -> None:
        """Let the next task in the queue continue."""
        while self._waiting:
            ready = self._waiting.popleft()
            if not ready.done():
                ready.set_result(None)
                return
        self._is_taken = False

    def fail(self, error: LedgerError) -> None:
        """Let all fail that wait now."""
        waiting, self._waiting = self._waiting, deque()
        for ready in waiting:
            if not ready.done():
                ready.set_exception(type(error)(str(error)))


class _Hold:
    """A period for which a node of this process has the lock.

    Attributes:
        owner: the node; None: the process itself.
        connection: that has the lock in the database; another one does not.
        error: why nothing more is written under it.
        ended: set when the lock is released.
    """

    def __init__(self, owner: DatabaseRows | None) -> None:
        self.owner = owner
        self.connection: Any = None
        self.error: LedgerError | None = None
        self.ended = asyncio.Event()


async def _asked(
    connection: PostgresConnection,
    work: Callable[[Any], Coroutine[Any, Any, FoundRows]],
    timeout_ms: int,
) -> FoundRows:
    """Read, and once more if the connection may have died before the query was sent."""
    was_open = connection.current is not None
    try:
        return await connection.use(work, timeout_ms)
    except UnknownOutcome:
        if not was_open:
            raise
    return await connection.use(work, timeout_ms)


def _resolve(poll: "asyncio.Future[None]", error: LedgerError | None) -> None:
    if error is None:
        poll.set_result(None)
    else:
        poll.set_exception(error)
        poll.exception()  # retrieved, as there may be no waiting caller


def _storage_failed(error: DatabaseError) -> StorageFailed:
    return StorageFailed(f"shared tables: {error}")
