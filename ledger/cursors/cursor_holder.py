"""Cursor holder: the part of a managed ledger's face that is about its cursors.

Rule: every call goes to the registry; nothing of the append or the fetch path comes through here.
Must not know: appends, states.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress

from kledger.ledger.cursors.cursor import Cursor
from kledger.ledger.cursors.cursor_registry import CursorRegistry
from kledger.ledger.cursors.entry_part import EntryPart
from kledger.ledger.errors import CursorNotFound
from kledger.ledger.position import EARLIEST, LATEST, Position


class CursorHolder:
    """The cursors of `ManagedLedger`."""

    _cursors: CursorRegistry

    async def open_cursor(self, name: str, *, initial: Position = LATEST) -> Cursor:
        """Open a durable cursor, or make one.

        Args:
            name: unique in this managed ledger.
            initial: where a new one begins: EARLIEST or LATEST; of no meaning for one that exists.

        Raises:
            Fenced, AlreadyClosed: the handle cannot be used any more.
            StorageFailed: it was not made.
        """
        return await self._cursors.open(name, initial)

    async def open_cursor_at(
        self,
        name: str,
        position: Position,
        *,
        acknowledged: Collection[int] = (),
        batch_size: int = 0,
    ) -> Cursor:
        """Open a durable cursor, or make one that stands where `Cursor.reset` would put it.

        A new one is durable with its place, or not there.

        Args:
            name: unique in this managed ledger.
            position: of a new one, the next entry to be read.
            acknowledged: records of that entry that it is not owed.
            batch_size: how many records it has.

        Raises:
            InvalidArgument: a record is not within the batch.
            Fenced, AlreadyClosed, StorageFailed: as `open_cursor`.
        """
        return await self._cursors.open_at(name, EntryPart(position, acknowledged, batch_size))

    async def new_non_durable_cursor(self, start: Position | None = None) -> Cursor:
        """Make a cursor that lives in memory and holds back nothing.

        Args:
            start: its mark-delete position: reading begins behind it. EARLIEST is before the first
                entry; LATEST, None, and what is beyond the last confirmed entry is that.
        """
        return self._cursors.make_non_durable(start)

    async def delete_cursor(self, name: str) -> None:
        """Delete a durable cursor. Raises CursorNotFound, else as `open_cursor`."""
        await self._cursors.delete(name)

    async def change_cursors(
        self, *, added: Iterable[str] = (), removed: Iterable[str] = ()
    ) -> None:
        """Make durable cursors at the first entry and delete others, without opening any.

        Those that are there, or are not, stay as they are. Raises as `open_cursor`.
        """
        for name in sorted(added):
            await self._cursors.open(name, EARLIEST)
        for name in sorted(removed):
            with suppress(CursorNotFound):
                await self._cursors.delete(name)

    def acknowledge_before(
        self, position: Position, *, records: int = 0, batch_size: int = 0
    ) -> None:
        """Owe nobody what lies before a position: the log begins there for its readers.

        Every cursor moves, at once in memory and soon in the storage.

        Args:
            position: the first entry of which something remains.
            records: how many of its records, from the first one on, do not.
            batch_size: how many it has.
        """
        self._cursors.acknowledge_before(position, records, batch_size)

    def show_user_metric(
        self, cursor: Cursor, metric: str, read: Callable[[], int], about: str
    ) -> None:
        """Show a number of whoever uses a cursor beside the cursor's own, as long as those are.

        Args:
            cursor: of this managed ledger.
            metric: the name of the number.
            read: tells it at the time of a view.
            about: what is counted, in a few words.
        """
        self._cursors.metrics.show_user_metric(cursor, metric, read, about)

    @property
    def slowest_position(self) -> Position | None:
        """Up to where nothing is owed to any durable cursor, whatever crashes; None without one."""
        return self._cursors.slowest

    @property
    def has_cursors(self) -> bool:
        """Whether there is any cursor, durable or not."""
        return self._cursors.is_any

    @property
    def cursor_names(self) -> frozenset[str]:
        """The names of the durable cursors."""
        return frozenset(self._cursors.durable)

    @property
    def cursors(self) -> Mapping[str, Cursor]:
        """The durable cursors by name."""
        return self._cursors.durable
