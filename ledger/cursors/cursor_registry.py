"""Cursor registry: the cursors of one managed ledger, by name. A shell.

Rule: a durable cursor is registered from the moment it is durable until its removal is; the durable
position of the slowest one holds back trimming. Non-durable cursors are registered while they are
open and hold back nothing.
Must not know: appends, retention.
"""

import asyncio
import logging
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from types import MappingProxyType

from kledger.ledger.commits.committer import ignore_outcome, submitted
from kledger.ledger.compacted_reader import CompactedReader
from kledger.ledger.cursors.cursor import Cursor, CursorHost
from kledger.ledger.cursors.cursor_metrics import CursorMetrics
from kledger.ledger.cursors.cursor_records import encode_cursor
from kledger.ledger.cursors.cursor_recovery_plan import StoredCursor
from kledger.ledger.cursors.cursor_rows_state import CursorRowsState
from kledger.ledger.cursors.cursor_state import CursorState, EntryPart
from kledger.ledger.cursors.cursor_writer import CursorWriter
from kledger.ledger.errors import AlreadyClosed, CursorNotFound, InvalidArgument
from kledger.ledger.ledger_reader import LedgerReader
from kledger.ledger.metadata import keys
from kledger.ledger.metadata.ledger_list_state import LedgerListState
from kledger.ledger.position import EARLIEST, LATEST, Position
from kledger.ledger.store_services import StoreServices

logger = logging.getLogger(__name__)
STEPS_MAX = 100_000
"""With more steps the oldest ledgers are forgotten."""
UNKNOWN_MS = (1 << 63) - 1


class CursorRegistry:
    """All cursors of one handle of a managed ledger."""

    def __init__(
        self,
        *,
        name: str,
        shown_as: str,
        ledgers: LedgerListState,
        reader: LedgerReader,
        services: StoreServices,
        check: Callable[[], None],
        listen: Callable[[Callable[[], None]], Callable[[], None]],
        on_progress: Callable[[], None],
    ) -> None:
        """Make one without cursors.

        Args:
            name: of the managed ledger.
            shown_as: its name in metrics and messages.
            ledgers: its confirmed entries.
            reader: reads its entries.
            services: of the store.
            check: raises when the handle is unusable.
            listen: adds a listener for every change; returns a function that removes it.
            on_progress: called when the slowest durable cursor may release a ledger.
        """
        self._name = name
        self._shown_as = shown_as
        self._reader = reader
        self._check_handle = check
        self._listen = listen
        self._non_durable: dict[str, Cursor] = {}
        self._non_durable_count = 0
        self._services = services
        self._ledgers = ledgers
        self._on_progress = on_progress
        self._durable: dict[str, Cursor] = {}
        self._in_making: Cursor | None = None

    # Made by the first use: most partitions have no cursors, and very many may be open

    @cached_property
    def times(self) -> "EntryTimes":
        """When entries were added."""
        return EntryTimes(self._ledgers.latest_time)

    @cached_property
    def metrics(self) -> CursorMetrics:
        """Of the cursors."""
        return CursorMetrics(
            self._services.metrics,
            self._services.revision_counts,
            cluster=self._services.config.cluster,
            managed_ledger=self._name,
            shown_as=self._shown_as,
        )

    @cached_property
    def _host(self) -> CursorHost:
        times = self.times
        return CursorHost(
            name=self._shown_as,
            ledgers=self._ledgers,
            reader=self._reader,
            compacted_reader=CompactedReader(
                self._ledgers, self._services, self._check_handle, self._shown_as
            ),
            services=self._services,
            check=self._check_handle,
            listen=self._listen,
            time_of=lambda entry: times.time_of(entry.position),
            forget=partial(_forget, self._non_durable, self.metrics),
        )

    @cached_property
    def _lock(self) -> asyncio.Lock:
        return asyncio.Lock()

    # For the user, by way of the managed ledger

    async def open(self, name: str, initial: Position) -> Cursor:
        """Return the durable cursor of a name; make it if there is none."""
        if initial not in {EARLIEST, LATEST}:
            raise InvalidArgument(f"initial: expected EARLIEST or LATEST, got {initial!r}")
        return await self.open_at(name, EntryPart(initial, ()))

    async def open_at(
        self, name: str, start: EntryPart, *, reads_compacted: bool = False
    ) -> Cursor:
        """Open a cursor; a new one begins at `start`, whose records are acknowledged."""
        _check_name(name)
        if not isinstance(start.position, Position):
            raise InvalidArgument(f"position: expected a Position, got {start.position!r}")
        self._check()
        work = self._open(name, start, reads_compacted)
        return await self._services.supervisor.finish(work, f"open cursor {name}")

    async def delete(self, name: str) -> None:
        """Remove a durable cursor; it no longer holds back trimming."""
        _check_name(name)
        self._check()
        await self._services.supervisor.finish(self._delete(name), f"delete cursor {name}")

    def make_non_durable(self, start: Position | None) -> Cursor:
        """Return a non-durable cursor with `start` as its mark-delete position."""
        self._check()
        start_position = self._ledgers.lac if start is None else start
        if not isinstance(start_position, Position):
            raise InvalidArgument(f"start: expected a Position, got {start!r}")
        if start_position == EARLIEST:
            start_position = self._ledgers.first_position
        self._non_durable_count += 1
        name = f"non-durable-{self._non_durable_count}"
        start_position = min(start_position, self._ledgers.lac)
        cursor = Cursor(name, CursorState(self._ledgers, start_position), self._host, None)
        self._non_durable[name] = cursor
        self.metrics.show(cursor)
        return cursor

    @property
    def durable(self) -> MappingProxyType[str, Cursor]:
        """The durable cursors by name, closed ones too."""
        return MappingProxyType(dict(self._durable))

    @property
    def is_any(self) -> bool:
        """Whether there is any cursor."""
        return bool(self._durable or self._non_durable)

    # For the managed ledger

    def recover(self, stored: Iterable[StoredCursor]) -> None:
        """Register the durable cursors that are stored."""
        for each in stored:
            self._recover(each)

    @property
    def slowest(self) -> Position | None:
        """The lowest durable mark-delete position; None without durable cursors."""
        return self.slowest_without(None)

    def slowest_without(self, name: str | None) -> Position | None:
        """Return the lowest durable mark-delete position, one cursor aside; None without one.

        A cursor that reads compacted needs no ledger for which a compacted one stands.
        """
        durable_positions = (
            max(cursor.writer.durable_position, cursor.state.horizon)
            for cursor in self._known()
            if cursor.writer is not None and cursor.name != name
        )
        return min(durable_positions, default=None)

    def acknowledge_removed(self, ledger_ids: Sequence[int]) -> None:
        """Acknowledge for every cursor the entries of ledgers that are about to be removed."""
        last = max(
            (
                Position(ledger_id, entries - 1)
                for ledger_id in ledger_ids
                if (entries := self._ledgers.entries_in(ledger_id))
            ),
            default=None,
        )
        for ledger_id in ledger_ids:
            self.times.forget(ledger_id)
        if last is None:
            return
        for cursor in self._known():
            if cursor.state.ledgers_removed(last) and cursor.writer is not None:
                cursor.writer.acknowledge_removed(last)

    def acknowledge_before(self, part: EntryPart, *, reads_compacted: bool) -> None:
        """Acknowledge all before an entry and a part of it, for every cursor that reads the same.

        Args:
            part: the entry.
            reads_compacted: whether these are the cursors that read compacted, or all others.
        """
        last = self._ledgers.previous(part.position)
        for cursor in self._known():
            if cursor.reads_compacted is not reads_compacted:
                continue
            cursor.revision.acknowledge_before(last, part)
            if cursor.writer is not None and cursor is not self._in_making:
                cursor.writer.mark_changed()

    def close(self) -> None:
        """Close all cursors; their last rows are submitted when this returns."""
        for cursor in (*self._durable.values(), *self._non_durable.values()):
            # An earlier close may have failed.
            has_unwritten = cursor.writer is not None and cursor.writer.has_unwritten
            if has_unwritten or not cursor.is_closed:
                # The handle waits for the committer; what is not stored is not acknowledged.
                cursor.submit_close(ignore_outcome)

    def end(self) -> None:
        """End all cursors without a write: the managed ledger was deleted."""
        for cursor in (*self._durable.values(), *self._non_durable.values()):
            cursor.end()

    def unlink(self) -> None:
        """Drop the references to the closed handle; cursors stay as they are."""
        self._on_progress = _no_listener
        for cursor in self._known():
            if cursor.writer is not None:
                cursor.writer.unlink()

    # Inside

    def _known(self) -> list[Cursor]:
        """Return all cursors, and the one that is being made."""
        making = () if self._in_making is None else (self._in_making,)
        return [*self._durable.values(), *self._non_durable.values(), *making]

    async def _open(self, name: str, start: EntryPart, reads_compacted: bool) -> Cursor:
        async with self._lock:
            self._check()
            cursor = self._durable.get(name)
            if cursor is None:
                cursor = await self._create(name, start, reads_compacted)
            elif cursor.is_closed:
                assert cursor.writer is not None
                cursor.writer.reopen()
                cursor = cursor.successor()
            else:
                return cursor
            self._durable[name] = cursor
            self.metrics.show(cursor)
            return cursor

    async def _create(self, name: str, start: EntryPart, reads_compacted: bool) -> Cursor:
        ledgers, limit = self._ledgers, self._services.config.cursor_ranges_max
        state = CursorState(ledgers, ledgers.lac, reads_compacted=reads_compacted)
        state.reset_to(
            start.position, acknowledged=start.indexes or (), batch_size=start.batch_size
        )
        record, _ = state.record(ranges_max=limit, batches_max=limit)
        row = (keys.cursor_key(ledgers.head.managed_ledger_id, name), encode_cursor(record))
        writer = self._writer(name, state, state.mark_delete_position, CursorRowsState(limit))
        self._in_making = cursor = Cursor(name, state, self._host, writer)
        try:
            await submitted(lambda done: self._services.committer.submit_rows([row], done))
        finally:
            self._in_making = None
        self._check()
        if start.position == LATEST and state.has_unread:
            state.reset_to(LATEST)  # acknowledges what was appended meanwhile
        writer.mark_changed()
        return cursor

    async def _delete(self, name: str) -> None:
        async with self._lock:
            self._check()
            cursor = self._durable.get(name)
            if cursor is None:
                raise CursorNotFound(f"{self._shown_as} has no cursor {name!r}")
            writer = cursor.writer
            assert writer is not None
            rows = writer.delete()
            try:
                await submitted(lambda done: self._services.committer.submit_rows(rows, done))
            except BaseException:
                writer.not_deleted(is_closed=cursor.is_closed)
                raise
            self._durable.pop(name, None)
            cursor.end()
            self.metrics.forget(name)
            writer.deleted()
            self._on_progress()

    def _recover(self, stored: StoredCursor) -> None:
        for problem in stored.problems:
            logger.warning(
                "cursor %s of %s: %s; acknowledged entries will be redelivered",
                stored.name,
                self._shown_as,
                problem,
            )
        ledgers = self._ledgers
        if stored.record is None:
            state = CursorState(ledgers, ledgers.first_position)
        else:
            state = CursorState.recovered(ledgers, stored.record)
        start_position = state.mark_delete_position
        rows = CursorRowsState(
            self._services.config.cursor_ranges_max,
            generation=stored.generation,
            rows_kept=stored.change_rows,
        )
        writer = self._writer(
            stored.name, state, start_position, rows, has_progress=stored.has_progress
        )
        cursor = Cursor(stored.name, state, self._host, writer)
        self._durable[stored.name] = cursor
        self.metrics.show(cursor)

    def _writer(
        self,
        name: str,
        state: CursorState,
        written: Position,
        rows: CursorRowsState,
        *,
        has_progress: bool = False,
    ) -> CursorWriter:
        return CursorWriter(
            name,
            self._ledgers.head.managed_ledger_id,
            state,
            self._services,
            written=written,
            rows=rows,
            has_progress=has_progress,
            check=self._check_handle,
            on_durable=self._progressed,
        )

    def _progressed(self) -> None:
        """Call `on_progress` when the slowest durable position has reached the end of a ledger.

        Called for each group of acknowledgements, so it must be cheap.
        """
        slowest, ledgers = self.slowest, self._ledgers
        if slowest is None or not ledgers.ledger_ids:
            return
        first_id = ledgers.ledger_ids[0]
        if slowest >= Position(first_id, ledgers.entries_in(first_id) - 1):
            self._on_progress()

    def _check(self) -> None:
        self._check_handle()
        if self._services.supervisor.is_closed:
            raise AlreadyClosed("the store is closed")


class EntryTimes:
    """When the entries of one managed ledger were added, for a search by time in opaque entries.

    Only changes of the time are kept, and only the newest ones; an entry without, as after a
    restart, has the latest time of its ledger. A search may take too few entries for old, never too
    many.
    """

    __slots__ = ("_latest_of", "_step_count", "_steps")

    def __init__(self, latest_of: Callable[[int], int | None]) -> None:
        """Args: latest_of: returns the latest time of a closed ledger, None if it is unknown."""
        self._latest_of = latest_of
        self._steps: dict[int, tuple[array[int], array[int]]] = {}
        self._step_count = 0

    def record(self, position: Position, time_ms: int) -> None:
        """Note the time of an added entry, after all noted before."""
        ledger_id, entry_id = position
        steps = self._steps.get(ledger_id)
        if steps is None:
            steps = self._steps[ledger_id] = (array("q"), array("q"))
        ids, times = steps
        if (not ids or entry_id > ids[-1]) and (not times or times[-1] != time_ms):
            ids.append(entry_id)
            times.append(time_ms)
            self._step_count += 1
        while self._step_count > STEPS_MAX and len(self._steps) > 1:
            self.forget(next(iter(self._steps)))

    def forget(self, ledger_id: int) -> None:
        """Forget a removed ledger."""
        if steps := self._steps.pop(ledger_id, None):
            self._step_count -= len(steps[0])

    def time_of(self, position: Position) -> int:
        """Return the time of an entry, or the latest that it can have."""
        ledger_id, entry_id = position
        if steps := self._steps.get(ledger_id):
            at = bisect_right(steps[0], entry_id)
            if at:
                return steps[1][at - 1]
        latest = self._latest_of(ledger_id)
        return UNKNOWN_MS if latest is None else latest


def _forget(non_durable: dict[str, Cursor], metrics: CursorMetrics, cursor: Cursor) -> None:
    """Unregister a closed cursor; the registry itself may not exist any longer."""
    if not cursor.is_durable:
        non_durable.pop(cursor.name, None)
    metrics.hide(cursor)


def _no_listener() -> None:
    """Do nothing."""


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"a cursor needs a name, got {name!r}")
