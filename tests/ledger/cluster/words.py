"""Words of the tests of clusters: a cluster of models, its owners, and what its bucket has."""

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from kledger.ledger.cluster.cluster_engine import ClusterEngine
from kledger.ledger.cluster.commit_stream import CommitStream
from kledger.ledger.cluster.database import SessionBroker
from kledger.ledger.cluster.faulty_database import DatabaseFault, FaultyDatabase
from kledger.ledger.cluster.memory_database import MemoryDatabase
from kledger.ledger.cluster.wal_cache import WalCache
from kledger.ledger.cluster.wal_gc_plan import GarbageLimits
from kledger.ledger.cluster.wal_objects import WalObjects
from kledger.ledger.cluster.wal_plan import WalLimits
from kledger.ledger.engine.base import Buffer, CommitGroup
from kledger.runtime.entropy import SeededEntropy
from tests.ledger.cluster.model_objects import ModelBucket, ModelObjects, ObjectFault

OBJECTS = WalLimits(inline_group_bytes_max=0)
"""Every group with entries is an object."""
EAGER = GarbageLimits(
    inline_age_ms=0, dead_share_max=0.2, dead_bytes_min=0, settle_ms=0, blocks_max=10
)
"""Everything is written again as soon as it is worth it."""


@dataclass
class ModelCluster:
    """A database and a bucket, and one owner after the other.

    `object_fault` and `database_fault` are asked by every owner before each request.
    """

    limits: WalLimits = field(default_factory=WalLimits)
    garbage: GarbageLimits = EAGER
    cached: bool = True
    object_fault: Callable[[str], ObjectFault] = lambda _request: ObjectFault.NONE
    database_fault: Callable[[str], DatabaseFault] = lambda _call: DatabaseFault.NONE
    passes_time: bool = True
    made_objects: WalObjects | None = None
    """Used instead of the model of a store."""

    def __post_init__(self) -> None:
        self.bucket = ModelBucket()
        self.tables = MemoryDatabase(now_ms=lambda: self.bucket.now_ms, entropy=SeededEntropy(1))
        self.tables.create(cluster_id="test", store="memory://")
        self.incarnation = UUID(self.tables.describe().incarnation)
        self.databases: list[FaultyDatabase] = []
        self.failures: list[str] = []

    def own(self) -> ClusterEngine:
        """Fence the present owner, and return the engine of the next one."""
        seen = self.tables.observe()
        if seen is not None:
            self.tables.fence(seen.session, seen.seq)
        session = self.tables.begin_session(SessionBroker(1))
        acquired = self.tables.acquire(session)
        assert acquired is not None, "there is another owner"
        database = FaultyDatabase(self.tables, self._choose_database_fault)
        self.databases.append(database)
        stream = CommitStream(
            database,
            session,
            acquired,
            acquired_at_ms=self.bucket.now_ms,
            now_ms=self._now_ms,
            wait_s=lambda seconds: self._pause(stream, seconds),
        )
        self.objects = ModelObjects(
            self.bucket, self._choose_object_fault, passes_time=self.passes_time
        )
        return ClusterEngine(
            database,
            stream,
            self.made_objects or self.objects,
            incarnation=self.incarnation,
            now_ms=self._now_ms,
            limits=self.limits,
            garbage=self.garbage,
            cache=None if self.cached else WalCache(own_bytes_max=0, read_bytes_max=0),
            on_failed=self.failures.append,
        )

    def run_late(self) -> None:
        """Let all requests and statements arrive that are under way."""
        self.bucket.run_late()
        for database in self.databases:
            while database.late:
                database.run_late()

    def referenced(self) -> set[str]:
        """Return the objects that groups name."""
        groups = [each for page in self.tables.groups() for each in page]
        return {each.wal.object_key for each in groups if each.wal.object_key is not None}

    def _choose_object_fault(self, request: str) -> ObjectFault:
        return self.object_fault(request)  # asked each time: a test may set another one

    def _choose_database_fault(self, call: str) -> DatabaseFault:
        return self.database_fault(call)

    def _now_ms(self) -> int:
        return self.bucket.now_ms

    def _pause(self, stream: CommitStream, seconds: float) -> bool:
        self.bucket.now_ms += int(seconds * 1000)
        return stream._stopped.is_set()


class RestartingClusterEngine:
    """A `TwoStepEngine`: the owner of a model cluster, which a power cut replaces by the next one.

    A group that is synced is committed then; one that is not is committed at once, which is more
    than its caller asks for.
    """

    needs_thread = True
    is_behind = False

    def __init__(self, cluster: ModelCluster | None = None) -> None:
        self.cluster = cluster or ModelCluster(limits=OBJECTS, passes_time=False)
        self.engine = self.cluster.own()
        self._written: list[CommitGroup] = []

    def write(self, group: CommitGroup, *, sync_follows: bool) -> None:
        if sync_follows:
            self._written.append(group)
        else:
            self.engine.commit(group, sync=False)

    def sync(self) -> None:
        for group in self._written:
            self.engine.commit(group, sync=True)
        self._written.clear()

    def drop_unsynced(self) -> None:
        self._written.clear()
        self.engine = self.cluster.own()

    def commit_delay_ms(self, size: int) -> int:
        return 0  # the time of the models passes in the waits of a PUT, not beside the store

    def commit(self, group: CommitGroup, *, sync: bool) -> None:
        self.engine.commit(group, sync=sync)

    def index(self, group: CommitGroup) -> None:
        self.engine.index(group)
        self.engine.upkeep.step()

    def read(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[Buffer]:
        return self.engine.read(ledger_id, first_entry, last_entry, bytes_max)

    def read_resident(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[Buffer] | None:
        return self.engine.read_resident(ledger_id, first_entry, last_entry, bytes_max)

    def last_entry(self, ledger_id: int) -> int:
        return self.engine.last_entry(ledger_id)

    def get(self, key: bytes) -> bytes | None:
        return self.engine.get(key)

    def scan(
        self, start: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        return self.engine.scan(start, end, reverse=reverse, limit=limit)

    def checkpoint_due(self) -> bool:
        return self.engine.checkpoint_due()

    def checkpoint(self) -> None:
        self.engine.checkpoint()

    def next_moves(self, *, dead_share_max: float, bytes_max: int) -> CommitGroup | None:
        return self.engine.next_moves(dead_share_max=dead_share_max, bytes_max=bytes_max)

    def release_waiting(self) -> None:
        self.engine.release_waiting()

    def close(self) -> None:
        self.engine.close()
