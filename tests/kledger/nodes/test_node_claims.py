"""Servers that share the nodes of a model database, with a clock that the tests move."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from uuid import UUID

import pytest

from kledger.ledger.cluster import (
    ClusterDatabase,
    DatabaseUnavailable,
    NodesDatabase,
    NodesObservation,
    SessionBroker,
    SessionFenced,
    UnknownOutcome,
)
from kledger.ledger.cluster.database import Change, NoCluster
from kledger.ledger.cluster.faulty_database import DatabaseFault, FaultyDatabase
from kledger.ledger.cluster.memory_database import MemoryDatabase
from kledger.ledger.cluster.nodes_database import SERVER_LIVE_MS
from kledger.ledger.cluster.session_state import (
    COMMIT_EVERY_MS,
    FENCE_AFTER_MS,
    POLL_EVERY_MS,
    SILENT_AFTER_MS,
)
from kledger.nodes.node_claims import (
    CLAIM_AGAIN_MS,
    HAND_OVER_MAX_MS,
    REFUSED_MAX_MS,
    SERVED_LONG_MS,
    NodeClaims,
    NodeSession,
    NodeUnavailable,
    ServerIdTaken,
)
from kledger.nodes.owner_watches import HURRIED_MS, HURRIED_POLL_MS
from kledger.runtime.blocking import InlinePool
from kledger.runtime.manual_clock import ManualClock
from tests.ledger.cluster.database_words import broker

NODES = 4
TICKS = 60
"""More than all servers need between two sleeps."""
TAKEOVER_MS = FENCE_AFTER_MS + SERVER_LIVE_MS + 4 * POLL_EVERY_MS


class Connection:
    """The `NodeDatabases` of one server, which may lose its way to them."""

    def __init__(self, memory: MemoryDatabase) -> None:
        self.is_away = False
        self.polls = 0
        self._memory = memory
        self.nodes: NodesDatabase = self

    def node(self, node: int) -> ClusterDatabase:
        def choose(_: str) -> DatabaseFault:
            return DatabaseFault.AWAY if self.is_away else DatabaseFault.NONE

        return FaultyDatabase(self._memory.node(node), choose)

    def observe_nodes(self) -> NodesObservation:
        self.polls += 1
        self._check()
        return self._memory.observe_nodes()

    def announce_server(
        self, server: SessionBroker, incarnation: UUID, *, is_draining: bool
    ) -> bool:
        self._check()
        return self._memory.announce_server(server, incarnation, is_draining=is_draining)

    def end_server(self, server_id: int, incarnation: UUID) -> None:
        self._check()
        self._memory.end_server(server_id, incarnation)

    def prefer_server(self, node: int, server_id: int | None) -> None:
        self._memory.prefer_server(node, server_id)

    def close(self) -> None:
        pass

    def _check(self) -> None:
        if self.is_away:
            raise DatabaseUnavailable("the database does not answer")


class Server:
    """A server whose nodes commit, as owners do."""

    def __init__(self, scene: "Scene", server_id: int, incarnation: int) -> None:
        self.served: list[int] = []
        self.begun: list[int] = []
        self.is_waiting = False
        self.fails_at: int | None = None
        self.silent: dict[int, int] = {}
        self.failure: Exception = OSError("the disk of the tests is full")
        self._clock = scene.clock
        self.connection = Connection(scene.memory)
        self.claims = NodeClaims(
            self.connection,
            broker(server_id),
            UUID(int=incarnation),
            serve=self._serve,
            clock=scene.clock,
            boot_ms=scene.clock.monotonic_ms,
            make_pool=InlinePool,
            silent=self.silent,
        )
        self.task = asyncio.ensure_future(self.claims.run())

    async def _serve(self, session: NodeSession) -> None:
        self.served.append(session.node)
        self.begun.append(session.node)
        seq = session.owned.acquired.seq
        try:
            while True:
                if session.node == self.fails_at:
                    raise self.failure
                await self._clock.sleep(COMMIT_EVERY_MS)
                if not self.connection.is_away and not self.is_waiting:
                    seq += 1
                    session.database.commit(session.owned.session, seq, Change())
        except SessionFenced:
            pass
        finally:
            self.served.remove(session.node)

    async def kill(self) -> None:
        """End without a word to anybody."""
        self.connection.is_away = True
        await self.stop()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})


class Scene:
    """A cluster and its servers."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.memory = MemoryDatabase(now_ms=self.clock.monotonic_ms)
        self.memory.create(cluster_id="test-cluster", store="memory://", nodes=NODES)
        self.servers: list[Server] = []

    def start(self, server_id: int) -> Server:
        self.servers.append(Server(self, server_id, len(self.servers)))
        return self.servers[-1]

    async def pass_time(self, ms: int) -> None:
        for _ in range(0, ms, POLL_EVERY_MS):
            await ticks()
            self.clock.advance(POLL_EVERY_MS)
        await ticks()

    @property
    def owners(self) -> list[int | None]:
        """The server of each node, as the database has it."""
        return [each.server_id for each in self.memory.observe_nodes().nodes]

    @property
    def epochs(self) -> list[int]:
        return [each.epoch for each in self.memory.observe_nodes().nodes]

    @property
    def counts(self) -> list[int]:
        return [len(each.served) for each in self.servers]


async def ticks() -> None:
    for _ in range(TICKS):
        await asyncio.sleep(0)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    yield made
    for each in made.servers:
        await each.stop()


async def test_server_that_is_alone_owns_all_nodes(scene: Scene) -> None:
    server = scene.start(1)
    await scene.pass_time(POLL_EVERY_MS)
    assert [1, 2, 3, 4] == sorted(server.served)
    assert [1, 1, 1, 1] == scene.owners


async def test_node_moves_to_the_server_that_is_preferred_and_back(scene: Scene) -> None:
    first, second = scene.start(1), scene.start(2)
    await scene.pass_time(4 * COMMIT_EVERY_MS)
    assert [2, 2] == scene.counts
    for node in range(1, NODES + 1):
        scene.memory.prefer_server(node, 2)
    await scene.pass_time(10 * COMMIT_EVERY_MS)
    assert ([], [1, 2, 3, 4]) == (sorted(first.served), sorted(second.served))
    for node in range(1, NODES + 1):
        scene.memory.prefer_server(node, None)
    await scene.pass_time(10 * COMMIT_EVERY_MS)
    assert [2, 2] == scene.counts


async def test_servers_that_come_get_their_share_and_nothing_moves_afterwards(
    scene: Scene,
) -> None:
    scene.start(1)
    await scene.pass_time(COMMIT_EVERY_MS)
    scene.start(2)
    await scene.pass_time(10 * COMMIT_EVERY_MS)
    assert [2, 2] == scene.counts
    scene.start(3)
    await scene.pass_time(10 * COMMIT_EVERY_MS)
    assert [1, 1, 2] == sorted(scene.counts)
    rest, epochs = scene.owners, scene.epochs
    await scene.pass_time(60 * COMMIT_EVERY_MS)
    assert (rest, epochs) == (scene.owners, scene.epochs)


async def test_nodes_are_handed_over_one_at_a_time(scene: Scene) -> None:
    scene.start(1)
    await scene.pass_time(COMMIT_EVERY_MS)
    scene.start(2)
    for _ in range(100):
        await asyncio.sleep(0)
        assert scene.owners.count(None) <= 1
        scene.clock.advance(50)


async def test_nodes_of_a_killed_server_are_taken_over_by_the_others(scene: Scene) -> None:
    servers = [scene.start(each) for each in (1, 2, 3)]
    await scene.pass_time(10 * COMMIT_EVERY_MS)
    kept = {node: owner for node, owner in enumerate(scene.owners, 1) if owner != 1}
    await servers[0].kill()
    await scene.pass_time(FENCE_AFTER_MS - COMMIT_EVERY_MS)
    assert 1 in scene.owners
    await scene.pass_time(TAKEOVER_MS - FENCE_AFTER_MS + COMMIT_EVERY_MS)
    assert [0, 2, 2] == scene.counts
    assert kept.items() <= dict(enumerate(scene.owners, 1)).items()


@pytest.mark.parametrize("again", [(1, 2), (2, 1)])
async def test_nodes_are_where_they_were_after_all_servers_were_killed(
    scene: Scene, again: Sequence[int]
) -> None:
    """aiokafka never goes back to its bootstrap servers: it was lost if all nodes had moved."""
    for server_id in (2, 1):
        scene.start(server_id)
        await scene.pass_time(10 * COMMIT_EVERY_MS)
    before = scene.owners
    for each in scene.servers:
        await each.kill()
    for server_id in again:
        scene.start(server_id)
    await scene.pass_time(2 * TAKEOVER_MS)
    assert before == scene.owners
    assert [2, 2] == scene.counts[2:]


async def test_nodes_are_claimed_at_once_when_they_have_no_owner(scene: Scene) -> None:
    """The server that claimed a node learned up to half a second later that another fenced it."""
    servers = [scene.start(each) for each in (1, 2, 3)]
    await scene.pass_time(10 * COMMIT_EVERY_MS)
    await servers[0].kill()
    unowned_ms = 0
    for _ in range(0, TAKEOVER_MS, HURRIED_POLL_MS):
        await ticks()
        scene.clock.advance(HURRIED_POLL_MS)
        unowned_ms += HURRIED_POLL_MS * (None in scene.owners)
    assert [0, 2, 2] == scene.counts
    assert unowned_ms <= 2 * HURRIED_POLL_MS


async def test_node_that_stays_without_owner_is_not_polled_so_often_for_ever(scene: Scene) -> None:
    server = scene.start(1)
    server.failure, server.fails_at = NodeUnavailable("damaged"), 2
    await scene.pass_time(sum(CLAIM_AGAIN_MS))
    server.connection.polls = 0
    for _ in range(0, 20_000, HURRIED_POLL_MS):
        await ticks()
        scene.clock.advance(HURRIED_POLL_MS)
    assert 30 <= server.connection.polls <= 150


async def test_owner_that_does_not_commit_while_others_do_is_silent(scene: Scene) -> None:
    first, second = scene.start(1), scene.start(2)
    await scene.pass_time(10 * COMMIT_EVERY_MS)
    assert ({}, {}) == (first.silent, second.silent)
    epochs = {node: scene.epochs[node - 1] for node in first.served}
    first.connection.is_away = True
    await scene.pass_time(SILENT_AFTER_MS + 2 * POLL_EVERY_MS)
    assert epochs == second.silent
    first.connection.is_away = False
    await scene.pass_time(2 * COMMIT_EVERY_MS)
    assert {} == second.silent


async def test_silent_owner_stays_silent_in_its_epoch_when_it_was_taken_over(scene: Scene) -> None:
    first, second = scene.start(1), scene.start(2)
    await scene.pass_time(10 * COMMIT_EVERY_MS)
    epochs = {node: scene.epochs[node - 1] for node in first.served}
    await first.kill()
    await scene.pass_time(TAKEOVER_MS)
    assert [2] * NODES == scene.owners
    assert epochs == second.silent


async def test_no_owner_is_silent_if_the_database_takes_no_commits(scene: Scene) -> None:
    """Its standby is unavailable: commits wait, while it answers queries."""
    first, second = scene.start(1), scene.start(2)
    await scene.pass_time(10 * COMMIT_EVERY_MS)
    first.is_waiting = second.is_waiting = True
    for _ in range(0, FENCE_AFTER_MS - POLL_EVERY_MS, POLL_EVERY_MS):
        await scene.pass_time(POLL_EVERY_MS)
        assert ({}, {}) == (first.silent, second.silent)


async def test_server_that_drains_hands_over_one_node_after_the_other(scene: Scene) -> None:
    first, second = scene.start(1), scene.start(2)
    await scene.pass_time(10 * COMMIT_EVERY_MS)
    draining = asyncio.ensure_future(first.claims.drain())
    while not draining.done():
        await ticks()
        assert scene.owners.count(None) <= 1
        scene.clock.advance(50)
    assert [] == first.served
    await first.stop()
    await scene.pass_time(2 * POLL_EVERY_MS)
    assert [1, 2, 3, 4] == sorted(second.served)
    assert [2] == [each.server.broker_id for each in scene.memory.observe_nodes().servers]


async def test_nodes_that_are_handed_over_have_an_owner_soon(scene: Scene) -> None:
    first, second = scene.start(1), scene.start(2)
    await scene.pass_time(HURRIED_MS + 10 * COMMIT_EVERY_MS)
    handed_over, unowned_ms, step_ms = len(first.served), 0, HURRIED_POLL_MS // 2
    draining = asyncio.ensure_future(first.claims.drain())
    while not draining.done():
        await ticks()
        scene.clock.advance(step_ms)
        unowned_ms += step_ms * (None in scene.owners)
    await scene.pass_time(POLL_EVERY_MS)
    assert [1, 2, 3, 4] == sorted(second.served)
    assert unowned_ms <= handed_over * (HURRIED_POLL_MS + step_ms)


async def test_last_server_drains_at_once(scene: Scene) -> None:
    server = scene.start(1)
    await scene.pass_time(COMMIT_EVERY_MS)
    await server.claims.drain()
    assert NODES == len(server.served)
    await server.stop()
    assert [None] * NODES == scene.owners


async def test_server_drains_although_the_others_do_not_claim(scene: Scene) -> None:
    """They hang: they announce themselves, and do nothing else."""
    server = scene.start(1)
    await scene.pass_time(COMMIT_EVERY_MS)
    draining = asyncio.ensure_future(server.claims.drain())
    for _ in range(0, (NODES + 1) * HAND_OVER_MAX_MS, POLL_EVERY_MS):
        scene.memory.announce_server(broker(9), UUID(int=9), is_draining=False)
        await scene.pass_time(POLL_EVERY_MS)
    assert draining.done()


async def test_drain_does_not_wait_for_a_database_that_is_unavailable(scene: Scene) -> None:
    first, _ = scene.start(1), scene.start(2)
    await scene.pass_time(10 * COMMIT_EVERY_MS)
    first.connection.is_away = True
    draining = asyncio.ensure_future(first.claims.drain())
    await scene.pass_time(10 * POLL_EVERY_MS)
    assert draining.done()
    assert 2 == len(first.served)


async def test_fenced_node_ends_alone_and_is_claimed_again(scene: Scene) -> None:
    server = scene.start(1)
    await scene.pass_time(COMMIT_EVERY_MS)
    second = scene.memory.node(2)
    seen = second.observe()
    assert seen is not None
    assert second.fence(*seen)
    await scene.pass_time(2 * COMMIT_EVERY_MS)
    assert NODES == len(server.served)
    assert [1, 2, 1, 1] == scene.epochs


async def test_server_that_was_cut_off_comes_back(scene: Scene) -> None:
    first, second = scene.start(1), scene.start(2)
    await scene.pass_time(10 * COMMIT_EVERY_MS)
    first.connection.is_away = True
    await scene.pass_time(TAKEOVER_MS)
    assert [2, 2, 2, 2] == scene.owners
    first.connection.is_away = False
    await scene.pass_time(20 * COMMIT_EVERY_MS)
    assert [2, 2] == [len(first.served), len(second.served)]
    assert 2 == scene.owners.count(1)


async def test_outage_of_the_database_moves_no_node(scene: Scene) -> None:
    servers = [scene.start(each) for each in (1, 2)]
    await scene.pass_time(10 * COMMIT_EVERY_MS)
    before = scene.owners, scene.epochs
    for each in servers:
        each.connection.is_away = True
    await scene.pass_time(3 * TAKEOVER_MS)
    for each in servers:
        each.connection.is_away = False
    await scene.pass_time(2 * TAKEOVER_MS)
    assert before == (scene.owners, scene.epochs)


async def test_error_of_a_node_ends_the_server_and_the_others_take_over(scene: Scene) -> None:
    first, second = scene.start(1), scene.start(2)
    await scene.pass_time(10 * COMMIT_EVERY_MS)
    first.fails_at = first.served[0]
    await scene.pass_time(4 * COMMIT_EVERY_MS)
    with pytest.raises(OSError, match="full"):
        first.task.result()
    assert [1, 2, 3, 4] == sorted(second.served)


@pytest.mark.parametrize(
    "failure",
    [
        NodeUnavailable("the object store does not answer"),
        DatabaseUnavailable("the connection was lost"),
        UnknownOutcome("the connection was lost"),
    ],
    ids=lambda each: type(each).__name__,
)
async def test_node_that_is_unavailable_ends_alone_and_is_claimed_again(
    scene: Scene, failure: Exception
) -> None:
    """One broken connection while a node loaded ended the server, with all its nodes."""
    server = scene.start(1)
    await scene.pass_time(COMMIT_EVERY_MS)
    server.failure, server.fails_at = failure, 2
    await scene.pass_time(2 * COMMIT_EVERY_MS)
    assert [1, 3, 4] == sorted(server.served)
    server.fails_at = None
    await scene.pass_time(CLAIM_AGAIN_MS[1])
    assert [1, 2, 3, 4] == sorted(server.served)
    assert [1, 1, 1] == [each for node, each in enumerate(scene.epochs, 1) if node != 2]


async def test_node_that_fails_again_and_again_is_claimed_less_and_less_often(
    scene: Scene,
) -> None:
    server = scene.start(1)
    server.failure, server.fails_at = NodeUnavailable("damaged"), 2
    await scene.pass_time(sum(CLAIM_AGAIN_MS) + len(CLAIM_AGAIN_MS) * POLL_EVERY_MS)
    assert len(CLAIM_AGAIN_MS) <= server.begun.count(2) <= len(CLAIM_AGAIN_MS) + 1
    before = server.begun.count(2)
    await scene.pass_time(10 * CLAIM_AGAIN_MS[-1])
    assert before + 8 <= server.begun.count(2) <= before + 10
    server.fails_at = None
    await scene.pass_time(SERVED_LONG_MS + CLAIM_AGAIN_MS[-1])
    before = server.begun.count(2)
    server.fails_at = 2
    await scene.pass_time(COMMIT_EVERY_MS)
    server.fails_at = None
    await scene.pass_time(CLAIM_AGAIN_MS[0] + 2 * POLL_EVERY_MS)
    assert before + 1 == server.begun.count(2)
    assert [1, 3, 4] == [node for node in (1, 3, 4) if server.begun.count(node) == 1]


async def test_operator_moves_a_node_that_fails_to_another_server(scene: Scene) -> None:
    first, second = scene.start(1), scene.start(2)
    await scene.pass_time(10 * COMMIT_EVERY_MS)
    node = first.served[0]
    first.failure, first.fails_at = NodeUnavailable("damaged"), node
    await scene.pass_time(2 * COMMIT_EVERY_MS)
    scene.memory.prefer_server(node, 2)
    await scene.pass_time(2 * COMMIT_EVERY_MS)
    assert node in second.served


async def test_second_process_with_the_id_of_a_server_ends(scene: Scene) -> None:
    first = scene.start(1)
    await scene.pass_time(COMMIT_EVERY_MS)
    second = scene.start(1)
    await scene.pass_time(REFUSED_MAX_MS + 2 * COMMIT_EVERY_MS)
    with pytest.raises(ServerIdTaken, match="another process is server 1"):
        second.task.result()
    assert NODES == len(first.served)


async def test_server_that_starts_again_after_a_crash_gets_its_id_back(scene: Scene) -> None:
    first = scene.start(1)
    await scene.pass_time(COMMIT_EVERY_MS)
    await first.kill()
    second = scene.start(1)
    await scene.pass_time(TAKEOVER_MS)
    assert NODES == len(second.served)


async def test_database_without_a_cluster_ends_the_server(scene: Scene) -> None:
    scene.memory.restore(MemoryDatabase().snapshot())
    server = scene.start(1)
    await ticks()
    with pytest.raises(NoCluster):
        server.task.result()
