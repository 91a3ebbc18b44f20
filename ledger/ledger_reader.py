"""Ledger reader: cursorless reads of a managed ledger, from memory or from the storage.

Rule: a read never waits for entries to come, opens no cursor, pins nothing, and ends at the last
confirmed entry. What fails behind the first entry ends the read with what it has; the caller sees
the error when it comes back for the rest. Cold reads do not fill the cache.
Must not know: who reads, appends. Theory: PIP-480.
"""

from collections.abc import Callable, Sequence

from kledger.ledger.engine.base import Buffer
from kledger.ledger.entry import Entry
from kledger.ledger.errors import (
    Fenced,
    InvalidArgument,
    InvalidPosition,
    LedgerError,
    NonRecoverable,
)
from kledger.ledger.metadata.ledger_list_state import LedgerListState
from kledger.ledger.position import LATEST, Position
from kledger.ledger.reads.entry_search import EntrySearch
from kledger.ledger.store_services import StoreServices

STEP_ENTRIES_MAX = 512
"""Entries taken from memory at once: what a byte limit then leaves out was not copied for long."""
STEP_BYTES_MAX = 4 << 20
"""Bytes that one call of the storage may return."""
STEPS_PER_TICK = 64
"""Steps in memory after which the event loop gets a turn."""

_new_tuple = tuple.__new__


class LedgerReader:
    """The read side of one handle."""

    def __init__(
        self,
        state: LedgerListState,
        services: StoreServices,
        check_readable: Callable[[], None],
        name: str,
    ) -> None:
        """Make the read side of a handle.

        Args:
            state: which ledgers there are, and what of them is confirmed.
            services: of the store.
            check_readable: raises what a read gets in the handle's present state.
            name: what people call the managed ledger.
        """
        self._name = name
        self._state = state
        self._services = services
        self._cache = services.cache
        self._check_readable = check_readable

    @property
    def search(self) -> EntrySearch:
        """A search in these entries; made when it is wanted, as it keeps the reader."""
        return EntrySearch(self._state, self.read_entry, self._check_readable)

    def read_cached(
        self, start: Position, count: int, bytes_max: int | None, max_position: Position
    ) -> list[Entry] | None:
        """Answer from memory as a whole, or return None when the storage is needed.

        Two cases: the common one is a read in the newest ledger that one slice answers.
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
                return None if found is None else _entries(ledger_id, first, found)
        position = self._state.first_readable(start)
        if position is None or position > max_position:
            return []
        entries: list[Entry] = []
        while True:
            buffers = self._cached_step(position, count - len(entries), bytes_left, max_position)
            if buffers is None:
                return None
            bytes_left = _take(entries, position, buffers, bytes_left)
            if bytes_left == 0 or len(entries) >= count:
                return entries
            next_position = self._next_position(position, len(buffers), max_position)
            if next_position is None:
                return entries
            position = next_position

    async def read_entries(
        self, start: Position, count: int, bytes_max: int | None, max_position: Position
    ) -> list[Entry]:
        """Read as PIP-480 says; `bytes_max` ends it earlier, but not before the first entry.

        Raises:
            Fenced: the handle is closed or lost its managed ledger.
            InvalidArgument: something is missing, or the count is not positive.
            NonRecoverable, Corrupt, StorageFailed: the first entry cannot be read.
            TooManyRequests: too many reads are waiting for the storage.
        """
        self._check_readable()
        bytes_left = _check_arguments(start, count, bytes_max, max_position)
        entries: list[Entry] = []
        position = self._state.first_readable(start)
        steps = 0
        while position is not None and position <= max_position:
            limit = count - len(entries)
            try:
                buffers, is_cut = await self._step(position, limit, bytes_left, max_position)
                steps += 1
                if steps % STEPS_PER_TICK == 0:
                    await self._services.clock.sleep(0)
                self._check_readable()
            except LedgerError as error:
                if not isinstance(error, Fenced) and not self._state.has_ledger(position.ledger_id):
                    # Trimmed while it was read: such a ledger is skipped like one gone before.
                    position = self._state.first_readable(Position(position.ledger_id + 1, -1))
                    continue
                if entries:
                    return entries
                self._check_readable()  # entries of a deleted log are missing, not lost
                raise
            bytes_left = _take(entries, position, buffers, bytes_left)
            if is_cut or not buffers or bytes_left == 0 or len(entries) >= count:
                return entries
            position = self._next_position(position, len(buffers), max_position)
        return entries

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
            buffers, _ = await self._step(position, 1, -1, LATEST)
        except LedgerError as error:
            self._check_readable()
            if self._state.has_ledger(position.ledger_id):
                raise
            raise InvalidPosition(f"{position} was deleted while it was read") from error
        self._check_readable()
        if not buffers:
            raise NonRecoverable(f"the storage has nothing at {position}")
        return Entry(position, buffers[0])

    async def _step(
        self, position: Position, count: int, bytes_left: int, max_position: Position
    ) -> tuple[Sequence[Buffer], bool]:
        """Read on in the ledger of `position`, as far as one source goes.

        Returns:
            What was found, and whether the next entry is known not to fit into the bytes left.
        """
        buffers = self._cached_step(position, count, bytes_left, max_position)
        if buffers is not None:
            return buffers, False
        return await self._stored_step(position, count, bytes_left, max_position)

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
        self, position: Position, count: int, bytes_left: int, max_position: Position
    ) -> tuple[Sequence[Buffer], bool]:
        """Read from the storage up to where the cache has the rest."""
        ledger_id, first = position
        upto = self._end_in_ledger(ledger_id, max_position)
        cached_ledger = self._cache.find_ledger(ledger_id)
        if cached_ledger is not None and first < cached_ledger.first_entry:
            upto = min(upto, cached_ledger.first_entry)
        limit = STEP_BYTES_MAX if bytes_left < 0 else min(bytes_left, STEP_BYTES_MAX)
        try:
            buffers = await self._services.cold_reads.read(
                ledger_id, first, count=count, upto=upto, bytes_max=limit
            )
        except LedgerError as error:
            if self._state.has_ledger(ledger_id):  # what is trimmed meanwhile is no loss
                self._services.health.failed(error, f"reading {self._name} at {position}")
            raise
        return buffers, limit == bytes_left and len(buffers) < min(upto - first, count)

    def _end_in_ledger(self, ledger_id: int, max_position: Position) -> int:
        """Return the id behind the last entry of the ledger that the read may return."""
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


def _take(
    entries: list[Entry], position: Position, buffers: Sequence[Buffer], bytes_left: int
) -> int:
    """Add buffers as entries from `position` on; return the bytes left: 0 = stop, -1 = no limit.

    A first buffer above the limit is taken only when it is the first of the whole read.
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
    """Return the byte limit in its inner form; the callers may be untyped."""
    if not isinstance(start, Position):
        raise InvalidArgument(f"start: expected a Position, got {start!r}")
    if not isinstance(count, int) or count <= 0:
        raise InvalidArgument(f"count: expected a positive number, got {count!r}")
    if not isinstance(max_position, Position):
        raise InvalidArgument(f"max_position: expected a Position, got {max_position!r}")
    if bytes_max is None:
        return -1
    return max(bytes_max, 1)
