"""Ledger view: all that can be asked of a managed ledger without changing anything.

Rule: answers come from what is confirmed; nobody sees an entry that a crash could take back.
Must not know: appends, changes, states.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from kledger.ledger.entry import Entry
from kledger.ledger.ledger_reader import LedgerReader
from kledger.ledger.metadata.ledger_list_state import LedgerInfo, LedgerListState
from kledger.ledger.position import LATEST, Position
from kledger.runtime.containment import Containment, FaultUnit
from kledger.runtime.listeners import Listener, Listeners

CLOCK_SKEW_MS = 10_000
"""Between those who give entries their time and those who close ledgers; as in Pulsar."""


class LedgerView:
    """The asking half of `ManagedLedger`. Methods without await never block.

    Attributes:
        has_failed: a fault here has closed it; whoever keeps the handle opens a new one.
    """

    unit_kind = "partition"

    def __init__(
        self, name: str, state: LedgerListState, reader: LedgerReader, containment: Containment
    ) -> None:
        self.name = name
        self._list = state
        self._reader = reader
        self.has_failed = False
        self._listeners = Listeners(containment)

    async def read_entries(
        self,
        start: Position,
        count: int,
        max_position: Position = LATEST,
        *,
        bytes_max: int | None = None,
    ) -> list[Entry]:
        """Read entries in order; never waits for entries to come.

        Args:
            start: the first one, or the next that exists.
            count: at most so many.
            max_position: none behind this.
            bytes_max: stop before more than this, but not before the first entry.

        Raises:
            Fenced: the handle is closed or fenced. Checked first.
            InvalidArgument: a position is missing, or the count is not positive.
            NonRecoverable, Corrupt, StorageFailed: the first entry cannot be read.

        Source: PIP-480; managed ledger contract for cursorless reads.
        """
        return await self._reader.read_entries(start, count, bytes_max, max_position)

    def read_cached(
        self,
        start: Position,
        count: int,
        bytes_max: int | None = None,
        max_position: Position = LATEST,
    ) -> list[Entry] | None:
        """Do what `read_entries` does if memory has all of it, else return None."""
        return self._reader.read_cached(start, count, bytes_max, max_position)

    async def read_entry(self, position: Position) -> Entry:
        """Read one entry. Raises InvalidPosition when there is none, else as `read_entries`."""
        return await self._reader.read_entry(position)

    async def find_newest_matching(self, predicate: Callable[[Entry], bool]) -> Position | None:
        """Search for the newest entry that matches; all before it must, none behind it may.

        Entries that are damaged, or trimmed meanwhile, are passed over.

        Raises:
            Fenced, StorageFailed: as for `read_entries`.
        """
        return await self._reader.search.newest_matching(predicate)

    async def find_newest_before(
        self,
        timestamp_ms: int,
        time_of: Callable[[Entry], int],
        *,
        clock_skew_ms: int | None = CLOCK_SKEW_MS,
    ) -> Position | None:
        """Search for the newest entry of before a time; a reset to that time goes behind it.

        Args:
            timestamp_ms: entries of this time or later are too new.
            time_of: gives an entry's time; times rise along the log.
            clock_skew_ms: how far times may be off the clock by which ledgers are closed, which
                narrows the search; None when they come from somewhere else altogether.

        Raises:
            Fenced, StorageFailed: as for `read_entries`.
        """
        return await self._reader.search.newest_before(timestamp_ms, time_of, clock_skew_ms)

    @property
    def unit_name(self) -> str:
        """See `runtime.containment.FaultUnit`."""
        return self.name

    # Listening

    def add_listener(self, listener: Listener, unit: FaultUnit | None = None) -> None:
        """Call back on the loop after every change: entries, ledgers deleted, state.

        It comes once for what was confirmed together, and does not say what it was. A fault of the
        listener closes `unit`.
        """
        self._listeners.add(listener, unit)

    def remove_listener(self, listener: Listener) -> None:
        """Stop calling back; nothing if it was not there."""
        self._listeners.remove(listener)

    def listen(self, listener: Listener, unit: FaultUnit | None = None) -> Callable[[], None]:
        """Add a listener, and return what removes it."""
        return self._listeners.listen(listener, unit)

    def changed(self) -> None:
        """Tell the listeners; one that raises does not keep the others from hearing."""
        self._listeners.notify()

    # Looking

    @property
    def last_confirmed_entry(self) -> Position:
        """The newest entry that readers may see; it stays when its ledger is deleted."""
        return self._list.lac

    @property
    def first_position(self) -> Position:
        """The place before the first entry."""
        return self._list.first_position

    @property
    def ledgers(self) -> tuple[LedgerInfo, ...]:
        """Every ledger, oldest first."""
        return self._list.infos()

    @property
    def total_size(self) -> int:
        """Confirmed bytes."""
        return self._list.total_size

    @property
    def properties(self) -> Mapping[str, str]:
        """The durable properties."""
        return MappingProxyType(self._list.head.properties)

    def next_valid_position(self, position: Position) -> Position:
        """Return the next position that exists, or the next to be written."""
        return self._list.next_valid(position)

    def previous_position(self, position: Position) -> Position:
        """Return the position before; entry -1 when there is none."""
        return self._list.previous(position)

    def is_valid_position(self, position: Position) -> bool:
        """Tell whether the position exists or is the next to be written."""
        return self._list.is_valid(position)

    def has_entries_from(self, position: Position) -> bool:
        """Tell whether the position is not behind the last confirmed entry."""
        return self._list.has_entries_from(position)

    def number_of_entries(self, start: Position, end: Position) -> int:
        """Count the entries from `start` to `end`, both included."""
        return self._list.number_of_entries(start, end)

    def estimated_backlog_bytes(self, position: Position) -> int:
        """Estimate the bytes from `position` on."""
        return self._list.estimated_backlog_bytes(position)
