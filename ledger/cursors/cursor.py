"""Cursor: the position of one subscriber in a managed ledger, and its reads. A shell.

Rule: `CursorState` decides, `CursorRevisions` is the only way to set positions, `CursorReads` reads
and `CursorWriter` makes durable. An acknowledging call returns when that is as durable as an
append. A revision is durable before it is applied in memory.
Must not know: consumers, what entries mean. Theory: docs/ARCHITECTURE.md, "Cursors".
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kledger.ledger.commits.committer import RowsDone, submitted
from kledger.ledger.compacted_reader import CompactedReader
from kledger.ledger.cursors.compacted_source import SourceRead
from kledger.ledger.cursors.cursor_reads import CursorReads, ReadLimits
from kledger.ledger.cursors.cursor_revision_state import NOT_POSSIBLE, CursorStateRevisionController
from kledger.ledger.cursors.cursor_state import CursorState, EntryPart
from kledger.ledger.cursors.cursor_writer import CursorWriter, SubmitRow
from kledger.ledger.entry import Entry
from kledger.ledger.errors import (
    AlreadyClosed,
    ConcurrentFind,
    InvalidArgument,
    LedgerError,
    ResetInProgress,
)
from kledger.ledger.ledger_reader import LedgerReader
from kledger.ledger.metadata.ledger_list_state import LedgerListState
from kledger.ledger.position import EARLIEST, LATEST, Position
from kledger.ledger.store_services import StoreServices
from kledger.runtime.metrics import Counter

ACTIVE_BACKLOG_MAX = 1_000
"""A cursor with a larger backlog is not active; as in Pulsar."""
TimeOf: TypeAlias = Callable[[Entry], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorStats:
    """Numbers of one cursor; the last two under the names of PIP-269."""

    backlog: int
    hole_count: int
    revision_num: int
    is_under_revision: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorHost:
    """What a cursor needs of its managed ledger.

    Attributes:
        name: of the managed ledger.
        ledgers: its confirmed entries.
        reader: reads entries.
        compacted_reader: reads those that a compaction has kept.
        services: of the store.
        check: raises when the handle was fenced or closed.
        listen: adds a listener for every change; returns a function that removes it.
        time_of: returns the time at which an entry was added.
        forget: called when a cursor was closed.
    """

    name: str
    ledgers: LedgerListState
    reader: LedgerReader
    compacted_reader: CompactedReader
    services: StoreServices
    check: Callable[[], None]
    listen: Callable[[Callable[[], None]], Callable[[], None]]
    time_of: TimeOf
    forget: Callable[["Cursor"], None]


class CursorRevisions(CursorStateRevisionController[CursorState]):
    """The revisions of one cursor, also over several openings.

    A revision that runs while the cursor is closed and opened again ends in the new opening, and
    outdates what that has read meanwhile.

    Attributes:
        on_ended: called after every revision.
        target: the state that the running revision will set.
        count: how many revisions have ended, in all openings.
    """

    __slots__ = ("count", "on_ended", "target")

    def __init__(self, state: CursorState) -> None:
        super().__init__(state)
        self.on_ended: Callable[[], None] = _no_listener
        self.target: CursorState | None = None
        self.count = Counter()

    def acknowledge_before(self, last: Position, part: EntryPart) -> None:
        """Acknowledge all up to `last` and a part of an entry, also in the running revision."""
        for state in (self._state, self.target):
            if state is not None:
                state.acknowledge_removed(last)
                if part.indexes and part.position > state.mark_delete_position:
                    state.delete_batch_index(part.position, part.indexes, part.batch_size)

    def end(self, editor: Callable[[CursorState], object]) -> int:
        """End the revision as the controller does, then call `on_ended`."""
        before = self.number
        try:
            return super().end(editor)
        finally:
            self.count.value += self.number - before
            self.target = None
            self.on_ended()


class Cursor:
    """Made by `ManagedLedger.open_cursor` and `new_non_durable_cursor`; properties are plain."""

    def __init__(
        self,
        name: str,
        state: CursorState,
        host: CursorHost,
        writer: CursorWriter | None,
        revisions: CursorRevisions | None = None,
    ) -> None:
        """Args: writer: None for a non-durable cursor. revisions: of the last opening."""
        self.name = name
        self.state = state
        self.writer = writer
        self._host = host
        self._revision = revisions or CursorRevisions(state)
        self._revision.on_ended = self._revised
        self._reads = CursorReads(
            name,
            state,
            self._revision,
            ledgers=host.ledgers,
            reader=host.reader,
            compacted_reader=host.compacted_reader,
            check=host.check,
            listen=host.listen,
        )
        self._is_finding = False

    # Properties

    @property
    def mark_delete_position(self) -> Position:
        """Everything up to it is acknowledged."""
        return self.state.mark_delete_position

    @property
    def read_position(self) -> Position:
        """Where the next sequential read begins."""
        return self.state.read_position

    @property
    def individually_deleted(self) -> tuple[tuple[Position, Position], ...]:
        """What is acknowledged after the mark-delete position: (after, upto), open-closed."""
        return self.state.individually_deleted

    def batch_indexes(self, position: Position) -> frozenset[int] | None:
        """Return the unacknowledged records of a batch; None unless only some are acknowledged."""
        return self.state.batch_indexes(position)

    @property
    def backlog(self) -> int:
        """How many entries are not acknowledged; exact."""
        return self.state.backlog

    @property
    def properties(self) -> Mapping[str, int]:
        """The properties of the last mark-delete that had some."""
        return dict(self.state.properties)

    @property
    def is_closed(self) -> bool:
        """Whether it refuses everything."""
        return self._reads.is_closed

    @property
    def is_durable(self) -> bool:
        """Whether it survives a restart and holds back trimming."""
        return self.writer is not None

    @property
    def reads_compacted(self) -> bool:
        """Whether it reads what a compaction has kept, up to its horizon, instead of the log."""
        return self.state.reads_compacted

    @property
    def compacted_id(self) -> int | None:
        """The compacted ledger that the last `read` was from; None: it was from the log."""
        return self._reads.compacted_id

    @property
    def is_active(self) -> bool:
        """Whether it is open with a small backlog."""
        return not self.is_closed and self.backlog <= ACTIVE_BACKLOG_MAX

    @property
    def revision(self) -> CursorRevisions:
        """The way to set positions in memory; they become durable soon afterwards.

        A caller that dispatches entries compares the revision number from before the read with the
        one just before dispatching.
        """
        return self._revision

    @property
    def stats(self) -> CursorStats:
        """The numbers of the cursor."""
        return CursorStats(
            backlog=self.backlog,
            hole_count=self.state.hole_count,
            revision_num=self._revision.number,
            is_under_revision=self._revision.is_running,
        )

    # Acknowledging

    async def mark_delete(
        self,
        position: Position,
        *,
        properties: Mapping[str, int] | None = None,
        revision: int | None = None,
    ) -> None:
        """Acknowledge everything up to a position.

        Args:
            position: the new mark-delete position.
            properties: replace the old ones; None keeps them.
            revision: the number under which the entries were read; if it is outdated, nothing
                happens.

        Raises:
            InvalidPosition: it is beyond the last confirmed entry.
            AlreadyMarkDeleted: it is before the mark-delete position.
            ResetInProgress: a revision runs.
            Fenced, AlreadyClosed: the cursor is unusable.
            StorageFailed: it is acknowledged in memory, but not durable yet.
        """
        if self._admits(position, revision=revision):
            self.state.mark_delete(position, properties)
            await self.wait_durable()

    async def delete(
        self, positions: Position | Iterable[Position], *, revision: int | None = None
    ) -> None:
        """Acknowledge entries one by one, all or none; see `mark_delete` for what it raises."""
        each = [positions] if isinstance(positions, Position) else list(positions)
        if self._admits(*each, revision=revision):
            self.state.delete(each)
            await self.wait_durable()

    async def delete_batch_index(
        self,
        position: Position,
        indexes: Iterable[int],
        batch_size: int,
        *,
        revision: int | None = None,
    ) -> None:
        """Acknowledge a part of an entry; see `mark_delete` for what it raises."""
        if self._admits(position, revision=revision):
            self.state.delete_batch_index(position, indexes, batch_size)
            await self.wait_durable()

    def acknowledge_nowait(
        self,
        parts: Sequence[EntryPart],
        *,
        upto: Position | None = None,
        revision: int | None = None,
    ) -> bool:
        """Acknowledge entries and parts of entries at once, all or none, in memory.

        The caller must call `wait_durable` to make it durable.

        Args:
            parts: entries and parts of entries.
            upto: also everything up to this; ignored before the mark-delete position.
            revision: as for `mark_delete`.

        Returns:
            False if the revision is outdated.

        Raises:
            InvalidArgument: a record is not within its batch.
            InvalidPosition and others: as for `mark_delete`.
        """
        positions = [part.position for part in parts]
        if upto is not None:
            positions.append(upto)
        if not self._admits(*positions, revision=revision):
            return False
        self.state.acknowledge(parts, upto=upto)
        return True

    async def wait_durable(self) -> None:
        """Return when everything acknowledged so far is as durable as after `mark_delete`.

        Raises:
            Fenced, StorageFailed: it is not.
        """
        if self.writer is not None:
            await self.writer.settle()

    # Reading

    async def read(
        self, count: int, *, max_bytes: int | None = None, max_position: Position = LATEST
    ) -> list[Entry]:
        """Read unacknowledged entries from the read position on, and move it; never wait.

        Returns:
            Entries in order; none at the end, and none if a revision ended meanwhile.

        Raises:
            ResetInProgress: a revision runs.
            Fenced, AlreadyClosed: the cursor is unusable.
            InvalidArgument: a limit is not positive.
            NonRecoverable, Corrupt, StorageFailed, TooManyRequests: the first entry cannot be read.
        """
        limits = ReadLimits(count=count, bytes_max=max_bytes, max_position=max_position)
        return await self._reads.read(limits)

    async def read_or_wait(
        self,
        count: int,
        *,
        max_bytes: int | None = None,
        max_position: Position = LATEST,
        on_waiting: Callable[[], None] | None = None,
    ) -> list[Entry]:
        """Read, or wait until there is an entry to read; revisions do not end the wait.

        Args:
            count: of entries, at most.
            max_bytes: of their data, but at least one entry.
            max_position: none after this.
            on_waiting: called before each wait: there is nothing to read before `read_position`.

        Returns:
            At least one entry; none after `cancel_pending_read`.

        Raises:
            ConcurrentWait: another call waits.
            NoMoreEntries: the managed ledger is terminated, and everything was read.
            ResetInProgress and others: as for `read`.
        """
        limits = ReadLimits(count=count, bytes_max=max_bytes, max_position=max_position)
        return await self._reads.read_or_wait(limits, on_waiting)

    def cancel_pending_read(self) -> bool:
        """Make the waiting call return no entries; False if no call waits."""
        return self._reads.cancel_pending_read()

    async def replay(self, positions: Iterable[Position]) -> tuple[list[Entry], set[Position]]:
        """Read given entries again; the read position stays.

        Returns:
            The entries in order, and the positions that are acknowledged, which are not read; both
            empty if a revision ended meanwhile.

        Raises:
            InvalidPosition: there is no such entry.
            ResetInProgress and others: as for `read`; one failure fails all.
        """
        return await self._reads.replay(positions)

    async def read_from(self, start: Position, count: int, max_bytes: int) -> SourceRead:
        """Read entries from a position on, acknowledged ones too; the read position stays.

        Args:
            start: where to begin.
            count: of entries, at most.
            max_bytes: of their data, but at least one entry.

        Raises:
            LedgerError: as for `read`.
        """
        return await self._reads.read_from(start, count, max_bytes)

    # Setting positions

    def set_reads_compacted(self, *, is_wanted: bool) -> None:
        """Read what a compaction has kept, from the first unacknowledged entry on, or stop that.

        Durable with the next acknowledgement. What is acknowledged stays so; a cursor that stops
        has acknowledged what it had left in ledgers that were removed.

        Raises:
            ResetInProgress: a revision runs.
        """
        if is_wanted is not self.reads_compacted:
            self._start_revision()
            self._revision.end(lambda state: state.set_reads_compacted(is_wanted))

    async def rewind(self) -> None:
        """Move the read position back to the first unacknowledged entry. Raises ResetInProgress."""
        self._start_revision()
        self._revision.end(CursorState.rewind)

    async def seek(self, position: Position, *, force: bool = False) -> None:
        """Move the read position to a position, or to the next entry.

        It moves before the first unacknowledged entry only by force. Nothing is acknowledged, and
        nothing becomes durable. Raises ResetInProgress.
        """
        _check_position(position)
        self._start_revision()
        self._revision.end(lambda state: state.seek(position, force=force))

    async def skip(self, count: int) -> None:
        """Acknowledge the next so many unacknowledged entries.

        Raises:
            ResetInProgress: another revision runs.
            StorageFailed: nothing was changed.
        """
        await self.revise(lambda state: state.mark_delete(state.nth_unacknowledged(count)))

    async def clear_backlog(self) -> None:
        """Acknowledge everything up to the last confirmed entry. Raises as `skip`."""
        await self.revise(
            lambda state: state.mark_delete(max(state.last_confirmed, state.mark_delete_position))
        )

    async def reset(
        self,
        position: Position,
        *,
        force: bool = False,
        acknowledged: Collection[int] = (),
        batch_size: int = 0,
    ) -> None:
        """Make everything from a position on unacknowledged, and everything before it acknowledged.

        Args:
            position: the next entry to be read; EARLIEST is the first, LATEST the next to be added.
                If it does not exist, the next one that does.
            force: keep it even if it does not exist.
            acknowledged: records of that entry that stay acknowledged.
            batch_size: how many records it has.

        Raises:
            InvalidArgument: a record is not within the batch.
            ResetInProgress: another revision runs.
            StorageFailed: nothing was changed.
        """
        _check_position(position)
        await self.revise(
            lambda state: state.reset_to(
                position, force=force, acknowledged=acknowledged, batch_size=batch_size
            )
        )

    async def reset_to_time(self, timestamp_ms: int, *, time_of: TimeOf | None = None) -> None:
        """Reset to the entry after the newest one from before a time.

        Args:
            timestamp_ms: entries of this time and later become unacknowledged.
            time_of: returns an entry's time; the default is the time when it was added, or the
                latest possible one if that is unknown.

        Raises:
            ConcurrentFind: another search runs.
            ResetInProgress, StorageFailed: as for `reset`.
        """
        self._check_open()
        if self._is_finding:
            raise ConcurrentFind(f"a search by time runs for cursor {self.name}")
        self._is_finding = True
        try:
            search = self._host.reader.search
            found = await search.newest_before(timestamp_ms, time_of or self._host.time_of, None)
        finally:
            self._is_finding = False
        await self.reset(EARLIEST if found is None else self._host.ledgers.next_valid(found))

    async def revise(
        self,
        edit: Callable[[CursorState], object],
        *,
        alongside: Callable[[], None] | None = None,
        submit: SubmitRow | None = None,
    ) -> None:
        """Set positions and acknowledgements in one revision that is durable before it is applied.

        A caller that is cancelled does not stop it halfway.

        Args:
            edit: changes a copy of the state; its exception goes to the caller.
            alongside: called in the tick in which the change is applied; plain, must not raise.
            submit: makes the row of a durable cursor durable, together with something else; without
                it the row is submitted alone.

        Raises:
            ResetInProgress: another revision runs.
            StorageFailed: nothing has changed, but earlier reads are outdated.
        """
        target = self.state.copy()
        edit(target)
        self._start_revision()
        self._revision.target = target
        work = self._replace(target, alongside, submit)
        await self._host.services.supervisor.finish(work, f"revise cursor {self.name}")

    async def close(self) -> None:
        """Close; what is not durable yet is written first. Raises Fenced, StorageFailed.

        A durable cursor still exists, holds back trimming, and can be opened again. May be
        repeated; a close after a failed one writes what that could not.
        """
        if self.is_closed:
            if self.writer is not None:
                await self.writer.close_again()
            return
        try:
            self._check_open()
        except LedgerError:
            self.end()  # another process owns the cursor, or it is closed
            return
        await submitted(self.submit_close)

    # For the registry

    def submit_close(self, done: RowsDone) -> None:
        """Close, and call `done` when the last rows are durable or have failed."""
        self.end()
        if self.writer is not None:
            self.writer.close(done)
        else:
            self._host.services.committer.submit_rows([], done)

    def successor(self) -> "Cursor":
        """Return a new opening; a running revision ends in it."""
        return Cursor(self.name, self.state, self._host, self.writer, self._revision)

    def end(self) -> None:
        """Refuse everything from now on; a waiting read gets AlreadyClosed."""
        self._revision.on_ended = (
            _no_listener  # a running revision ends without it, or in a successor
        )
        self._reads.end()
        self._host.forget(self)

    # Inside

    def _check_open(self) -> None:
        self._reads.check_open()

    def _admits(self, *positions: Position, revision: int | None) -> bool:
        """Whether the revision of an acknowledgement is current; raise if the cursor refuses it."""
        for position in positions:
            _check_position(position)
        self._check_open()
        if revision is not None and self._revision.is_outdated(revision):
            return False
        if self._revision.is_running:
            raise ResetInProgress(f"the positions of cursor {self.name} are being revised")
        return True

    async def _replace(
        self,
        target: CursorState,
        alongside: Callable[[], None] | None,
        submit: SubmitRow | None,
    ) -> None:
        writer = self.writer
        try:
            if writer is not None:
                await writer.replace(target, submit)
        except BaseException:
            if writer is not None:
                writer.release(is_replaced=False)
            self._revision.end(lambda state: None)
            raise
        if alongside is not None:
            alongside()
        self._revision.end(lambda state: state.replace_with(target))
        if writer is not None:
            writer.release(is_replaced=True)

    def _start_revision(self) -> None:
        self._check_open()
        if self._host.services.supervisor.is_closed:
            raise AlreadyClosed("the store is closed")
        if self.writer is not None:
            self.writer.check_open()
        if self._revision.start() == NOT_POSSIBLE:
            raise ResetInProgress(f"reset already in progress for cursor {self.name}")

    def _revised(self) -> None:
        """Wake a waiting read and write a new mark-delete position: positions were set."""
        self._reads.wake()
        if self.writer is not None:
            self.writer.mark_changed()


def _check_position(position: object) -> None:
    if not isinstance(position, Position):
        raise InvalidArgument(f"position: expected a Position, got {position!r}")


def _no_listener() -> None:
    """Do nothing."""
