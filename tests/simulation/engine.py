"""Simulated engine: an engine over a simulated disk, for one life of a process.

Rule: behaves as the engine on disk: opening replays the log and syncs it, a failed sync ends all
writing. A commit has separate steps, so that time passes between them.
Must not know: the store on top.
"""

from kledger.ledger.engine.base import Buffer, CommitGroup, Move, TwoStepEngine
from kledger.ledger.engine.errors import StorageError, SyncFailed
from kledger.ledger.engine.memory import MemoryEngine
from tests.simulation.disk import Disk
from tests.simulation.faults import Faults
from tests.simulation.schedule import Schedule


class SimulatedEngine:
    """A `TwoStepEngine`. A new step of the interface is a method here, and a row in `faults`."""

    needs_thread = False
    is_behind = False

    def __init__(
        self,
        disk: Disk,
        faults: Faults,
        schedule: Schedule,
        *,
        checkpoint_groups: int,
        resident: float,
    ) -> None:
        """Open the store on a disk.

        Args:
            disk: with the data of earlier processes.
            faults: the faults from now on.
            schedule: of the threads.
            checkpoint_groups: number of groups after which a checkpoint is due.
            resident: the probability that the page cache has the data of a read.
        """
        self.failure: str | None = None
        self._disk = disk
        self._faults = faults
        self._schedule = schedule
        self._checkpoint_groups = checkpoint_groups
        self._resident = resident
        self._unchecked_groups = 0
        self._drops = 0
        self._is_committing = False
        self._memory = self._opened()
        disk.sync()

    def _opened(self) -> TwoStepEngine:
        """Return an engine with everything on the disk."""
        memory = MemoryEngine()
        for group in self._disk.groups:
            memory.commit(group, sync=True)
            memory.index(group)
        return memory

    # Changing

    def commit_delay_ms(self, size: int) -> int:
        """Let one group of four wait for more."""
        return self._schedule.pick((0, 0, 0, 3))

    def commit(self, group: CommitGroup, *, sync: bool) -> None:
        """Do both steps at once, on the loop, which takes time as well."""
        self.write(group, sync_follows=sync)
        self._schedule.now_us += self._schedule.work_us()
        if sync:
            self.sync()

    def write(self, group: CommitGroup, *, sync_follows: bool) -> None:
        assert not self._is_committing, "a group was written before the previous one was synced"
        self._refuse_after_failure()
        try:
            self._faults.ask("write")
        except OSError:
            self.failure = "a write failed with an unknown outcome"
            raise
        self._disk.write(group)
        self._memory.write(group, sync_follows=sync_follows)
        self._is_committing = sync_follows

    def sync(self) -> None:
        self._is_committing = False
        self._sync("sync")

    def index(self, group: CommitGroup) -> None:
        try:
            self._faults.ask("index")
        except StorageError:
            self.failure = "a group could not be indexed"
            raise
        self._memory.index(group)
        self._drops += len(group.drops)
        self._unchecked_groups += 1

    def checkpoint_due(self) -> bool:
        return self._unchecked_groups >= self._checkpoint_groups

    def checkpoint(self) -> None:
        self._unchecked_groups = 0
        self._sync("checkpoint")

    # Looking

    def read(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[Buffer]:
        self._faults.ask("read")
        return self._memory.read(ledger_id, first_entry, last_entry, bytes_max)

    def read_resident(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[Buffer] | None:
        """A random part of it is in the page cache."""
        if self._schedule.tie() >= self._resident:
            return None
        return self._memory.read_resident(ledger_id, first_entry, last_entry, bytes_max)

    def last_entry(self, ledger_id: int) -> int:
        self._maybe_fail_look()
        return self._memory.last_entry(ledger_id)

    def get(self, key: bytes) -> bytes | None:
        self._maybe_fail_look()
        return self._memory.get(key)

    def scan(
        self, start: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        self._maybe_fail_look()
        return self._memory.scan(start, end, reverse=reverse, limit=limit)

    def next_moves(self, *, dead_share_max: float, bytes_max: int) -> CommitGroup | None:
        """Moves one ledger for every dropped one, so that moves interfere with other work."""
        self._faults.ask("lookup")
        if not self._drops:
            return None
        self._drops -= 1
        ledger_id, ids = self._schedule.pick([*self.stored_entries().items(), (-1, [])])
        group = CommitGroup(moves=[Move(ledger_id, entry_id, 0, 0) for entry_id in ids])
        for move in group.moves:
            data = self._memory.read(ledger_id, move.entry_id, move.entry_id, 1)
            group.entries.append((ledger_id, move.entry_id, data[0]))
        return group

    def stored_entries(self) -> dict[int, list[int]]:
        """Return for every ledger with data the ids of its entries; for checks."""
        assert isinstance(self._memory, MemoryEngine)
        return {ledger: sorted(entries) for ledger, entries in self._memory._ledgers.items()}

    # Ending

    def release_waiting(self) -> None:
        """Do nothing: simulated time needs no waiting."""

    def drop_unsynced(self) -> None:
        raise NotImplementedError("a power cut is simulated by the disk, and ends this engine")

    def close(self) -> None:
        self._memory.close()

    def _sync(self, operation: str) -> None:
        self._refuse_after_failure()
        try:
            self._faults.ask(operation)
        except SyncFailed as error:
            self.failure = f"a sync failed: {error}"
            raise
        self._disk.sync()

    def _refuse_after_failure(self) -> None:
        if self.failure is not None:
            raise SyncFailed(self.failure)

    def _maybe_fail_look(self) -> None:
        """Lookups on the loop are those of the simulation itself."""
        if self._schedule.in_thread:
            self._faults.ask("lookup")
