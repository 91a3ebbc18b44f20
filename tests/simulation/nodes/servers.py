"""Servers of a simulated cluster: the real `NodeClaims`, and the real engine for each of its nodes.

Rule: `NodeOwner` does with the engine what `ClusterOwner` and `OwnedCluster` do, with stepped
threads: one commits what clients send, one shows that the owner lives, one does the upkeep. No
fault of the storage ends a server: only the node ends that has met it.
Must not know: which faults there are, what clients check.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import NoReturn
from uuid import UUID

from kledger.ledger.cluster import SessionFenced
from kledger.ledger.cluster.cluster_engine import ClusterEngine
from kledger.ledger.cluster.commit_stream import CommitStream
from kledger.ledger.cluster.session_state import COMMIT_EVERY_MS
from kledger.ledger.cluster.wal_plan import WalLimits
from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.engine.errors import (
    EntryCorrupt,
    IndexCorrupt,
    LogCorrupt,
    StorageError,
    StorageWriteFailed,
)
from kledger.nodes.node_claims import NodeClaims, NodeSession, NodeUnavailable
from tests.ledger.cluster.database_words import broker
from tests.ledger.cluster.words import EAGER
from tests.simulation.invariants import InvariantBroken
from tests.simulation.nodes.node_history import NodeContent, NodeHistory
from tests.simulation.nodes.processes import (
    Process,
    ProcessClock,
    ProcessPool,
    SteppedLock,
    SteppedThread,
    report,
)
from tests.simulation.nodes.storage import Link, NodeStorage, ProcessObjects

HEARTBEAT_US = 250_000
UPKEEP_US = 1_000_000
END_STEP_MS = 100
READS_MAX = 20
READ_BYTES = 1 << 20
OFFSET = b"offset/%d"


class NotAcknowledged(Exception):
    """A request whose outcome is unknown."""


class RequestRefused(NotAcknowledged):
    """A request that has no effect, now and later."""


@dataclass(slots=True)
class NodeRequest:
    """What a client asks an owner to change.

    Attributes:
        ledger: of what.
        value: of a new entry; None: there is none.
        offset: to commit; 0: none.
        is_drop: the ledger is dropped.
        answer: the epoch, and the id of the entry, or 0.
    """

    ledger: int
    value: bytes | None = None
    offset: int = 0
    is_drop: bool = False
    answer: "asyncio.Future[tuple[int, int]]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class NodeOwner:
    """One session of a node."""

    def __init__(
        self,
        process: Process,
        session: NodeSession,
        storage: NodeStorage,
        history: NodeHistory,
        *,
        limits: WalLimits,
    ) -> None:
        self.process = process
        self.node = session.node
        self.engine: ClusterEngine | None = None
        self.crash: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.stream = CommitStream(
            session.database,
            session.owned.session,
            session.owned.acquired,
            acquired_at_ms=session.owned.acquired_at_ms,
            now_ms=process.boot_ms,
            wait_s=self._wait_s,
        )
        self._session = session
        self._storage = storage
        self._history = history
        self._limits = limits
        self._requests: deque[NodeRequest] = deque()
        self._committer: SteppedThread | None = None
        self._rounds: dict[str, SteppedThread] = {}
        self._is_refusing = self._is_ending = False

    def open(self) -> None:
        """Take over; in a thread."""
        try:
            self._open()
        except (IndexCorrupt, LogCorrupt) as error:
            self._broke(error)

    def _open(self) -> None:
        session = self._session
        incarnation = UUID(session.database.describe().incarnation)
        self.engine = engine = ClusterEngine(
            session.database,
            self.stream,
            ProcessObjects(self.process, self._storage),
            incarnation=incarnation,
            now_ms=self.process.boot_ms,
            limits=self._limits,
            garbage=EAGER,
            on_failed=lambda reason: report(self.process, self.crash, reason),
        )
        engine._log._committing = SteppedLock(self.process)  # type: ignore[assignment]
        self._repeat("heartbeat", HEARTBEAT_US, self._is_heartbeat_due, engine.upkeep.heartbeat)
        self._repeat("upkeep", UPKEEP_US, lambda: True, engine.upkeep.step)

    def check_content(self) -> None:
        """Compare everything with what clients know; in a thread."""
        ledgers = list(self._history.ledgers)
        entries = {each: self._read_all(each) for each in ledgers}
        offsets = {each: self.offset_of(each) for each in ledgers}
        seen = self._storage.tables.node(self.node).observe()
        if seen is None or seen.session != self.stream.session:
            self.stream.ended = SessionFenced("fenced while it was opening")
            raise StorageError(str(self.stream.ended))
        try:
            self._history.open(self.stream.epoch, NodeContent(entries, offsets))
        except InvariantBroken as error:
            self.process.schedule.interrupt(error)  # it would only end the server

    @property
    def is_fenced(self) -> bool:
        """Whether it has ended because its session was closed."""
        return isinstance(self.stream.ended, SessionFenced)

    @property
    def opened(self) -> ClusterEngine:
        """The engine, once it is open."""
        assert self.engine is not None, "not open"
        return self.engine

    def offset_of(self, ledger: int) -> int:
        """Return the committed offset of a ledger."""
        return int(self.opened.get(OFFSET % ledger) or b"0")

    def request(self, request: NodeRequest) -> None:
        """Take a request of a client."""
        if self._is_refusing:
            report(self.process, request.answer, None, RequestRefused())
            return
        self._requests.append(request)
        if self._committer is None or self._committer.has_ended:
            self._committer = SteppedThread(self.process, self._commit_all)

    def read(self, ledger: int, answer: "asyncio.Future[list[bytes]]") -> None:
        """Read all entries of a ledger for a client."""
        on_ended = partial(report, self.process, answer)
        SteppedThread(self.process, partial(self._read_all, ledger, tries=1), on_ended)

    async def stop(self, clock: ProcessClock) -> None:
        """Refuse requests, and finish those that are there while the database answers."""
        self._is_refusing = True
        while self._committer is not None and not self._committer.has_ended:
            if not self.opened.is_current():
                self.stream.stop()
            await clock.sleep(END_STEP_MS)

    def close(self) -> None:
        """End the threads and close the engine; in a thread."""
        self._is_refusing = self._is_ending = True
        if self.engine is None:
            return
        while any(not each.has_ended for each in self._rounds.values()):
            if not self.engine.is_current():
                self.stream.stop()
            self.process.sleep(END_STEP_MS * 1000)
        self.engine.close()

    def _wait_s(self, seconds: float) -> bool:
        self.process.sleep(seconds * 1e6)
        return self.stream._stopped.is_set()

    # The committer

    def _commit_all(self) -> None:
        """Commit groups of requests until there are none."""
        while self._requests:
            taken = [*self._requests]
            self._requests.clear()
            group, ids = self._group_of(taken)
            try:
                self.opened.commit(group, sync=True)
                self.opened.index(group)
            except StorageError as error:
                failed = (
                    RequestRefused if isinstance(error, StorageWriteFailed) else NotAcknowledged
                )
                for each in taken:
                    report(self.process, each.answer, None, failed(str(error)))
            else:
                for each, entry_id in zip(taken, ids, strict=True):
                    report(self.process, each.answer, (self.stream.epoch, entry_id))

    def _group_of(self, requests: list[NodeRequest]) -> tuple[CommitGroup, list[int]]:
        group, ends, ids = CommitGroup(), dict[int, int](), []
        for each in requests:
            entry_id = 0
            if each.value is not None:
                entry_id = ends.get(each.ledger, self.opened.last_entry(each.ledger)) + 1
                ends[each.ledger] = entry_id
                group.entries.append((each.ledger, entry_id, each.value))
            if each.offset:
                group.rows.append((OFFSET % each.ledger, b"%d" % each.offset))
            if each.is_drop:
                group.drops.append(each.ledger)
            ids.append(entry_id)
        return group, ids

    def _read_all(self, ledger: int, tries: int = READS_MAX) -> list[bytes]:
        """Read a ledger; faults of the store are no wrong answers."""
        engine, found = self.opened, list[bytes]()
        last = engine.last_entry(ledger)
        while len(found) <= last:
            try:
                found += map(bytes, engine.read(ledger, len(found), last, READ_BYTES))
            except EntryCorrupt as error:
                self._broke(error)
            except StorageError:
                tries -= 1
                if not tries or engine.failure is not None:
                    raise
                self.process.sleep(1_000_000)
        return found

    def _broke(self, error: StorageError) -> NoReturn:
        """End the run: nothing is ever damaged, so nothing may look as if it were."""
        self.process.schedule.interrupt(InvariantBroken(f"node {self.node}: {error}"))
        raise error

    # The rounds of the engine

    def _is_heartbeat_due(self) -> bool:
        return self.process.boot_ms() - self.stream.answered_at_ms >= COMMIT_EVERY_MS

    def _repeat(
        self, name: str, pause_us: int, is_due: Callable[[], bool], step: Callable[[], None]
    ) -> None:
        """Make a round every so often, as long as the engine is open."""

        def round_() -> None:
            running = self._rounds.get(name)
            if self._is_ending or self.opened.failure is not None:
                return
            if (running is None or running.has_ended) and is_due():
                self._rounds[name] = SteppedThread(self.process, step, self._round_ended)
            self.process.schedule.after(pause_us, partial(self.process.go_on, round_))

        round_()

    def _round_ended(self, _: None, error: Exception | None) -> None:
        if error is not None and not isinstance(error, StorageError):
            raise error


class SimulatedServer:
    """A process that owns nodes."""

    def __init__(
        self,
        cluster: "NodeCluster",
        server_id: int,
        *,
        clock_rate: float,
        boot_at_ms: int,
    ) -> None:
        cluster.started += 1
        self.server_id = server_id
        self.process = Process(cluster.schedule, clock_rate=clock_rate, boot_at_ms=boot_at_ms)
        self.link = Link(self.process, cluster.storage)
        self.is_draining = False
        self._cluster = cluster
        self._clock = ProcessClock(self.process)
        self.claims = NodeClaims(
            self.link,
            broker(server_id),
            UUID(int=cluster.started),
            serve=self._serve,
            clock=self._clock,
            boot_ms=self.process.boot_ms,
            make_pool=partial(ProcessPool, self.process),
        )
        self.task = asyncio.ensure_future(self.claims.run())

    @property
    def has_ended(self) -> bool:
        """Whether another process may be started in its place."""
        return self.process.is_killed or self.task.done()

    def kill(self) -> None:
        """End it as SIGKILL does."""
        self.process.kill()
        self.task.cancel()
        self._cluster.forget(self.process)

    async def drain(self) -> None:
        """End it as SIGTERM does."""
        self.is_draining = True
        draining = asyncio.ensure_future(self.claims.drain())
        await asyncio.wait({draining, self.task}, return_when=asyncio.FIRST_COMPLETED)
        draining.cancel()
        self.task.cancel()

    async def _serve(self, session: NodeSession) -> None:
        cluster = self._cluster
        history = cluster.histories[session.node]
        owner = NodeOwner(self.process, session, cluster.storage, history, limits=cluster.limits)
        cluster.owners[owner] = None
        try:
            await session.pool.run(owner.open)
            await session.pool.run(owner.check_content)
            cluster.trace(f"server {self.server_id} serves node {owner.node}")
            cluster.serving.append(owner)
            try:
                await owner.crash
            finally:
                await owner.stop(self._clock)
        except StorageError as error:
            if not owner.is_fenced:
                raise NodeUnavailable(str(error)) from error
        finally:
            if owner in cluster.serving:
                cluster.serving.remove(owner)
            if owner.engine is None:
                owner.stream.stop()
            await session.pool.run(owner.close)
            cluster.owners.pop(owner)
        if not owner.is_fenced:
            raise NodeUnavailable(f"node {owner.node}: {owner.stream.ended}")


class NodeCluster:
    """All servers of one run, and what is left of them."""

    def __init__(
        self,
        storage: NodeStorage,
        random: Random,
        *,
        limits: WalLimits,
        trace: Callable[[str], None],
    ) -> None:
        self.schedule = storage.schedule
        self.storage = storage
        self.limits = limits
        self.trace = trace
        self.started = 0
        self.owners: dict[NodeOwner, None] = {}
        """All that are not closed."""
        self.serving: list[NodeOwner] = []
        """Owners that take requests, also those that were fenced and do not know it."""
        self.histories = {node: NodeHistory(node) for node in range(1, storage.nodes + 1)}
        self.servers: dict[int, SimulatedServer] = {}
        self._random = random

    def start(self, server_id: int) -> None:
        """Start a server."""
        self.servers[server_id] = SimulatedServer(
            self,
            server_id,
            clock_rate=self._random.uniform(0.95, 1.05),
            boot_at_ms=self._random.randrange(1_000_000),
        )

    def forget(self, process: Process) -> None:
        """Forget the owners of a process that was killed."""
        for each in [each for each in self.owners if each.process is process]:
            del self.owners[each]
            if each in self.serving:
                self.serving.remove(each)
            if each.engine is not None:
                each.engine._rows.close()
