"""The interface of storage engines.

Rule: an engine knows ledger ids, entry ids and bytes. After any crash a group exists as a whole or
not at all, and only together with all groups committed before it.
Must not know: what entries and rows mean, event loops, clocks.

`commit` writes a group to the log (and syncs it), then `index` makes it visible. Both are called in
the same order for all groups; a group may be committed while an earlier one is indexed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
Row: TypeAlias = tuple[bytes, bytes | None]


class Move(NamedTuple):
    """An entry of a group that is stored already, and the file and position that it leaves.

    Only the engine that made it interprets it.
    """

    ledger_id: int
    entry_id: int
    file: int
    position: int


@dataclass(slots=True)
class CommitGroup:
    """One atomic unit of change. Applied in this order: entries, rows, drops.

    Attributes:
        entries: (ledger id, entry id, data); ids are >= 0, and the new entries of one ledger have
            ascending ids. The data must not change until the group is indexed; a memoryview has
            items of one byte.
        rows: key and value, or None to delete the key; applied in order.
        drops: ids of ledgers whose entries are all deleted; a dropped id is never used again.
        moves: those of the entries that are not new. A move is ignored if the entry is not at that
            file and position any more, because its ledger was dropped or it was moved before.
        seals: whether the group begins a new log file, so that the previous one gets no more.
        needs_sync: False if the owner can lose the group until a later one, which needs a sync, is
            confirmed; a sync covers every group before it.
    """

    entries: list[tuple[int, int, Buffer]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    drops: list[int] = field(default_factory=list)
    moves: Sequence[Move] = ()
    seals: bool = False
    needs_sync: bool = True

    @property
    def is_empty(self) -> bool:
        """Whether committing it would change nothing."""
        return not (self.entries or self.rows or self.drops or self.seals)


class StorageEngine(Protocol):
    """A blocking store of entries and rows.

    After a SyncFailed an engine refuses all changes, for good.

    Threads: commit runs in one thread at a time, index in one thread at a time; read, last_entry,
    get, scan and checkpoint may run at the same time as these and each other.
    """

    needs_thread: bool
    """Whether commit and read may block for long by design; an event loop must not call them."""

    @property
    def is_behind(self) -> bool:
        """Whether the index is so far behind the log that the next commit waits for a disk.

        That commit must be made in a thread.
        """
        ...

    def commit_delay_ms(self, size: int) -> int:
        """Return how long a group should wait, so that it contains what is submitted meanwhile.

        It may be committed earlier, and then takes as long. Asked while no commit runs.

        Args:
            size: of its entries and rows, in bytes.
        """
        ...

    def commit(self, group: CommitGroup, *, sync: bool) -> None:
        """Write a group to the log and, with `sync`, make it and all earlier groups durable.

        Even without `sync` a group with moves, or any group while `is_behind`, may wait for a disk.

        Raises:
            StorageWriteFailed: nothing of the group remains; it may be committed again.
            SyncFailed: the state is unknown; the engine refuses everything from now on.
        """
        ...

    def index(self, group: CommitGroup) -> None:
        """Make `group` visible, which must be the oldest group that is not indexed yet."""
        ...

    def read(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[Buffer]:
        """Return entries in order from `first_entry`: at least one, then as many as fit.

        The buffers may be views of one larger block and must not be changed.

        Raises:
            EntryMissing: there is no entry `first_entry`.
            EntryCorrupt: stored bytes differ from what was written.
        """
        ...

    def read_resident(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[Buffer] | None:
        """Do the same as `read` without waiting for a disk; None if a disk could be needed.

        An event loop may call it: it costs little more than copying the bytes.

        Raises:
            EntryCorrupt: as for `read`.
        """
        ...

    def last_entry(self, ledger_id: int) -> int:
        """Return the newest entry id stored for a ledger, -1 if there is none."""
        ...

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a row."""
        ...

    def scan(
        self, start: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        """Return the rows with start <= key < end, in the order of keys or in `reverse`."""
        ...

    def checkpoint_due(self) -> bool:
        """Return whether a checkpoint would shorten the next recovery, or free space."""
        ...

    def checkpoint(self) -> None:
        """Make log and index durable up to the latest indexed group.

        Raises:
            StorageWriteFailed: there is no space for it; the engine continues to work.
            SyncFailed: the state is unknown.
        """
        ...

    def next_moves(self, *, dead_share_max: float, bytes_max: int) -> CommitGroup | None:
        """Search for entries whose move would free space; blocks, and changes nothing.

        Args:
            dead_share_max: the share of the space that deleted data may take.
            bytes_max: about how much data the group may have.

        Returns:
            A group that the caller may commit alone, as part of a larger one, or not at all; an
            empty one if the next call continues the search; None if no move is worth it.

        Raises:
            StorageError: an entry could not be read.
        """
        ...

    def release_waiting(self) -> None:
        """End artificial waits of begun operations, as another store takes over the engine."""
        ...

    def close(self) -> None:
        """Checkpoint, then release the folder. May be repeated."""
        ...


class TwoStepEngine(StorageEngine, Protocol):
    """An engine with a commit in two steps, so that a test can inject a fault between them."""

    def write(self, group: CommitGroup, *, sync_follows: bool) -> None:
        """Do the first half of commit. Raises StorageWriteFailed."""
        ...

    def sync(self) -> None:
        """Do the second half: make everything written durable. Raises SyncFailed."""
        ...

    def drop_unsynced(self) -> None:
        """Lose what a power cut would lose: all groups that no sync covered."""
        ...
