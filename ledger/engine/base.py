"""The seam below the ledgers: what every storage engine offers.

Rule: an engine knows ledger ids, entry ids and bytes. What it accepted as one group is there as a
whole or not at all after any crash, and groups survive in the order in which they were committed.
Must not know: what entries and rows mean, event loops, clocks.

Life of a group: `commit` writes it to the log (and syncs), `index` makes it visible. Both are
called in the same order for all groups; a group may be committed while an earlier one is indexed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
Row: TypeAlias = tuple[bytes, bytes | None]


class Move(NamedTuple):
    """An entry of a group that is stored already, and the place that it leaves.

    Who is not the engine that made it only passes it on.
    """

    ledger_id: int
    entry_id: int
    file: int
    position: int


@dataclass(slots=True)
class CommitGroup:
    """One atomic unit of change. Applied in this order: entries, rows, drops.

    Attributes:
        entries: (ledger id, entry id, data); ids are >= 0, and the ids of one ledger ascend, those
            in `moves` apart. The data must not change until the group is indexed; a memoryview has
            items of one byte.
        rows: key and value, or None to delete the key; applied in order.
        drops: ids of ledgers whose entries are all gone; an id dropped is never used again.
        moves: which of the entries are not new. One that does not stand any more where its move
            says, because its ledger was dropped or because it was moved already, changes nothing.
        seals: what stands before the group should lie in files that get nothing more.
    """

    entries: list[tuple[int, int, Buffer]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    drops: list[int] = field(default_factory=list)
    moves: Sequence[Move] = ()
    seals: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether committing it would change nothing."""
        return not (self.entries or self.rows or self.drops or self.seals)


class StorageEngine(Protocol):
    """Blocking and synchronous.

    After a SyncFailed an engine refuses all that would change it, for good.

    Threads: commit runs in one thread at a time, index in one thread at a time; read, last_entry,
    get, scan and checkpoint may run beside them and beside each other.
    """

    needs_thread: bool
    """True: commit and read may block for long by design, so they are never called on a loop."""

    @property
    def is_behind(self) -> bool:
        """Whether so much is not indexed durably yet that the next commit waits for a disk.

        That commit is for a thread, and what is submitted meanwhile waits in the committer.
        """
        ...

    def commit(self, group: CommitGroup, *, sync: bool) -> None:
        """Write a group to the log and, with `sync`, make it and all before it durable.

        A group with moves, or the next one while `is_behind`, may wait for a disk without `sync`.

        Raises:
            StorageWriteFailed: nothing of the group remains; it may be sent again.
            SyncFailed: the state is unknown; the engine refuses everything from now on.
        """
        ...

    def index(self, group: CommitGroup) -> None:
        """Make the oldest committed group that is not indexed yet visible; it must be `group`."""
        ...

    def read(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[Buffer]:
        """Return entries in order from `first_entry`; at least one, then as many as fit.

        The buffers may be views of one larger block; nobody changes them.

        Raises:
            EntryMissing: there is no entry `first_entry`.
            EntryCorrupt: what is stored differs from what was written.
        """
        ...

    def read_resident(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[Buffer] | None:
        """Do what `read` does, without waiting for a disk; None where that could be needed.

        For a loop: it costs no more than copying the bytes.

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
        """Tell whether a checkpoint would shorten the next recovery, or free space."""
        ...

    def checkpoint(self) -> None:
        """Make log and index durable up to what is indexed now.

        Raises:
            StorageWriteFailed: there is no space for it; everything else goes on.
            SyncFailed: the state is unknown.
        """
        ...

    def next_moves(self, *, dead_share_max: float, bytes_max: int) -> CommitGroup | None:
        """Look for entries whose move would free space; blocks, and changes nothing.

        Args:
            dead_share_max: so much of the space may be taken by what nobody needs any more.
            bytes_max: about how much data the group may have.

        Returns:
            A group to be committed as it is or as part of a larger one, or to be forgotten; an
            empty one when the search has to go on in the next call; None when nothing is worth it.

        Raises:
            StorageError: something could not be read.
        """
        ...

    def release_waiting(self) -> None:
        """The owner is replaced: nothing that it has begun may wait for somebody to act."""
        ...

    def close(self) -> None:
        """Checkpoint, then let go of the folder. May be repeated."""
        ...


class TwoStepEngine(StorageEngine, Protocol):
    """An engine whose commit can be taken apart, so that a fault can be put between the steps."""

    def write(self, group: CommitGroup, *, sync_follows: bool) -> None:
        """Do the first half of commit. Raises StorageWriteFailed."""
        ...

    def sync(self) -> None:
        """Do the second half: everything written is durable. Raises SyncFailed."""
        ...

    def drop_unsynced(self) -> None:
        """Forget what a power cut would take: all groups that no sync covered."""
        ...
