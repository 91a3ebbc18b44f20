"""Disk: what is left of a store when its process ends.

Rule: groups in the order in which they were written; a sync covers all that was written before it.
What a power cut takes is a run of groups at the end that no sync covered, down to none: the torn
rest of a group is no group (the engine on disk cuts it off, and has tests of its own for that).
Must not know: what the groups hold.
"""

from collections.abc import Callable

from kledger.ledger.engine.base import CommitGroup
from tests.simulation.invariants import check

Place = tuple[int, int]


class Disk:
    """The log of one store over all its lives."""

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
        """Make durable what was written."""
        self.synced_count = len(self.groups)

    def cut_power(self, survivors: int) -> int:
        """Lose what is not synced, up to some groups that made it; return how many are lost."""
        end = min(self.synced_count + survivors, len(self.groups))
        lost = len(self.groups) - end
        del self.groups[end:]
        self._written_in = {place: at for place, at in self._written_in.items() if at < end}
        return lost

    def is_safe(self, ledger_id: int, entry_id: int, *, sync: bool) -> bool:
        """Tell whether an entry survives what it must: a power cut, or a killed process."""
        at = self._written_in.get((ledger_id, entry_id))
        return at is not None and (not sync or at < self.synced_count)
