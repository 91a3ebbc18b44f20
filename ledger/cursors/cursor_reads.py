"""Cursor reads: sequential, waiting and repeated reads of one cursor. A shell.

Rule: a read carries the revision that it began with; if that is outdated when the storage answers,
the entries are dropped and no position has moved. One sequential read runs at a time, and one
waits.
Must not know: acknowledgements, consumers, what entries mean.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kledger.ledger.compacted_reader import CompactedReader
from kledger.ledger.cursors.compacted_source import CompactedSource, SourceRead
from kledger.ledger.cursors.cursor_revision_state import CursorStateRevisionController
from kledger.ledger.cursors.cursor_state import CursorState
from kledger.ledger.entry import Entry
from kledger.ledger.errors import (
    AlreadyClosed,
    ConcurrentWait,
    InvalidArgument,
    LedgerError,
    NoMoreEntries,
    NonRecoverable,
    ResetInProgress,
)
from kledger.ledger.ledger_reader import LedgerReader
from kledger.ledger.metadata.ledger_list_state import LedgerListState
from kledger.ledger.position import LATEST, Position
from kledger.runtime.signal import Signal


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """How much a read returns at most.

    Attributes:
        count: entries.
        bytes_max: of their data, but at least one entry; None is no limit.
        max_position: none after this.
    """

    count: int
    bytes_max: int | None
    max_position: Position

    def __post_init__(self) -> None:
        count: object = self.count  # callers may be untyped
        if not isinstance(count, int) or count <= 0:
            raise InvalidArgument(f"count: expected a positive number, got {count!r}")
        if self.bytes_max is not None and self.bytes_max <= 0:
            raise InvalidArgument(f"max_bytes: expected a positive number, got {self.bytes_max!r}")
        max_position: object = self.max_position
        if not isinstance(max_position, Position):
            raise InvalidArgument(f"max_position: expected a Position, got {max_position!r}")


class CursorReads:
    """Sequential, waiting and repeated reads of one cursor.

    A waiting read notes the signal's version before it reads the state, so that it misses no change
    in between.
    """

    def __init__(
        self,
        name: str,
        state: CursorState,
        revision: CursorStateRevisionController[CursorState],
        *,
        ledgers: LedgerListState,
        reader: LedgerReader,
        compacted_reader: CompactedReader,
        check: Callable[[], None],
        listen: Callable[[Callable[[], None]], Callable[[], None]],
    ) -> None:
        """Make one.

        Args:
            name: of the cursor.
            state: of the cursor.
            revision: of the cursor.
            ledgers: the confirmed entries.
            reader: reads entries.
            compacted_reader: reads those that a compaction has kept.
            check: raises when the managed ledger is unusable.
            listen: adds a listener for new entries; returns a function that removes it.
        """
        self.is_closed = False
        self.compacted_id: int | None = None
        """The compacted ledger that the last read was from; None: from the log."""
        self._name = name
        self._state = state
        self._revision = revision
        self._ledgers = ledgers
        self._reader = reader
        self._source = CompactedSource(ledgers, reader, compacted_reader)
        self._check = check
        self._listen = listen
        self._read_lock = asyncio.Lock()
        self._signal = Signal()
        self._waiter: _WaitingRead | None = None
        self._listening_count = 0
        self._stop_listening = _no_listener

    def wake(self) -> None:
        """Make a waiting read try again."""
        self._signal.notify()

    def check_open(self) -> None:
        """Raise when the cursor is closed or its managed ledger unusable."""
        self._check()
        if self.is_closed:
            raise AlreadyClosed(f"cursor {self._name} is closed")

    def end(self) -> None:
        """Refuse everything from now on; a waiting read raises."""
        self.is_closed = True
        self.wake()

    async def read(self, limits: ReadLimits) -> list[Entry]:
        """Read from the read position on; see `Cursor.read`."""
        self._check_admitted()
        return await self._read(limits)

    async def read_or_wait(
        self, limits: ReadLimits, on_waiting: Callable[[], None] | None
    ) -> list[Entry]:
        """Read, or wait until there is an entry; see `Cursor.read_or_wait`."""
        self._check_admitted()
        self._begin_listening()
        try:
            while True:
                version = self._signal.version
                if self._may_find_something(limits):
                    entries = await self._read(limits)
                    if entries:
                        return entries
                self.check_open()
                if on_waiting is not None and not self._revision.is_running:
                    on_waiting()
                if self._ledgers.is_terminated and not self._state.has_unread:
                    self._check_current()
                if await self._is_cancelled_waiting(version):
                    return []
        finally:
            self._end_listening()

    def cancel_pending_read(self) -> bool:
        """Make the waiting read return no entries; False if none waits."""
        if self._waiter is None:
            return False
        self._waiter.is_cancelled = True
        self._waiter = None
        self.wake()
        return True

    async def replay(self, positions: Iterable[Position]) -> tuple[list[Entry], set[Position]]:
        """Read exactly these entries again; see `Cursor.replay`."""
        self._check_admitted()
        number, state = self._revision.number, self._state
        wanted = sorted(set(positions))
        unacknowledged = [each for each in wanted if not state.is_acknowledged(each)]
        for position in unacknowledged:
            state.check_exists(position)
        entries: list[Entry] = []
        for first, last in _unbroken_ranges(unacknowledged):
            entries += await self._read_range(first, last, number)
            if self._revision.is_outdated(number):
                return [], set()
        self.check_open()
        # Some may have been acknowledged, or trimmed, while they were read.
        kept = [entry for entry in entries if not state.is_acknowledged(entry.position)]
        return kept, {each for each in wanted if state.is_acknowledged(each)}

    def _begin_listening(self) -> None:
        if not self._listening_count:
            self._stop_listening = self._listen(self.wake)
        self._listening_count += 1

    def _end_listening(self) -> None:
        self._listening_count -= 1
        if not self._listening_count:
            self._stop_listening()
            self._stop_listening = _no_listener

    def _check_admitted(self) -> None:
        self.check_open()
        if self._revision.is_running:
            raise ResetInProgress("the positions of the cursor are being revised")

    def _check_current(self) -> None:
        if not self._revision.is_running:
            raise NoMoreEntries(f"terminated at {self._ledgers.lac}, and everything was read")

    def _may_find_something(self, limits: ReadLimits) -> bool:
        state = self._state
        return (
            not self._revision.is_running
            and state.has_unread
            and limits.max_position >= state.read_position
        )

    async def _is_cancelled_waiting(self, version: int) -> bool:
        if self._waiter is not None:
            raise ConcurrentWait("another read waits on this cursor")
        self._waiter = waiter = _WaitingRead()
        try:
            await self._signal.wait_beyond(version)
        finally:
            if self._waiter is waiter:
                self._waiter = None
        return waiter.is_cancelled

    async def _read(self, limits: ReadLimits) -> list[Entry]:
        """Read, and move the read position unless a revision ended meanwhile."""
        number, state = self._revision.number, self._state
        async with self._read_lock:
            if self._revision.is_outdated(number):
                return []
            while True:
                since = state.mark_delete_position
                if state.reads_compacted:
                    entries, last = await self._collect_compacted(limits, number)
                else:
                    self.compacted_id = None
                    entries, last = await self._collect(limits, number)
                if self._revision.is_outdated(number):
                    return []
                self.check_open()
                if last is not None:
                    state.read_upto(last)
                unacknowledged = state.without_acknowledged(entries, since)
                if (
                    unacknowledged or not entries
                ):  # all of them may have been acknowledged meanwhile
                    return unacknowledged

    async def _collect(
        self, limits: ReadLimits, number: int
    ) -> tuple[list[Entry], Position | None]:
        """Return unacknowledged entries, and the last position that was read."""
        state, end = self._state, limits.max_position
        entries: list[Entry] = []
        bytes_left = limits.bytes_max
        last = None
        position = state.next_unacknowledged(state.read_position)
        while position is not None and position <= end and len(entries) < limits.count:
            upto = min(state.read_end_from(position, limits.count - len(entries)), end)
            count = upto.entry_id - position.entry_id + 1
            try:
                found = await self._reader.read_entries(position, count, bytes_left, upto)
            except LedgerError:
                # The entries so far are returned, and the next read raises the error. A read that
                # is outdated returns nothing, so its error is dropped too.
                if entries or self._revision.is_outdated(number):
                    break
                raise
            if self._revision.is_outdated(number):
                break
            if not found:  # it was removed meanwhile; later entries may exist
                before, position = position, state.next_unacknowledged(position)
                if position == before:
                    break
                continue
            for entry in found:
                if not state.is_in_hole(entry.position):
                    if bytes_left is not None:
                        if entries and entry.size > bytes_left:
                            return entries, last
                        bytes_left = max(bytes_left - entry.size, 0)
                    entries.append(entry)
                last = entry.position
            position = state.next_unacknowledged(found[-1].position.successor)
        if position is None and end >= state.last_confirmed:
            last = state.last_confirmed
        return entries, last

    async def _collect_compacted(
        self, limits: ReadLimits, number: int
    ) -> tuple[list[Entry], Position | None]:
        """Return as `_collect`; entries that are all acknowledged are passed here already."""
        state = self._state
        while state.has_unread and state.read_position <= limits.max_position:
            start = state.read_position
            try:
                read = await self._source.read(
                    start, limits.count, limits.bytes_max, limits.max_position
                )
            except LedgerError:
                if self._revision.is_outdated(number):
                    break
                raise
            if self._revision.is_outdated(number) or read.last is None:
                break
            self.check_open()
            entries = [each for each in read.entries if not state.is_in_hole(each.position)]
            state.note_read(start, (each.position for each in read.entries), read.last)
            self.compacted_id = read.compacted_id
            if entries:
                return entries, read.last
            state.read_upto(read.last)
        return [], None

    async def read_from(self, start: Position, count: int, bytes_max: int) -> SourceRead:
        """Read as `read` does, from a position on, and move nothing. Raises as `read`."""
        self.check_open()
        if self._state.reads_compacted:
            return await self._source.read(start, count, bytes_max, LATEST)
        entries = await self._reader.read_entries(start, count, bytes_max, LATEST)
        return SourceRead(entries, entries[-1].position if entries else None, None)

    async def _read_range(self, first: Position, last: Position, number: int) -> list[Entry]:
        """Read consecutive entries; those that are trimmed meanwhile are left out."""
        entries: list[Entry] = []
        position = first
        while position <= last:
            count = last.entry_id - position.entry_id + 1
            try:
                found = await self._reader.read_entries(position, count, None, last)
            except LedgerError:
                if self._revision.is_outdated(number):
                    return []
                raise
            if self._revision.is_outdated(number):
                return []
            if not found:
                if not self._state.is_acknowledged(last):
                    raise NonRecoverable(f"the storage has nothing at {position}")
                break
            entries += found
            position = found[-1].position.successor
        return entries


@dataclass(slots=True, eq=False)
class _WaitingRead:
    is_cancelled: bool = False


def _unbroken_ranges(positions: list[Position]) -> list[tuple[Position, Position]]:
    """Return first and last of every group of consecutive positions."""
    rows: list[tuple[Position, Position]] = []
    for position in positions:
        if rows and rows[-1][1].successor == position:
            rows[-1] = (rows[-1][0], position)
        else:
            rows.append((position, position))
    return rows


def _no_listener() -> None:
    """Do nothing."""
