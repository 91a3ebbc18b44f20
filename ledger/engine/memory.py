"""Engine in memory: for stores without a folder, and for tests.

Rule: it behaves as the engine on disk, except that its data ends with the process.
Must not know: files.
"""

from bisect import bisect_left, insort
from collections import deque
from contextlib import suppress
from threading import Lock

from kledger.ledger.engine.base import Buffer, CommitGroup
from kledger.ledger.engine.errors import EntryMissing, StorageError


class MemoryEngine:
    """A `TwoStepEngine` of dictionaries.

    Args:
        keeps_groups: remember every group, so that `drop_unsynced` can rebuild what was synced.
    """

    needs_thread = False
    is_behind = False

    def __init__(self, *, keeps_groups: bool = False) -> None:
        self._keeps_groups = keeps_groups
        self._groups: list[CommitGroup] = []
        self._synced_count = 0
        self._lock = Lock()
        self._is_closed = False
        self._clear()

    def commit_delay_ms(self, size: int) -> int:
        """Return 0: a commit takes no time."""
        return 0

    def commit(self, group: CommitGroup, *, sync: bool) -> None:
        """Write a group; see `StorageEngine`."""
        self.write(group, sync_follows=sync)
        if sync:
            self.sync()

    def write(self, group: CommitGroup, *, sync_follows: bool) -> None:
        """Do the first half of commit."""
        self._refuse_when_closed()
        if self._keeps_groups:
            kept = CommitGroup(rows=[*group.rows], drops=[*group.drops], moves=[*group.moves])
            kept.entries += [(ledger, entry, bytes(data)) for ledger, entry, data in group.entries]
            self._groups.append(kept)
        self._committed.append(group)

    def sync(self) -> None:
        """Do the second half of commit."""
        self._refuse_when_closed()
        self._synced_count = len(self._groups)

    def index(self, group: CommitGroup) -> None:
        """Make the oldest committed group visible."""
        self._refuse_when_closed()
        oldest = self._committed.popleft()
        assert oldest is group, "groups are indexed in the order in which they were committed"
        self._apply(group)

    def read(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[Buffer]:
        """Return entries; see `StorageEngine`."""
        self._refuse_when_closed()
        entries = self._ledgers.get(ledger_id, {})
        found: list[Buffer] = []
        size = 0
        for entry_id in range(first_entry, last_entry + 1):
            data = entries.get(entry_id)
            if data is None:
                break
            size += len(data)
            if found and size > bytes_max:
                break
            found.append(data)
        if not found:
            raise EntryMissing(ledger_id, first_entry)
        return found

    def read_resident(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[Buffer] | None:
        """Return entries; see `StorageEngine`."""
        with suppress(EntryMissing):
            return self.read(ledger_id, first_entry, last_entry, bytes_max)
        return None

    def last_entry(self, ledger_id: int) -> int:
        """Return the newest entry id of a ledger."""
        self._refuse_when_closed()
        return self._last_entries.get(ledger_id, -1)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a row."""
        self._refuse_when_closed()
        return self._rows.get(key)

    def scan(
        self, start: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        """Return rows; see `StorageEngine`."""
        self._refuse_when_closed()
        with self._lock:
            keys = self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, end)]
            if reverse:
                keys.reverse()
            return [(key, self._rows[key]) for key in keys[:limit]]

    def checkpoint_due(self) -> bool:
        """Return False: there is nothing to recover."""
        return False

    def checkpoint(self) -> None:
        """Count everything as synced."""
        self.sync()

    def next_moves(self, *, dead_share_max: float, bytes_max: int) -> CommitGroup | None:
        """Return None: dropped ledgers take no space."""
        return None

    def release_waiting(self) -> None:
        """Do nothing: no operation waits."""

    def close(self) -> None:
        """Refuse everything from now on. May be repeated."""
        self._is_closed = True

    def drop_unsynced(self) -> None:
        """Rebuild the state from the synced groups."""
        assert self._keeps_groups, "this engine does not keep its groups"
        del self._groups[self._synced_count :]
        self._clear()
        for group in self._groups:
            self._apply(group)

    def _clear(self) -> None:
        self._committed: deque[CommitGroup] = deque()
        self._ledgers: dict[int, dict[int, bytes]] = {}
        self._last_entries: dict[int, int] = {}
        self._rows: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []

    def _apply(self, group: CommitGroup) -> None:
        """Change the state; nothing else does."""
        with self._lock:
            moved = {(move.ledger_id, move.entry_id) for move in group.moves}
            for ledger_id, entry_id, data in group.entries:
                if (ledger_id, entry_id) in moved:
                    continue  # the entry exists already, or its ledger was dropped
                self._ledgers.setdefault(ledger_id, {})[entry_id] = bytes(data)
                self._last_entries[ledger_id] = entry_id
            for key, value in group.rows:
                self._apply_row(key, value)
            for ledger_id in group.drops:
                self._ledgers.pop(ledger_id, None)
                self._last_entries.pop(ledger_id, None)

    def _apply_row(self, key: bytes, value: bytes | None) -> None:
        if value is not None:
            if key not in self._rows:
                insort(self._keys, key)
            self._rows[key] = value
        elif self._rows.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    def _refuse_when_closed(self) -> None:
        if self._is_closed:
            raise StorageError("the engine is closed")
