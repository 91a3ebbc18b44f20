"""Cluster run: the ledger over the engine without a disk, one owner for each life of the process.

Rule: as `run`, with PUTs and statements that fail, are late or lose their answer; the engine
hides all of them. What a crash loses is what was not committed in the database.
Must not know: how the engine stores anything.
"""

from dataclasses import replace
from functools import partial
from random import Random

from kledger.ledger.cluster.faulty_database import DatabaseFault
from kledger.ledger.cluster.wal_plan import WalLimits
from kledger.ledger.engine.base import CommitGroup, TwoStepEngine
from kledger.ledger.engine.errors import SyncFailed
from tests.ledger.cluster.model_objects import ObjectFault
from tests.ledger.cluster.words import OBJECTS, ModelCluster, RestartingClusterEngine
from tests.simulation.engine import SimulatedEngine
from tests.simulation.life import Ending
from tests.simulation.run import Failure, Run

FAULT_RATE = 0.1
LATE_RATE = 0.05


class SimulatedClusterEngine(SimulatedEngine):
    """The engine of one owner; the disk only records what was committed."""

    cluster: ModelCluster

    @classmethod
    def over(cls, cluster: ModelCluster) -> "type[SimulatedClusterEngine]":
        """Return the class for one cluster."""
        return type("EngineOfCluster", (cls,), {"cluster": cluster})

    def write(self, group: CommitGroup, *, sync_follows: bool) -> None:
        self._pass_time()
        super().write(group, sync_follows=sync_follows)
        if not sync_follows:
            self._disk.sync()

    def stored_entries(self) -> dict[int, list[int]]:
        """Return for every ledger with data the ids of its entries; for checks."""
        log = self._owner.engine._log
        return {
            ledger: [
                entry_id
                for location in log.locations(ledger, 0, 1 << 40, 1 << 40)
                for entry_id in range(
                    location.block.first, location.block.first + location.block.entry_count
                )
            ]
            for ledger in log.ask(lambda index: index.ledger_ids())
        }

    @property
    def _owner(self) -> RestartingClusterEngine:
        assert isinstance(self._memory, RestartingClusterEngine)
        return self._memory

    def _opened(self) -> TwoStepEngine:
        """Take over from the owner of the life before."""
        self._pass_time()
        return RestartingClusterEngine(self.cluster)

    def _sync(self, operation: str) -> None:
        self._refuse_after_failure()
        try:
            self._faults.ask(operation)
        except SyncFailed as error:
            self.failure = f"a sync failed: {error}"
            if self._schedule.pick((True, False)):  # fenced before or after this commit
                self._commit()
            raise
        self._commit()

    def _commit(self) -> None:
        self._owner.sync()
        self._disk.sync()

    def _pass_time(self) -> None:
        bucket = self.cluster.bucket
        bucket.now_ms = max(bucket.now_ms, self._schedule.now_us // 1000)


class ClusterRun(Run):
    """One seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        random = self._cluster_random = Random(f"{seed} cluster")
        limits = random.choice((OBJECTS, WalLimits(), WalLimits(inline_group_bytes_max=200)))
        self.cluster = ModelCluster(
            limits=limits, cached=random.random() < 0.5, passes_time=random.random() < 0.5
        )
        self.cluster.object_fault = self._object_fault
        self.cluster.database_fault = self._database_fault

    def go(self) -> Failure | None:
        """Run all lives; return the failure, if there is one."""
        failure = super().go()
        if failure is None:
            return None
        return replace(failure, subject="--cluster ")

    def _new_engine(self) -> SimulatedEngine:
        make = partial(SimulatedClusterEngine.over(self.cluster), self._disk, self._faults)
        return make(
            self._schedule,
            checkpoint_groups=self._profile.checkpoint_groups,
            resident=self._profile.resident,
        )

    def _crash(self, ending: Ending) -> None:
        lost = self._disk.cut_power(0)
        self._write_line(f"{lost} groups are lost")
        self._watch.restart(self._disk.groups)

    def _object_fault(self, request: str) -> ObjectFault:
        if self._cluster_random.random() < LATE_RATE:
            self.cluster.run_late()
        if request != "put" or self._cluster_random.random() > FAULT_RATE:
            return ObjectFault.NONE
        fault: ObjectFault = self._cluster_random.choice([*ObjectFault])
        return fault

    def _database_fault(self, call: str) -> DatabaseFault:
        if call not in {"commit", "barrier"} or self._cluster_random.random() > FAULT_RATE:
            return DatabaseFault.NONE
        fault: DatabaseFault = self._cluster_random.choice([*DatabaseFault])
        return fault
