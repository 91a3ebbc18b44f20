"""Cursor writer: makes what one cursor acknowledged durable. A shell.

Rule: one write runs at a time, and changes made meanwhile are in the next one, so a call waits for
a commit group that it shares with others, never for a sync of its own. Every waiting call ends
exactly once, also when a reset replaces the state that it waits for.
Must not know: the meaning of acknowledgements, consumers.

| row      | written                                                      | limits         |
|----------|--------------------------------------------------------------|----------------|
| change   | with every acknowledgement, as often as the pace allows      | 256 rows       |
| progress | instead of a change when `cursor_rows_state` requires it     | 10,000 of each |
| snapshot | when a cursor is made; at its close, replacing the others    | 1,000 of each  |
"""

import asyncio
import copy
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeAlias

from kledger.ledger.commits.committer import RowsDone, ignore_outcome, submitted
from kledger.ledger.cursors.cursor_records import encode_cursor
from kledger.ledger.cursors.cursor_rows_state import CursorRowsState
from kledger.ledger.cursors.cursor_state import CursorState
from kledger.ledger.cursors.persist_pace_state import PersistPaceState
from kledger.ledger.engine.base import Row
from kledger.ledger.errors import AlreadyClosed, LedgerError, StorageFailed
from kledger.ledger.metadata import keys
from kledger.ledger.position import Position
from kledger.ledger.store_services import StoreServices
from kledger.runtime.containment import NamedUnit
from kledger.runtime.logs import RateLimitedLog
from kledger.runtime.timers import TimerHandle

logger = logging.getLogger(__name__)

SNAPSHOT_RANGES_MAX = 1_000
"""A cursor with more ranges, or more partial batches, keeps its progress row when it is closed."""
WARNINGS_PER_SECOND = 1
SubmitRow: TypeAlias = Callable[[Row, RowsDone], None]


class _Replacement(NamedTuple):
    """The state that replaces the cursor's state, with version and position of its row."""

    state: CursorState
    version: int
    position: Position


class CursorWriter:
    """The writer of one durable cursor."""

    def __init__(
        self,
        name: str,
        managed_ledger_id: int,
        state: CursorState,
        services: StoreServices,
        *,
        written: Position,
        rows: CursorRowsState,
        has_progress: bool,
        check: Callable[[], None],
        on_durable: Callable[[], None],
    ) -> None:
        """Make the writer of a cursor.

        Args:
            name: of the cursor.
            managed_ledger_id: part of its keys.
            state: what is written.
            services: of the store.
            written: the mark-delete position in the storage.
            rows: which rows are in the storage.
            has_progress: whether there is a progress row.
            check: raises when another process owns the managed ledger, and its cursors.
            on_durable: called when `durable_position` may have moved.
        """
        self._durable_position = written
        self._replacement: _Replacement | None = None
        self._name = name
        self._unit = NamedUnit("cursor", name)
        self._managed_ledger_id = managed_ledger_id
        self._rows = rows
        self._snapshot_key = keys.cursor_key(managed_ledger_id, name)
        self._progress_key = keys.cursor_progress_key(managed_ledger_id, name)
        self._state = state
        self._services = services
        self._on_durable = on_durable
        self._has_progress = has_progress
        self._check = check
        self._pace = PersistPaceState(services.config.cursor_persist_per_second)
        self._written = state.version
        self._waiting: list[asyncio.Future[None]] = []
        self._is_due = False
        self._is_writing = False
        self._is_wanted = False
        self._has_promised = False
        self._is_closed = False
        self._is_deleted = False
        self._timer: TimerHandle | None = None
        self._warnings = RateLimitedLog(logger, WARNINGS_PER_SECOND, services.clock)

    @property
    def durable_position(self) -> Position:
        """The mark-delete position below which neither a crash nor a running reset goes."""
        if self._replacement is None:
            return self._durable_position
        return min(self._replacement.position, self._durable_position)

    @property
    def has_unwritten(self) -> bool:
        """Whether something of the cursor is not durable, or a revision may still fail."""
        return self._is_dirty or self._is_replacing

    def check_open(self) -> None:
        """Raise AlreadyClosed when the cursor cannot be written."""
        if self._is_closed:
            raise AlreadyClosed(f"cursor {self._name} is closed, or about to be deleted")

    async def settle(self) -> None:
        """Return when all changes so far are durable; earlier if the pace postpones the write.

        Raises:
            Fenced, StorageFailed: they are not; the next write includes them.
        """
        if not self._is_dirty:
            return
        if self._pace.try_take(self._services.clock.monotonic_ms()):
            await self._write()
        else:
            self._has_promised = True
            self._schedule_write()

    def mark_changed(self) -> None:
        """Write the changes soon, without a caller that waits."""
        if self._is_dirty:
            self._write_this_tick()

    async def replace(self, target: CursorState, submit: SubmitRow | None = None) -> None:
        """Make another state durable instead of this one; all other writes wait for `release`.

        Args:
            target: the state.
            submit: submits its row with something else; without it the row is submitted alone.

        Raises:
            Fenced, AlreadyClosed, StorageFailed: nothing was written.
        """
        self._check()
        self.check_open()
        self._replacement = _Replacement(target, target.version, target.mark_delete_position)
        row, _ = self._whole_row(target)
        await submitted(partial(submit or self._submit_row, row))
        self._has_progress = True

    def release(self, *, is_replaced: bool) -> None:
        """Resume writing after `replace`.

        Args:
            is_replaced: the row is durable, and the cursor's state equals the replacement.
        """
        replacement, self._replacement = self._replacement, None
        if replacement is None:
            return
        self._state.changes.require_whole_row()
        if is_replaced:
            self._durable_position = replacement.position
            # Entries that were trimmed meanwhile are acknowledged in memory, not in the row.
            is_behind = replacement.state.version != replacement.version
            if not is_behind:
                self._state.changes.restart()
            # Calls that wait for an earlier acknowledgement end: the reset has replaced it.
            self._complete(self._state.version - is_behind, self._take_waiting(), None)
            self.mark_changed()
        elif self._is_deleted:
            error = AlreadyClosed(f"cursor {self._name} was deleted before this was durable")
            self._complete(0, self._take_waiting(), error)
        elif self._is_closed:
            self._write_late()
        elif self._waiting:
            self._write_this_tick()

    def close(self, done: RowsDone) -> None:
        """Write the last rows of a cursor and call `done` when they are durable or have failed.

        May be repeated, and then writes what the last close could not. While a revision or a
        deletion runs nothing is written, unless that fails.
        """
        is_complete = self._is_closed and not self._is_dirty
        self._end()
        if is_complete or self._is_replacing or self._is_deleted:
            self._submit([], done)
        else:
            self._write_last(done)

    async def close_again(self) -> None:
        """Return when changes that an earlier close could not write are durable.

        If the cursor was opened again meanwhile, it stays open; if another process owns the managed
        ledger, nothing is written.

        Raises:
            Fenced, StorageFailed: it is not.
        """
        if not self.has_unwritten:
            return
        try:
            self._check()
        except LedgerError:
            return
        if self._is_closed:
            await submitted(self.close)
        else:
            await self._write()

    def delete(self) -> list[Row]:
        """Return the rows that remove the cursor; nothing is written after them."""
        self._is_deleted = True
        self._end()
        return [(self._snapshot_key, None), *self._removed_progress()]

    def deleted(self) -> None:
        """End all waiting calls: the rows of `delete` are durable."""
        if not self._is_replacing:
            self._complete(self._state.version, self._take_waiting(), None)

    def not_deleted(self, *, is_closed: bool) -> None:
        """Resume writing, open or closed as before: the rows of `delete` were not written."""
        self._is_deleted = False
        if not is_closed:
            self.reopen()
        elif not self._is_replacing:
            self._write_late()

    def reopen(self) -> None:
        """Resume writing: the closed cursor is opened again."""
        self._is_closed = False
        if self._waiting or self._is_dirty:
            self._write_this_tick()

    def acknowledge_removed(self, last: Position) -> None:
        """Raise `durable_position` without a write: a restart finds the trimmed ledgers missing."""
        self._durable_position = max(self._durable_position, last)

    def unlink(self) -> None:
        """Stop calling `on_durable`: the handle of the managed ledger is closed."""
        self._on_durable = _no_listener

    # Inside

    @property
    def _is_dirty(self) -> bool:
        return self._written < self._state.version

    @property
    def _limit(self) -> int:
        return self._services.config.cursor_ranges_max

    @property
    def _is_replacing(self) -> bool:
        return self._replacement is not None

    @property
    def _is_idle(self) -> bool:
        return self._is_replacing or self._is_closed

    def _end(self) -> None:
        self._is_closed = True
        self._stop_timer()

    def _write_late(self) -> None:
        """Write the last rows of a closed cursor after the revision or deletion has failed."""
        try:
            self._check()
        except LedgerError as error:
            self._complete(0, self._take_waiting(), error)
        else:
            self._write_last(ignore_outcome)

    def _write_last(self, done: RowsDone) -> None:
        version, waiting = self._state.version, self._take_waiting()

        def finished(error: LedgerError | None) -> None:
            self._complete(version, waiting, error)
            done(error)

        try:
            rows = self._last_rows()
        except Exception as fault:  # noqa: BLE001 - waiting calls get it
            finished(self._not_encoded(fault))
        else:
            self._submit(rows, finished)

    def _last_rows(self) -> list[Row]:
        if not (self._is_dirty or self._is_writing or self._has_progress):
            return []
        limit = min(SNAPSHOT_RANGES_MAX, self._limit)
        data, is_cut = self._encoded(self._state, limit, self._rows.generation)
        if not is_cut:
            self._rows.begin_anew()
            return [(self._snapshot_key, data), *self._removed_progress()]
        return [self._whole_row(self._state)[0]] if self._is_dirty else []

    def _removed_progress(self) -> list[Row]:
        changes = (self._change_key(number) for number in range(self._rows.rows_kept))
        return [(self._progress_key, None), *((key, None) for key in changes)]

    def _submit_row(self, row: Row, done: RowsDone) -> None:
        self._services.committer.submit_rows([row], done)

    def _submit(self, rows: list[Row], done: RowsDone) -> None:
        try:
            self._services.committer.submit_rows(rows, done)
        except LedgerError as error:
            done(error)

    async def _write(self) -> None:
        outcome = asyncio.get_running_loop().create_future()
        self._waiting.append(outcome)
        self._write_this_tick()
        await outcome

    def _write_this_tick(self) -> None:
        """Write at the end of this tick, with everything that is acknowledged until then."""
        if self._is_writing:
            self._is_wanted = True
        elif not (self._is_due or self._is_idle):
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._write_now)

    def _write_now(self) -> None:
        self._is_due = False
        if self._is_idle or self._is_writing:
            return
        self._stop_timer()
        version, mark_delete_position, waiting = (
            self._state.version,
            self._state.mark_delete_position,
            self._take_waiting(),
        )

        def finished(error: LedgerError | None) -> None:
            self._is_writing = False
            if error is not None:
                self._state.changes.require_whole_row()
            else:
                self._has_progress = True
                self._durable_position = mark_delete_position
                self._has_promised = self._has_promised and version < self._state.version
            self._complete(version, waiting, error)
            is_wanted, self._is_wanted = self._is_wanted, False
            if self._waiting or (is_wanted and self._is_dirty):
                self._write_this_tick()
            elif isinstance(error, StorageFailed) and (self._has_promised or not waiting):
                self._schedule_write()  # some callers got no error, so try again

        self._is_writing = True
        try:
            row, is_cut = self._next_row()
            if is_cut:
                self._warn_of_cut()
            self._check()
            self._services.committer.submit_rows([row], finished)
        except LedgerError as error:
            finished(error)
        except Exception as fault:  # noqa: BLE001 - waiting calls get it
            finished(self._not_encoded(fault))

    def _warn_of_cut(self) -> None:
        self._warnings.warning(
            "cursor %s has more than %d ranges or partial batches: the highest are not stored, "
            "a restart would redeliver them",
            self._name,
            self._limit,
        )

    def _not_encoded(self, fault: Exception) -> StorageFailed:
        """Contain a fault in encoding a row; the next row is a whole one."""
        self._services.supervisor.containment.failed(self._unit, fault)
        return StorageFailed(f"cursor {self._name} was not written after a fault")

    def _complete(
        self, version: int, waiting: list[asyncio.Future[None]], error: LedgerError | None
    ) -> None:
        if error is None:
            self._written = max(self._written, version)
            if not self._is_dirty:
                self._durable_position = self._state.mark_delete_position
        for outcome in waiting:
            if outcome.done():
                continue
            if error is None:
                outcome.set_result(None)
            else:
                outcome.set_exception(copy.copy(error))  # one traceback each
        if error is None:
            self._services.supervisor.containment.run(self._unit, self._on_durable)

    def _take_waiting(self) -> list[asyncio.Future[None]]:
        waiting, self._waiting = self._waiting, []
        return waiting

    def _schedule_write(self) -> None:
        if self._timer is None and not self._is_idle:
            now_ms = self._services.clock.monotonic_ms()
            # RuntimeError: the store closes, and has closed and written its cursors before.
            with suppress(RuntimeError):
                self._timer = self._services.timers.call_at(
                    self._pace.due_ms(now_ms), self._write_at_pace
                )

    def _write_at_pace(self) -> None:
        self._timer = None
        if self._is_dirty and not self._is_idle:
            self._pace.try_take(self._services.clock.monotonic_ms())
            self._write_this_tick()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _next_row(self) -> tuple[Row, bool]:
        """Return the row that makes all changes so far durable, and whether it leaves some out."""
        state, rows = self._state, self._rows
        mark_delete_position, changes = state.mark_delete_position, state.changes
        if changes.is_whole or rows.is_whole_due(mark_delete_position, state.part_count, changes):
            changes.restart()
            return self._whole_row(state)
        data = encode_cursor(
            changes.record(
                mark_delete_position, state.stored_properties, generation=rows.generation
            )
        )
        key = self._change_key(rows.write_change(len(data), len(changes)))
        changes.restart()
        return (key, data), False

    def _whole_row(self, state: CursorState) -> tuple[Row, bool]:
        rows = self._rows
        data, is_cut = self._encoded(state, rows.parts_max, rows.begin_whole())
        rows.wrote_whole(len(data), cut_at=state.mark_delete_position if is_cut else None)
        return (self._progress_key, data), is_cut

    def _encoded(self, state: CursorState, limit: int, generation: int) -> tuple[bytes, bool]:
        record, is_cut = state.record(ranges_max=limit, batches_max=limit, generation=generation)
        return encode_cursor(record), is_cut

    def _change_key(self, number: int) -> bytes:
        return keys.cursor_change_key(self._managed_ledger_id, self._name, number)


def _no_listener() -> None:
    """Do nothing."""
