"""NodeClaims: acquires and releases the nodes of one server, as `plan_nodes` decides.

Rule: over one connection a server announces itself and polls the state of all nodes and servers. It
acquires a node by opening a session of that node, and hands one over by stopping its broker and
then closing the session. The database alone decides which session owns a node, so acting on an old
state only costs time. Every server fences owners that are silent, as a standby does. If another
server closes a node's session, or what a node needs is unavailable, only that node ends, and is
claimed again; any other error of a node ends the server.
Must not know: what serving a node means, command lines, signals.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Final, NamedTuple, NoReturn, Protocol, TypeAlias
from uuid import UUID

from kledger.ledger.cluster import (
    POLL_EVERY_MS,
    ClusterDatabase,
    DatabaseError,
    DatabaseOutage,
    DatabaseUnavailable,
    NodesDatabase,
    NodesObservation,
    OwnedSession,
    OwnerObservation,
    SessionBroker,
    Standby,
    UnknownOutcome,
)
from kledger.nodes.node_plan import plan_nodes
from kledger.nodes.owner_watches import LostOwner, OwnerWatches
from kledger.runtime.blocking import BlockingRunner
from kledger.runtime.clock import Clock
from kledger.runtime.signal import Signal
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers

logger = logging.getLogger(__name__)

ANNOUNCE_EVERY_MS: Final = 1_000
REFUSED_MAX_MS: Final = 10_000
"""How long another process may have the id of a server that starts: after a crash it is itself."""
HAND_OVER_MAX_MS: Final = 10_000
"""How long a server waits for another one to own what it has handed over, before the next node."""
DRAIN_SILENT_MS: Final = 4_000
"""Without an answer of the database a server that drains ends all its nodes at once."""
CLAIM_AGAIN_MS: Final = (1_000, 2_000, 4_000, 8_000, 15_000, 30_000)
"""After the first, second ... failure of a node in a row; the last one repeats."""
SERVED_LONG_MS: Final = 60_000
"""A node that fails so long after it was claimed has its first failure."""


class ServerIdTaken(Exception):
    """Another process has the id of this server."""


class NodeUnavailable(Exception):
    """A node cannot be served now, and may be later: something outside of this process failed."""


class NodeSession(NamedTuple):
    """A node that this server has begun to own.

    Attributes:
        node: from 1.
        database: of the node alone.
        owned: its session.
        pool: for what blocks.
    """

    node: int
    database: ClusterDatabase
    owned: OwnedSession
    pool: BlockingRunner


class NodeDatabases(Protocol):
    """What a server asks of the database of its cluster."""

    @property
    def nodes(self) -> NodesDatabase:
        """What all nodes have in common."""
        ...

    def node(self, node: int) -> ClusterDatabase:
        """Return the database of a node, which the caller closes; it connects when it is used."""
        ...


ServeNode: TypeAlias = Callable[[NodeSession], Awaitable[None]]
"""Serves a node until its session is fenced; when it is cancelled, it stops in order.

It raises NodeUnavailable, DatabaseUnavailable or UnknownOutcome if only this node cannot be served.
"""


class _HandedOver(NamedTuple):
    node: int
    at_ms: int


class _Failed(NamedTuple):
    """A node that could not be served.

    Attributes:
        failures: how many in a row.
        until_ms: it is not claimed before.
    """

    failures: int
    until_ms: int


class NodeClaims:
    """The nodes of one server; `run` it once."""

    def __init__(
        self,
        databases: NodeDatabases,
        server: SessionBroker,
        incarnation: UUID,
        *,
        serve: ServeNode,
        clock: Clock,
        boot_ms: Callable[[], int],
        make_pool: Callable[[], BlockingRunner],
        silent: MutableMapping[int, int] | None = None,
    ) -> None:
        """Prepare; nothing is asked yet.

        Args:
            databases: of the cluster.
            server: this process.
            incarnation: of this process.
            serve: called for each node that the server owns.
            clock: for intervals.
            boot_ms: time that goes on while the machine sleeps, for owners.
            make_pool: returns what makes calls, one after the other.
            silent: see `OwnerWatches`.
        """
        self._databases = databases
        self._server = server
        self._incarnation = incarnation
        self._serve = serve
        self._clock = clock
        self._boot_ms = boot_ms
        self._make_pool = make_pool
        self._pool = make_pool()
        self._supervisor = Supervisor()
        self._timers = Timers(clock, self._supervisor)
        self._changed = Signal()
        self._watches = OwnerWatches({} if silent is None else silent)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._failed: dict[int, _Failed] = {}
        self._fencing: set[int] = set()
        self._handed_over: _HandedOver | None = None
        self._failure: BaseException | None = None
        self._announced_at_ms: int | None = None
        self._begun_at_ms = 0
        self._answered_at_ms = 0
        self._has_takers = False
        self._is_accepted = False
        self._is_draining = False
        self._outage = DatabaseOutage()

    @property
    def nodes(self) -> Collection[int]:
        """The nodes that it serves, claims or is handing over."""
        return self._tasks.keys()

    async def run(self) -> NoReturn:
        """Own what the plan says, for ever; then end all that is owned, at the same time.

        Raises:
            ServerIdTaken: another process has the id of this one.
            DatabaseUnusable: there is no such cluster.
            Exception: what has ended a node, other than that its session was closed, or that it
                was unavailable.
        """
        self._begun_at_ms = self._answered_at_ms = self._clock.monotonic_ms()
        try:
            while True:
                version = self._changed.version
                await self._poll_and_act()
                if self._failure is not None:
                    raise self._failure
                pause_ms = self._watches.poll_pause_ms(self._clock.monotonic_ms())
                timer = self._timers.call_after(pause_ms, self._changed.notify)
                await self._changed.wait_beyond(version)
                timer.cancel()
        finally:
            await self._end()

    async def drain(self) -> None:
        """Hand over all nodes, one after the other.

        It returns when none is left, when there is no other server, or when the database does not
        answer; the caller then ends `run`.
        """
        self._is_draining = True
        self._announced_at_ms = None
        while self._tasks and self._has_takers and not self._is_silent():
            version = self._changed.version
            timer = self._timers.call_after(POLL_EVERY_MS, self._changed.notify)
            await self._changed.wait_beyond(version)
            timer.cancel()

    def _is_silent(self) -> bool:
        return self._clock.monotonic_ms() - self._answered_at_ms >= DRAIN_SILENT_MS

    async def _end(self) -> None:
        """End all nodes, and let others see that this server has ended."""
        await self._supervisor.close()
        try:
            if self._is_accepted:
                end = self._databases.nodes.end_server
                await self._pool.run(end, self._server.broker_id, self._incarnation)
        except DatabaseError as error:
            logger.warning("the server did not sign off: %s", error)
        finally:
            self._databases.nodes.close()
            self._pool.close()

    # Polls

    async def _poll_and_act(self) -> None:
        """Poll once, and begin the actions that follow from the state."""
        asked_at_ms = self._clock.monotonic_ms()
        try:
            if not await self._announce(asked_at_ms):
                return
            observed = await self._pool.run(self._databases.nodes.observe_nodes)
        except (DatabaseUnavailable, UnknownOutcome) as error:
            self._watches.missed()
            self._outage.failed(error)
            return
        self._answered_at_ms = self._clock.monotonic_ms()
        self._outage.answered()
        lost = self._watches.observed(
            observed, self._tasks, asked_at_ms=asked_at_ms, answered_at_ms=self._answered_at_ms
        )
        for each in lost:
            self._begin_fencing(each)
        self._act(observed)

    async def _announce(self, now_ms: int) -> bool:
        """Announce this server now and then; return whether others see it.

        Raises:
            ServerIdTaken: they see another process.
        """
        announced_at_ms = self._announced_at_ms
        if announced_at_ms is not None and now_ms - announced_at_ms < ANNOUNCE_EVERY_MS:
            return self._is_accepted
        was_draining = self._is_draining

        def announce() -> bool:
            return self._databases.nodes.announce_server(
                self._server, self._incarnation, is_draining=was_draining
            )

        is_seen = await self._pool.run(announce)
        self._announced_at_ms = now_ms if was_draining == self._is_draining else None
        if not is_seen and (self._is_accepted or now_ms - self._begun_at_ms >= REFUSED_MAX_MS):
            self._is_accepted = False
            raise ServerIdTaken(f"another process is server {self._server.broker_id}")
        self._is_accepted = is_seen
        return is_seen

    def _begin_fencing(self, lost: LostOwner) -> None:
        if lost.node not in self._fencing:
            self._fencing.add(lost.node)
            self._supervisor.spawn(self._fence(*lost), f"fence the owner of node {lost.node}")

    async def _fence(self, node: int, owner: OwnerObservation) -> None:
        database, pool = self._databases.node(node), self._make_pool()
        try:
            if await pool.run(database.fence, owner.session, owner.seq):
                logger.warning(
                    "node %s: session %s did not commit for too long after commit %s and is closed",
                    node,
                    *owner,
                )
                self._changed.notify()
        except (DatabaseUnavailable, UnknownOutcome) as error:
            self._watches.forget(node)
            self._outage.failed(error)
        finally:
            self._fencing.discard(node)
            database.close()
            pool.close()

    # Actions

    def _act(self, observed: NodesObservation) -> None:
        owners = {each.node: each.server_id for each in observed.nodes}
        takers = {
            each.server.broker_id
            for each in observed.servers
            if each.is_live and not each.is_draining
        }
        server_id = self._server.broker_id
        takers.discard(server_id)
        self._has_takers = bool(takers)
        if not self._is_draining:
            takers.add(server_id)
        preferred = {
            each.node: each.preferred for each in observed.nodes if each.preferred is not None
        }
        known = {each.server.broker_id for each in observed.servers}
        plan = plan_nodes(server_id, owners, takers, preferred, known)
        now_ms = self._clock.monotonic_ms()
        for node in plan.claims:
            failed = self._failed.get(node)
            if node not in self._tasks and (failed is None or now_ms >= failed.until_ms):
                self._tasks[node] = self._supervisor.spawn(self._own(node), f"node {node}")
        if self._handed_over is not None:
            node, at_ms = self._handed_over
            is_done = node not in self._tasks and owners[node] is not None
            if is_done or now_ms - at_ms >= HAND_OVER_MAX_MS:
                self._handed_over = None
        # A node may be owned by an earlier process of this server: there is nothing to end.
        may_hand_over = self._handed_over is None and self._watches.do_others_hurry(now_ms)
        if may_hand_over and plan.hand_over in self._tasks:
            logger.info("handing over node %s", plan.hand_over)
            self._handed_over = _HandedOver(plan.hand_over, now_ms)
            self._tasks[plan.hand_over].cancel()

    async def _own(self, node: int) -> None:
        """Claim a node, and serve it if the claim succeeds."""
        begun_at_ms = self._clock.monotonic_ms()
        try:
            await self._claim(node)
        except (NodeUnavailable, DatabaseUnavailable, UnknownOutcome) as error:
            self._node_failed(node, error, begun_at_ms)
        except Exception as error:  # noqa: BLE001 - `run` raises it
            self._failure = self._failure or error
        finally:
            del self._tasks[node]
            self._changed.notify()

    def _node_failed(self, node: int, error: Exception, begun_at_ms: int) -> None:
        now_ms = self._clock.monotonic_ms()
        failed = self._failed.get(node)
        was_long = now_ms - begun_at_ms >= SERVED_LONG_MS
        earlier = 0 if failed is None or was_long else failed.failures
        pause_ms = CLAIM_AGAIN_MS[min(earlier, len(CLAIM_AGAIN_MS) - 1)]
        self._failed[node] = _Failed(earlier + 1, now_ms + pause_ms)
        logger.error(
            "node %s has ended, and is claimed again in %s s: %s", node, pause_ms // 1000, error
        )

    async def _claim(self, node: int) -> None:
        database, pool = self._databases.node(node), self._make_pool()
        standby = Standby(
            database, self._server, clock=self._clock, boot_ms=self._boot_ms, pool=pool
        )
        try:
            try:
                if (owned := await standby.claim()) is not None:
                    logger.info("node %s is owned by this server", node)
                    await self._serve(NodeSession(node, database, owned, pool))
            finally:
                await standby.end()
        finally:
            await pool.run(database.close)
            pool.close()
