"""Ledger reader: cursorless reads of a managed ledger, from memory or from a copy of its ledgers.

Rule: a read never waits for new entries, opens no cursor, pins nothing, and ends at the last
confirmed entry. A failure after the first entry ends the read early; the next read then begins with
the failing entry and raises. Cold reads do not fill the entry cache.
Must not know: appends, cursors. Theory: PIP-480.
"""

from collections.abc import AsyncIterator, Callable, Sequence

from kledger.ledger.engine.base import Buffer
from kledger.ledger.entry import Entry
from kledger.ledger.entry_sources import EntrySources, WantedEntries
from kledger.ledger.errors import (
    Fenced,
    InvalidArgument,
    InvalidPosition,
    LedgerError,
    NonRecoverable,
)
from kledger.ledger.metadata.ledger_list_state import LedgerListState
from kledger.ledger.offload.read_source_plan import ReadSource
from kledger.ledger.position import LATEST, Position
from kledger.ledger.reads.entry_search import EntrySearch
from kledger.ledger.store_services import StoreServices

STEP_ENTRIES_MAX = 512
"""Entries copied from memory at once, so that a byte limit discards few of them."""
STEP_BYTES_MAX = 4 << 20
"""Bytes that one call of the storage may return."""
STEPS_PER_TICK = 64
"""Steps after which the read yields to the event loop."""

_new_tuple = tuple.__new__


class LedgerReader:
    """The read side of one handle."""

    def __init__(
        self,
        state: LedgerListState,
        services: StoreServices,
        check_readable: Callable[[], None],
        sources: EntrySources,
    ) -> None:
        """Make the read side of a handle.

        Args:
            state: the ledgers and what of them is confirmed.
            services: of the store.
            check_readable: raises if the handle refuses reads.
            sources: of the entries that are not in memory.
        """
        self._state = state
        self._services = services
        self._sources = sources
        self._counts = sources.counts
        self._cache = services.cache
        self._check_readable = check_readable

    @property
    def search(self) -> EntrySearch:
        """A new search; not kept, as it refers to this reader and would be a reference cycle."""
        return EntrySearch(self._state, self.read_entry, self._check_readable)

    def read_cached(
        self, start: Position, count: int, bytes_max: int | None, max_position: Position
    ) -> list[Entry] | None:
        """Read from memory alone; None if an entry must be read from the storage.

        Two cases: usually the read is in the newest ledger and one slice answers it; otherwise it
        goes step by step through the ledgers.
        """
        self._check_readable()
        bytes_left = _check_arguments(start, count, bytes_max, max_position)
        ledger_id, first = start
        lac = self._state.lac
        if ledger_id == lac.ledger_id and 0 <= first <= lac.entry_id and max_position >= lac:
            wanted = min(count, lac.entry_id + 1 - first)
            if wanted <= STEP_ENTRIES_MAX:
                cached_ledger = self._cache.find_ledger(ledger_id)
                found = (
                    cached_ledger.slice(first, wanted, bytes_left)
                    if cached_ledger is not None
                    else None
                )
                if found is None:
                    return None
                self._counts.cache += len(found)
                return _entries(ledger_id, first, found)
        position = self._state.first_readable(start)
        if position is None or position > max_position:
            return []
        entries: list[Entry] = []
        while True:
            buffers = self._cached_step(position, count - len(entries), bytes_left, max_position)
            if buffers is None:
                return None
            bytes_left = _take(entries, position, buffers, bytes_left)
            next_position = None
            if bytes_left != 0 and len(entries) < count:
                next_position = self._next_position(position, len(buffers), max_position)
            if next_position is None:
                self._counts.cache += len(entries)
                return entries
            position = next_position

    def read_resident(self, start: Position, count: int, bytes_max: int) -> list[Entry]:
        """Read what needs neither a disk nor a tier, without a task.

        The event loop copies what the page cache has, within the limit for each tick.

        Args:
            start: position of the first entry; if it does not exist, the next one that does.
            count: how many entries at most.
            bytes_max: total size at most; the first entry is returned whatever its size.

        Returns:
            What `read_entries` would return, or the beginning of it; nothing if only that can read
            the first entry, or raises for it.

        Raises:
            Fenced, InvalidArgument: as for `read_entries`.
        """
        self._check_readable()
        bytes_left = _check_arguments(start, count, bytes_max, LATEST)
        entries: list[Entry] = []
        position = self._state.first_readable(start)
        while position is not None:
            limit, is_cut, source = count - len(entries), False, ReadSource.CACHE
            buffers: Sequence[Buffer] | None
            buffers = self._cached_step(position, limit, bytes_left, LATEST)
            if buffers is None:
                wanted = self._wanted(position, limit, bytes_left, LATEST)
                buffers, source = self._sources.read_resident(wanted), ReadSource.PRIMARY
                is_cut = _is_cut(wanted, buffers, bytes_left)
            taken = len(entries)
            bytes_left = _take(entries, position, buffers, bytes_left)
            self._counts.add(source, len(entries) - taken)
            if is_cut or not buffers or bytes_left == 0 or len(entries) >= count:
                break
            position = self._next_position(position, len(buffers), LATEST)
        return entries

    async def read_entries(
        self,
        start: Position,
        count: int,
        bytes_max: int | None,
        max_position: Position,
        *,
        is_background: bool = False,
    ) -> list[Entry]:
        """Read entries; see `ManagedLedger.read_entries`."""
        self._check_readable()
        bytes_left = _check_arguments(start, count, bytes_max, max_position)
        entries: list[Entry] = []
        position = self._state.first_readable(start)
        steps = 0
        while position is not None and position <= max_position:
            limit = count - len(entries)
            try:
                buffers, is_cut, source = await self._step(
                    position, limit, bytes_left, max_position, is_background=is_background
                )
                steps += 1
                if steps % STEPS_PER_TICK == 0:
                    await self._services.clock.sleep(0)
                self._check_readable()
            except LedgerError as error:
                if not isinstance(error, Fenced) and not self._state.has_ledger(position.ledger_id):
                    # The ledger was trimmed during the read: skip it like any trimmed ledger.
                    position = self._state.first_readable(Position(position.ledger_id + 1, -1))
                    continue
                if entries:
                    return entries
                self._check_readable()  # entries of a deleted log are missing, not lost
                raise
            taken = len(entries)
            bytes_left = _take(entries, position, buffers, bytes_left)
            self._counts.add(source, len(entries) - taken)
            if is_cut or not buffers or bytes_left == 0 or len(entries) >= count:
                return entries
            position = self._next_position(position, len(buffers), max_position)
        return entries

    async def chunks(
        self, start: Position, max_position: Position, count: int, bytes_max: int
    ) -> AsyncIterator[list[Entry]]:
        """Yield entries; see `ManagedLedger.read_in_chunks`."""
        position = start
        while position <= max_position:
            entries = await self.read_entries(position, count, bytes_max, max_position)
            if not entries:
                return
            yield entries
            position = entries[-1].position.successor

    async def read_entry(self, position: Position) -> Entry:
        """Read one entry that exists.

        Raises:
            Fenced, NonRecoverable, Corrupt, StorageFailed: as for `read_entries`.
            InvalidPosition: there is no entry at that position.
        """
        self._check_readable()
        if not isinstance(position, Position):
            raise InvalidArgument(f"position: expected a Position, got {position!r}")
        if self._state.first_readable(position) != position:
            raise InvalidPosition(f"there is no entry at {position}, last is {self._state.lac}")
        try:
            buffers, _, source = await self._step(position, 1, -1, LATEST)
        except LedgerError as error:
            self._check_readable()
            if self._state.has_ledger(position.ledger_id):
                raise
            raise InvalidPosition(f"{position} was deleted while it was read") from error
        self._check_readable()
        if not buffers:
            raise NonRecoverable(f"the storage has nothing at {position}")
        self._counts.add(source, 1)
        return Entry(position, buffers[0])

    async def _step(
        self,
        position: Position,
        count: int,
        bytes_left: int,
        max_position: Position,
        *,
        is_background: bool = False,
    ) -> tuple[Sequence[Buffer], bool, ReadSource]:
        """Read in the ledger of `position`, from memory or from one of its copies.

        Returns:
            The buffers, whether the next entry is known to exceed the bytes left, and the source.
        """
        buffers = self._cached_step(position, count, bytes_left, max_position)
        if buffers is not None:
            return buffers, False, ReadSource.CACHE
        return await self._stored_step(
            position, count, bytes_left, max_position, is_background=is_background
        )

    def _cached_step(
        self, position: Position, count: int, bytes_left: int, max_position: Position
    ) -> list[Buffer] | None:
        ledger_id, first = position
        cached_ledger = self._cache.find_ledger(ledger_id)
        if cached_ledger is None:
            return None
        upto = self._end_in_ledger(ledger_id, max_position)
        return cached_ledger.slice(first, min(count, upto - first, STEP_ENTRIES_MAX), bytes_left)

    async def _stored_step(
        self,
        position: Position,
        count: int,
        bytes_left: int,
        max_position: Position,
        *,
        is_background: bool,
    ) -> tuple[Sequence[Buffer], bool, ReadSource]:
        """Read from a copy of the ledger."""
        wanted = self._wanted(
            position, count, bytes_left, max_position, is_background=is_background
        )
        buffers, source = await self._sources.read(wanted)
        return buffers, _is_cut(wanted, buffers, bytes_left), source

    def _wanted(
        self,
        position: Position,
        count: int,
        bytes_left: int,
        max_position: Position,
        *,
        is_background: bool = False,
    ) -> WantedEntries:
        """Return what is asked of a copy of the ledger: up to the first entry in the cache."""
        ledger_id, first = position
        upto = self._end_in_ledger(ledger_id, max_position)
        cached_ledger = self._cache.find_ledger(ledger_id)
        if cached_ledger is not None and first < cached_ledger.first_entry:
            upto = min(upto, cached_ledger.first_entry)
        limit = STEP_BYTES_MAX if bytes_left < 0 else min(bytes_left, STEP_BYTES_MAX)
        return WantedEntries(position, count, upto, limit, is_background)

    def _end_in_ledger(self, ledger_id: int, max_position: Position) -> int:
        """Return the id after the last entry of the ledger that the read may return."""
        upto = self._state.entries_in(ledger_id)
        if max_position.ledger_id == ledger_id:
            return min(upto, max_position.entry_id + 1)
        return upto

    def _next_position(
        self, position: Position, taken: int, max_position: Position
    ) -> Position | None:
        next_position = self._state.first_readable(
            Position(position.ledger_id, position.entry_id + taken)
        )
        return None if next_position is None or next_position > max_position else next_position


def _is_cut(wanted: WantedEntries, buffers: Sequence[Buffer], bytes_left: int) -> bool:
    """Return whether the entry after those that were read is known to exceed the bytes left."""
    available = min(wanted.upto - wanted.start.entry_id, wanted.count_max)
    return wanted.bytes_max == bytes_left and len(buffers) < available


def _take(
    entries: list[Entry], position: Position, buffers: Sequence[Buffer], bytes_left: int
) -> int:
    """Add buffers as entries from `position` on; return the bytes left: 0 = stop, -1 = no limit.

    A first buffer above the limit is added only if it is the first of the whole read.
    """
    if bytes_left >= 0:
        if entries and buffers and len(buffers[0]) > bytes_left:
            return 0
        bytes_left = max(0, bytes_left - sum(map(len, buffers)))
    entries += _entries(position.ledger_id, position.entry_id, buffers)
    return bytes_left


def _entries(ledger_id: int, first: int, buffers: Sequence[Buffer]) -> list[Entry]:
    return [
        _new_tuple(Entry, (_new_tuple(Position, (ledger_id, entry_id)), buffer))
        for entry_id, buffer in enumerate(buffers, first)
    ]


def _check_arguments(
    start: object, count: object, bytes_max: int | None, max_position: object
) -> int:
    """Check arguments of possibly untyped callers; return the byte limit, -1 for none."""
    if not isinstance(start, Position):
        raise InvalidArgument(f"start: expected a Position, got {start!r}")
    if not isinstance(count, int) or count <= 0:
        raise InvalidArgument(f"count: expected a positive number, got {count!r}")
    if not isinstance(max_position, Position):
        raise InvalidArgument(f"max_position: expected a Position, got {max_position!r}")
    if bytes_max is None:
        return -1
    return max(bytes_max, 1)
