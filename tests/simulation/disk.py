"""Disk: the data of a store that survives the end of its process.

Rule: groups in the order in which they were written; a sync covers all that was written before it.
A power cut loses some of the last unsynced groups, or none; a torn group is lost whole (the engine
on disk cuts it off, which its own tests cover).
Must not know: the content of groups.
"""

from collections.abc import Callable

from kledger.ledger.engine.base import CommitGroup
from tests.simulation.invariants import check

Place = tuple[int, int]


class Disk:
    """The log of one store over all restarts."""

    def __init__(self) -> None:
        self.groups: list[CommitGroup] = []
        self.synced_count = 0
        self.watch: Callable[[CommitGroup], None] = lambda group: None
        """Sees every group that is written."""
        self._written_in: dict[Place, int] = {}

    def write(self, group: CommitGroup) -> None:
        """Write a group into the page cache."""
        kept = CommitGroup(rows=[*group.rows], drops=[*group.drops], moves=[*group.moves])
        kept.entries += [(ledger, entry, bytes(data)) for ledger, entry, data in group.entries]
        moved = {(move.ledger_id, move.entry_id) for move in group.moves}
        for ledger_id, entry_id, _ in kept.entries:
            if (ledger_id, entry_id) not in moved:
                known = self._written_in.setdefault((ledger_id, entry_id), len(self.groups))
                check(known == len(self.groups), f"{ledger_id}:{entry_id} is written twice")
        self.groups.append(kept)
        self.watch(kept)

    def sync(self) -> None:
        """Sync everything written so far."""
        self.synced_count = len(self.groups)

    def cut_power(self, survivors: int) -> int:
        """Drop unsynced groups, except for the first few; return how many are lost."""
        end = min(self.synced_count + survivors, len(self.groups))
        lost = len(self.groups) - end
        del self.groups[end:]
        self._written_in = {position: at for position, at in self._written_in.items() if at < end}
        return lost

    def is_safe(self, ledger_id: int, entry_id: int, *, sync: bool) -> bool:
        """Return whether an entry survives a power cut, or without `sync` a killed process."""
        at = self._written_in.get((ledger_id, entry_id))
        return at is not None and (not sync or at < self.synced_count)
