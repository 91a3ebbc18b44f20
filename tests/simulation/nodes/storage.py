"""Storage of a simulated cluster of nodes: database and object store, as one process has them.

Rule: the models of the tests of the engine, whose requests take time here, in both directions: what
was sent takes effect at one moment, and is answered at a later one. A fault is drawn for each
request; what is late comes whatever became of the process that has sent it.
Must not know: what is stored, why a process asks.
"""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from kledger.ledger.cluster import ClusterDatabase, NodesDatabase, NodesObservation, SessionBroker
from kledger.ledger.cluster.database import (
    DatabaseUnavailable,
    OwnerObservation,
    UnknownOutcome,
)
from kledger.ledger.cluster.faulty_database import DatabaseFault, FaultyDatabase
from kledger.ledger.cluster.memory_database import DatabaseSnapshot, MemoryDatabase
from kledger.ledger.cluster.wal_objects import ObjectStoreFailed
from kledger.ledger.engine.base import Buffer
from kledger.runtime.entropy import SeededEntropy
from tests.ledger.cluster.model_objects import SLOW_MS, ModelBucket, ObjectFault
from tests.simulation.nodes.processes import Process
from tests.simulation.schedule import Schedule

Result = TypeVar("Result")

LATE_MAX_MS = 15_000


@dataclass
class NodeStorage:
    """What all servers share, and how often requests to it fail.

    Attributes:
        is_away: the database answers nobody.
        database_faults: the share of statements that fail.
        object_faults: the share of requests to the object store that fail.
        replicated: what the standby of the database has, while that gets nothing: until then, what
            changes is visible, as if waits for the standby were cancelled, and has no answer.
    """

    schedule: Schedule
    random: Random
    nodes: int
    is_away: bool = False
    database_faults: float = 0.0
    object_faults: float = 0.0
    replicated: DatabaseSnapshot | None = None
    bucket: ModelBucket = field(default_factory=ModelBucket)
    tables: MemoryDatabase = field(init=False)

    def __post_init__(self) -> None:
        self.tables = MemoryDatabase(now_ms=self.now_ms, entropy=SeededEntropy(1))
        self.tables.create(cluster_id="test", store="memory://", nodes=self.nodes)

    def now_ms(self) -> int:
        """Return the time of the database and of the object store."""
        return self.schedule.now_us // 1000

    def lose_standby(self) -> None:
        """Let the standby get nothing from now on."""
        self.replicated = self.replicated or self.tables.snapshot()

    def fail_over(self) -> None:
        """Let the standby be the database."""
        if self.replicated is not None:
            self.tables.restore(self.replicated)
            self.replicated = None

    def is_answered(self, result: object) -> bool:
        """Whether a statement has an answer: what has changed something waits for the standby."""
        return self.replicated is None or result is False

    def late_us(self) -> int:
        """Draw how long something is under way whose connection has died."""
        return int(self.random.random() * self.random.choice((100, LATE_MAX_MS)) * 1000)

    def referenced(self) -> set[str]:
        """Return the objects that the groups of all nodes name."""
        return {
            each.wal.object_key
            for node in range(1, self.nodes + 1)
            for page in self.tables.node(node).groups()
            for each in page
            if each.wal.object_key is not None
        }


class ProcessDatabase(FaultyDatabase):
    """The database of one node, for one process."""

    def __init__(
        self, process: Process, storage: NodeStorage, database: ClusterDatabase, link: "Link"
    ) -> None:
        super().__init__(database, link.choose)
        self._link = link

    def observe(self) -> OwnerObservation | None:
        return self._link.answered(super().observe)

    def _change(self, name: str, statement: Callable[[], Result]) -> Result:
        return self._link.answered(lambda: self._sent(name, statement))

    def _sent(self, name: str, statement: Callable[[], Result]) -> Result:
        try:
            return super()._change(name, partial(self._link.executed, statement))
        finally:
            while self.late:
                self._link.send_late(self.late.pop(0))


class Link:
    """The way of one process to the database; a `NodesDatabase`, and a `NodeDatabases`."""

    def __init__(self, process: Process, storage: NodeStorage) -> None:
        self.is_away = False
        self._process = process
        self._storage = storage

    @property
    def nodes(self) -> NodesDatabase:
        """What all nodes have in common."""
        return self

    def node(self, node: int) -> ClusterDatabase:
        """Return the database of a node."""
        return ProcessDatabase(self._process, self._storage, self._storage.tables.node(node), self)

    def choose(self, name: str) -> DatabaseFault:
        """Let a request travel; return what happens to it."""
        del name
        process, storage = self._process, self._storage
        process.sleep(process.work_us())
        if self.is_away or storage.is_away:
            return DatabaseFault.AWAY
        if storage.random.random() >= storage.database_faults:
            return DatabaseFault.NONE
        fault: DatabaseFault = storage.random.choice([*DatabaseFault])
        return fault

    def executed(self, statement: Callable[[], Result]) -> Result:
        """Execute a statement that may change something."""
        result = statement()
        if not self._storage.is_answered(result):
            raise UnknownOutcome("the standby of the database does not answer")
        return result

    def answered(self, request: Callable[[], Result]) -> Result:
        """Make a request, and let its answer travel."""
        result = request()
        self._process.sleep(self._process.work_us())
        return result

    def send_late(self, statement: Callable[[], None]) -> None:
        """Let a statement run later, whatever happens to its process."""
        self._storage.schedule.after(self._storage.late_us(), statement)

    # The methods of NodesDatabase

    def observe_nodes(self) -> NodesObservation:
        self._check("observe_nodes")
        return self.answered(self._storage.tables.observe_nodes)

    def announce_server(
        self, server: SessionBroker, incarnation: UUID, *, is_draining: bool
    ) -> bool:
        self._check("announce_server")
        announce = self._storage.tables.announce_server
        return self.answered(
            lambda: self.executed(lambda: announce(server, incarnation, is_draining=is_draining))
        )

    def end_server(self, server_id: int, incarnation: UUID) -> None:
        self._check("end_server")
        self.executed(lambda: self._storage.tables.end_server(server_id, incarnation))

    def prefer_server(self, node: int, server_id: int | None) -> None:
        self._storage.tables.prefer_server(node, server_id)

    def close(self) -> None:
        pass

    def _check(self, name: str) -> None:
        if self.choose(name) is not DatabaseFault.NONE:
            raise DatabaseUnavailable("the connection to the database was lost")


class _ObjectRequest(Future[Any]):
    """A request to the object store; waiting for it lets time pass."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self._process.wait(lambda wake: self.add_done_callback(lambda _: wake()))
        return super().result(timeout)


class ProcessObjects:
    """`WalObjects` of one process."""

    def __init__(self, process: Process, storage: NodeStorage) -> None:
        self._process = process
        self._storage = storage

    def begin_put(self, key: str, data: Buffer) -> "Future[None]":
        storage, taken = self._storage, bytes(data)
        request, fault = self._begin()
        store = partial(storage.bucket.store, key, taken)
        match fault:
            case ObjectFault.FAILED:
                self._later(request, fault, lambda: None)
            case ObjectFault.LATE:
                storage.schedule.after(storage.late_us(), store)
                self._later(request, fault, lambda: None)
            case ObjectFault.HIDDEN:
                storage.bucket.hide(key, storage.now_ms())
                self._later(request, fault, store)
            case _:
                self._later(request, fault, store)
        return request

    def begin_get(self, key: str, start: int, length: int) -> "Future[Buffer]":
        request, fault = self._begin()

        def read() -> Buffer:
            storage = self._storage
            return storage.bucket.find(key, start, length, fault, storage.now_ms())

        self._later(request, fault, read)
        return request

    def delete(self, key: str) -> None:
        request, fault = self._begin()
        objects = self._storage.bucket.objects
        self._later(request, fault, lambda: objects.pop(key, None))
        request.result()

    def list(self, prefix: str) -> Sequence[str]:
        request, fault = self._begin()
        storage = self._storage
        self._later(request, fault, lambda: storage.bucket.keys(prefix, storage.now_ms()))
        keys: Sequence[str] = request.result()
        return keys

    def wait(self, requests: "Collection[Future[None]]", ms: int) -> None:
        """Let time pass until a request ends."""
        if any(each.done() for each in requests):
            return

        def arm(wake: Callable[[], None]) -> None:
            self._process.schedule.after(ms * 1000, wake)
            for each in requests:
                each.add_done_callback(lambda _: wake())

        self._process.wait(arm)

    def close(self) -> None:
        """Do nothing."""

    def _begin(self) -> tuple[_ObjectRequest, ObjectFault]:
        if self._process.is_killed:
            self._process.sleep(0)
        storage, fault = self._storage, ObjectFault.NONE
        if storage.random.random() < storage.object_faults:
            fault = storage.random.choice([*ObjectFault])
        return _ObjectRequest(self._process), fault

    def _later(
        self, request: _ObjectRequest, fault: ObjectFault, effect: Callable[[], Any]
    ) -> None:
        """Let a request take effect, and then be answered."""
        process, schedule = self._process, self._storage.schedule
        slow_us = SLOW_MS * 1000 if fault is ObjectFault.SLOW else 0

        def arrive() -> None:
            try:
                result, error = effect(), None
            except ObjectStoreFailed as failed:
                result, error = None, failed
            schedule.after(process.work_us(), partial(answer, result, error))

        def answer(result: Any, error: Exception | None) -> None:
            if not fault.is_answered:
                error = ObjectStoreFailed(fault.name)
            if error is None:
                request.set_result(result)
            else:
                request.set_exception(error)

        schedule.after(process.work_us() + slow_us, arrive)
