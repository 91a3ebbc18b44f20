"""Cursor reads: sequential, waiting and repeated reads of one cursor. A shell.

Rule: a read carries the revision that it began with; when that is outdated by the time the storage
has answered, what was read is dropped and nothing has moved. One sequential read at a time, one
that waits; who waits has noted the version of the signal before it looked, so that nothing that
happens between looking and waiting is lost.
Must not know: how acknowledgements become durable, what entries mean.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

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
from kledger.ledger.position import Position
from kledger.runtime.signal import Signal


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """How much a read returns at most.

    Attributes:
        count: entries.
        bytes_max: of their data, but at least one entry; None is no limit.
        max_position: none behind this.
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


@dataclass(slots=True, eq=False)
class _WaitingRead:
    is_cancelled: bool = False


class CursorReads:
    """The reading half of a cursor."""

    def __init__(
        self,
        name: str,
        state: CursorState,
        revision: CursorStateRevisionController[CursorState],
        *,
        ledgers: LedgerListState,
        reader: LedgerReader,
        check: Callable[[], None],
        listen: Callable[[Callable[[], None]], Callable[[], None]],
    ) -> None:
        """Make one.

        Args:
            name: of the cursor.
            state: where the cursor stands.
            revision: its door.
            ledgers: tells the end.
            reader: reads entries.
            check: raises when the managed ledger cannot be used any more.
            listen: calls back when there may be new entries, until what it returns is called.
        """
        self.is_closed = False
        self._name = name
        self._state = state
        self._revision = revision
        self._ledgers = ledgers
        self._reader = reader
        self._check = check
        self._listen = listen
        self._read_lock = asyncio.Lock()
        self._signal = Signal()
        self._waiter: _WaitingRead | None = None
        self._listening_count = 0
        self._stop_listening = _no_listener

    def wake(self) -> None:
        """Something changed: whoever waits looks again."""
        self._signal.notify()

    def check_open(self) -> None:
        """Raise when the cursor cannot be used any more."""
        self._check()
        if self.is_closed:
            raise AlreadyClosed(f"cursor {self._name} is closed")

    def end(self) -> None:
        """Refuse everything from now on; who waits hears of it."""
        self.is_closed = True
        self.wake()

    async def read(self, limits: ReadLimits) -> list[Entry]:
        """Read on from the read position; see `Cursor.read`."""
        self._check_admitted()
        return await self._read(limits)

    async def read_or_wait(self, limits: ReadLimits) -> list[Entry]:
        """Read on, or wait until there is something; see `Cursor.read_or_wait`."""
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
                if self._ledgers.is_terminated and not self._state.has_unread:
                    self._check_current()
                if await self._is_cancelled_waiting(version):
                    return []
        finally:
            self._end_listening()

    def cancel_pending_read(self) -> bool:
        """Let the read that waits return nothing; False if none waits."""
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
        # Acknowledged, or trimmed, while it was read: then it is no longer owed either.
        kept = [entry for entry in entries if not state.is_acknowledged(entry.position)]
        return kept, {each for each in wanted if state.is_acknowledged(each)}

    # Inside

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
        """Read on; move the read position unless a revision came in between."""
        number, state = self._revision.number, self._state
        async with self._read_lock:
            if self._revision.is_outdated(number):
                return []
            while True:
                since = state.mark_delete_position
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
        """Return entries that are owed, and the last position that was looked at."""
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
                # What was read is returned, the error comes to whoever wants the rest; and the
                # failure of a read that does not count does not count.
                if entries or self._revision.is_outdated(number):
                    break
                raise
            if self._revision.is_outdated(number):
                break
            if not found:  # it was removed meanwhile; what is behind it may not be
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

    async def _read_range(self, first: Position, last: Position, number: int) -> list[Entry]:
        """Read entries in a row; those that are trimmed meanwhile are left out."""
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


def _no_listener() -> None:
    """Nobody listens yet."""


def _unbroken_ranges(positions: list[Position]) -> list[tuple[Position, Position]]:
    """Return first and last of every row of neighbours."""
    rows: list[tuple[Position, Position]] = []
    for position in positions:
        if rows and rows[-1][1].successor == position:
            rows[-1] = (rows[-1][0], position)
        else:
            rows.append((position, position))
    return rows
