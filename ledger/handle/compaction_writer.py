"""Compaction writer: writes a compacted ledger, which will replace the beginning of a log.

Rule: nothing of it is visible before `complete`, and then all of it is, in one group with the
cursor of the compaction, the rows of the caller and the removal of the ledger that it replaces. The
sync of that group covers all entries; until then they need none, so appends wait for fewer syncs.
Its id is in the metadata from the beginning, so whatever ends a compaction, its data is dropped: at
once, with the next compaction, or with the next opening.
Must not know: what is kept, and why.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from kledger.ledger.commits.committer import submitted
from kledger.ledger.compacted_entry import encode_compacted
from kledger.ledger.engine.base import Buffer, CommitGroup, Row
from kledger.ledger.errors import AlreadyClosed, InvalidArgument, StorageFailed
from kledger.ledger.metadata.records import CompactedLedger
from kledger.ledger.position import Position
from kledger.ledger.store_services import StoreServices

COMPACTION_CURSOR = "__compaction"
"""Name of the cursor that compactions move; it keeps ledgers that are not compacted yet."""
GROUP_BYTES = 64 << 10
"""Data committed at once, so that no append waits for more than this."""


class NewEntry(NamedTuple):
    """An entry to be written.

    Attributes:
        position: of the entry that it is made from.
        parts: of its data.
        attribute: a number that is stored beside the data; its meaning is the writer's.
    """

    position: Position
    parts: Sequence[Buffer]
    attribute: int = 0


class Complete(Protocol):
    """Makes a compacted ledger visible together with rows of the caller."""

    def __call__(self, compacted: CompactedLedger, rows: Iterable[Row]) -> Awaitable[None]:
        """Return when it is durable."""
        ...


class CompactionWriter:
    """Made by `ManagedLedger.begin_compaction`; ended by `complete` or `abort`.

    Attributes:
        ledger_id: of the ledger that it writes.
        entries: written so far.
        size: their bytes.
    """

    def __init__(
        self,
        ledger_id: int,
        services: StoreServices,
        *,
        check: Callable[[], None],
        complete: Complete,
        abort: Callable[[], Awaitable[None]],
    ) -> None:
        """Make one.

        Args:
            ledger_id: of the ledger, which is in the metadata as being written.
            services: of the store.
            check: raises when the handle must not change anything any more.
            complete: makes the ledger visible.
            abort: drops it.
        """
        self.ledger_id = ledger_id
        self.entries = 0
        self.size = 0
        self._services = services
        self._check = check
        self._complete = complete
        self._abort = abort
        self._newest = Position(-1, -1)
        self._is_ended = False
        self._lacks_entries = False
        """An append has not returned: entries that are counted may not be stored."""

    async def append(self, entries: Iterable[NewEntry]) -> None:
        """Write entries, ascending by position; they are durable when `complete` has returned.

        After an error, or if the caller was cancelled, only `abort` is possible.

        Raises:
            InvalidArgument: a position is not after the one before.
            AlreadyClosed, Fenced: the handle cannot be used any more.
            StorageFailed: they were not stored, or those of an earlier call.
        """
        self._check_whole()
        self._lacks_entries = True
        group = CommitGroup(needs_sync=False)
        group_size = 0
        for position, parts, attribute in entries:
            if position <= self._newest:
                raise InvalidArgument(f"position {position}, expected one after {self._newest}")
            data = encode_compacted(position, attribute, parts)
            group.entries.append((self.ledger_id, self.entries, data))
            self._newest = position
            self.entries += 1
            self.size += len(data)
            group_size += len(data)
            if group_size >= GROUP_BYTES:
                await self._commit(group)
                group, group_size = CommitGroup(needs_sync=False), 0
        if group.entries:
            await self._commit(group)
        self._lacks_entries = False

    async def complete(self, horizon: Position, rows: Iterable[Row] = ()) -> CompactedLedger:
        """Let the ledger stand for everything up to `horizon`; the one before it is dropped.

        Args:
            horizon: at or after the last position written.
            rows: rows of the store's user that become durable with it, or not at all.

        Raises:
            InvalidArgument: the horizon is before that position.
            ResetInProgress: the cursor of the compaction is being reset; a retry may succeed.
            AlreadyClosed, Fenced: the handle cannot be used any more.
            StorageFailed: nothing has changed; a retry may succeed unless an append has failed.
        """
        self._check_whole()
        if horizon < self._newest:
            raise InvalidArgument(f"horizon {horizon}, expected {self._newest} or later")
        compacted = CompactedLedger(
            ledger_id=self.ledger_id,
            entries=self.entries,
            size=self.size,
            horizon=horizon,
            compacted_ms=self._services.clock.now_ms(),
        )
        await self._complete(compacted, rows)
        self._is_ended = True
        return compacted

    async def abort(self) -> None:
        """Drop what was written; does nothing after the end of the compaction.

        Raises:
            AlreadyClosed, Fenced, StorageFailed: the next compaction or opening drops it.
        """
        if not self._is_ended:
            self._is_ended = True
            await self._abort()

    async def _commit(self, group: CommitGroup) -> None:
        self._check_running()
        await submitted(partial(self._services.committer.submit_group, group))

    def _check_whole(self) -> None:
        self._check_running()
        if self._lacks_entries:
            raise StorageFailed(f"the compaction into ledger {self.ledger_id} has lost entries")

    def _check_running(self) -> None:
        self._check()
        if self._is_ended:
            raise AlreadyClosed(f"the compaction into ledger {self.ledger_id} has ended")


def check_not_reserved(name: str) -> None:
    """Raise InvalidArgument for the name of the cursor of compactions."""
    if name == COMPACTION_CURSOR:
        raise InvalidArgument(f"{name} is the cursor of compactions, which nothing else moves")
