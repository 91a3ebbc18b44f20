"""Run: one seed of three servers that divide the nodes of a cluster, and of their clients.

Rule: as of the simulation of ledgers: everything is drawn from the seed, the same seed writes the
same trace. Servers are killed, paused, cut off, drained and started again, nodes move, and requests
to the database and the object store fail, or come late. When that ends, all nodes are served,
evenly divided, nothing is left that no group names, and new owners have all that was acknowledged.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

from kledger.ledger.cluster import object_writer, upkeep
from kledger.ledger.cluster.wal_plan import WalLimits
from tests.ledger.cluster.words import OBJECTS
from tests.simulation.clock import SimulatedClock
from tests.simulation.invariants import InvariantBroken
from tests.simulation.loop import SimulatedLoop
from tests.simulation.nodes.clients import NodeClients
from tests.simulation.nodes.servers import NodeCluster, SimulatedServer
from tests.simulation.nodes.storage import LATE_MAX_MS, NodeStorage
from tests.simulation.run import Failure, stopping_at_crashes
from tests.simulation.schedule import Pace, Schedule

SERVERS = (1, 2, 3)
STEPS = 250
PAUSE_MS = (0, 10, 100, 500, 1_000)
PAUSED_MS = (500, 3_000, 8_000, 15_000)
"""Shorter and longer than a server may be silent."""
UNREPLICATED_MS = (10, 500, 3_000, 8_000)
LATE_PUT_MS = LATE_MAX_MS + 5_000
SWEEP_MS = 30_000
SETTLED_S = 300
"""Virtual time within which all nodes are served, and garbage is gone, when faults have ended."""


@contextmanager
def short_sweeps() -> Iterator[None]:
    """Let objects of dead owners be deleted after seconds, not after a day."""
    with (
        patch.object(upkeep, "LATE_PUT_MS", LATE_PUT_MS),
        patch.object(object_writer, "LATE_PUT_MS", LATE_PUT_MS),
        patch.object(upkeep, "SWEEP_MS", SWEEP_MS),
    ):
        yield


class NodeRun:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.trace: list[str] = []
        self.counts: Counter[str] = Counter()
        """How often what happened."""
        random = self._random = Random(f"{seed} what")
        pace = Pace(random.choice((0, 10)), random.choice(((500, 5_000), (500, 5_000, 100_000))))
        self._schedule = Schedule(Random(f"{seed} when"), pace)
        self._clock = SimulatedClock(self._schedule)
        self._storage = NodeStorage(
            self._schedule, Random(f"{seed} storage"), nodes=random.choice((2, 3, 4))
        )
        self._database_faults = random.choice((0.0, 0.02, 0.1))
        self._object_faults = random.choice((0.0, 0.05, 0.2))
        self._is_hasty = random.random() < 0.3
        """Whether owners are fenced that are not silent."""
        limits = random.choice((OBJECTS, WalLimits(), WalLimits(inline_group_bytes_max=100)))
        self._cluster = NodeCluster(
            self._storage, Random(f"{seed} servers"), limits=limits, trace=self._write_line
        )
        self._clients = NodeClients(
            self._cluster, Random(f"{seed} clients"), asks_newest=not self._is_hasty
        )
        self._actions: dict[Callable[[SimulatedServer], Coroutine[Any, Any, None]], float] = {
            self._kill: random.choice((0.0, 1.0)),
            self._pause: random.choice((0.0, 1.0)),
            self._cut_off: random.choice((0.0, 0.5)),
            self._drain: random.choice((0.0, 1.0)),
            self._move_node: random.choice((0.0, 2.0)),
            self._lose_database: random.choice((0.0, 0.2)),
            self._fail_over: random.choice((0.0, 0.5)),
            self._fence: 2.0 if self._is_hasty else 0.0,
        }
        self._step = -1
        self._is_over = self._is_resting = False
        self._tasks: dict[asyncio.Task[None], str] = {}

    def go(self) -> Failure | None:
        """Run it; return the failure, if there is one."""
        storage = self._storage
        self._write_line(
            f"seed {self.seed}: {storage.nodes} nodes, faults {self._database_faults:.0%} of "
            f"statements, {self._object_faults:.0%} of requests"
        )
        loop = SimulatedLoop(self._schedule)
        try:
            with stopping_at_crashes(self._schedule), short_sweeps():
                loop.run(self._serve(loop))
        except Exception as error:  # noqa: BLE001 - whatever it is, it breaks the run
            return Failure.of(
                error, seed=self.seed, trace=self.trace, step=self._step, subject="--nodes "
            )
        finally:
            self._is_over = True
            self._schedule.interruption = None
            unwinding = loop.create_task(self._unwind())
            unwinding.add_done_callback(lambda _: loop.stop())
            while not unwinding.done():
                loop.run_forever()  # the end of `_serve` stops it, too
            loop.end()
            self._schedule.forget_all()
        return None

    async def _unwind(self) -> None:
        """End all threads and tasks."""
        for server in self._cluster.servers.values():
            server.kill()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for each in tasks:
            each.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _serve(self, loop: SimulatedLoop) -> None:
        random, cluster = self._random, self._cluster
        for server_id in SERVERS:
            cluster.start(server_id)
        self._storage.database_faults = self._database_faults
        self._storage.object_faults = self._object_faults
        actions, weights = [*self._actions], [*self._actions.values()]
        for self._step in range(STEPS):
            self._restart_ended()
            if random.random() < 0.1 and any(weights):
                [action] = random.choices(actions, weights)
                server = cluster.servers[random.choice(SERVERS)]
                self._start(loop, action(server))
            for _ in range(random.choice((0, 1, 1, 3))):
                self._start(loop, self._clients.work())
            self._clients.ask_newest()
            await self._clock.sleep(random.choice(PAUSE_MS))
        await self._rest()
        acknowledged = f"{self._clients.acknowledged} of {self._clients.requests} acknowledged"
        opened = sum(each.opened for each in cluster.histories.values())
        self._write_line(f"{acknowledged}, {self._clients.reads} reads, {opened} takeovers")

    # What happens to servers

    async def _kill(self, server: SimulatedServer) -> None:
        self._note("kill", server)
        server.kill()

    async def _pause(self, server: SimulatedServer) -> None:
        if server.process.is_paused or server.has_ended:
            return
        self._note("pause", server)
        server.process.pause()
        self._maybe_move_away(server)
        await self._clock.sleep(self._random.choice(PAUSED_MS))
        server.process.resume()

    async def _cut_off(self, server: SimulatedServer) -> None:
        self._note("cut off", server)
        server.link.is_away = True
        self._maybe_move_away(server)
        await self._clock.sleep(self._random.choice(PAUSED_MS))
        server.link.is_away = False

    async def _drain(self, server: SimulatedServer) -> None:
        if not server.is_draining and not server.has_ended:
            self._note("drain", server)
            await server.drain()

    async def _move_node(self, server: SimulatedServer) -> None:
        node = self._random.randrange(self._storage.nodes) + 1
        preferred = self._random.choice((server.server_id, server.server_id, None))
        self._note(f"node {node} prefers {preferred}", server)
        self._storage.tables.prefer_server(node, preferred)

    def _maybe_move_away(self, server: SimulatedServer) -> None:
        """Let another server own a node of one that does not answer, as an operator would."""
        observed = self._storage.tables.observe_nodes().nodes
        owned = [each.node for each in observed if each.server_id == server.server_id]
        if owned and self._random.random() < 0.5:
            others = [each for each in SERVERS if each != server.server_id]
            self._storage.tables.prefer_server(
                self._random.choice(owned), self._random.choice(others)
            )

    async def _lose_database(self, server: SimulatedServer) -> None:
        self._note("the database is unavailable", server)
        self._storage.is_away = True
        await self._clock.sleep(self._random.choice(PAUSED_MS))
        self._storage.is_away = False

    async def _fail_over(self, server: SimulatedServer) -> None:
        """Lose what no client got an answer for, though others may have seen it."""
        if self._storage.replicated is None:
            self._note("the standby of the database is lost", server)
            self._storage.lose_standby()
            await self._clock.sleep(self._random.choice(UNREPLICATED_MS))
            self._note("fail over", server)
            self._storage.fail_over()

    async def _fence(self, server: SimulatedServer) -> None:
        database = self._storage.tables.node(self._random.randrange(self._storage.nodes) + 1)
        if (seen := database.observe()) is not None:
            self._note("fence", server)
            database.fence(*seen)

    def _restart_ended(self) -> None:
        for server_id, server in self._cluster.servers.items():
            if server.has_ended and (self._is_resting or self._random.random() < 0.05):
                if server.task.done() and not server.task.cancelled():
                    raise InvariantBroken(f"server {server_id} ended") from server.task.exception()
                server.kill()
                self._cluster.start(server_id)
                self._note("start", self._cluster.servers[server_id])

    # The end

    async def _rest(self) -> None:
        """Without faults everything settles, and nothing acknowledged is missing."""
        self._write_line("rest")
        self._is_resting = True
        storage, cluster = self._storage, self._cluster
        storage.database_faults = storage.object_faults = 0.0
        if self._tasks:
            _, waiting = await asyncio.wait(list(self._tasks), timeout=SETTLED_S)
            if waiting:
                names = sorted(self._tasks[each] for each in waiting)
                raise InvariantBroken(f"never ended: {', '.join(names)}")
        for node in range(1, storage.nodes + 1):
            storage.tables.prefer_server(node, None)
        await self._until(self._are_nodes_divided, "the nodes are not evenly divided")
        await self._until(self._is_clean, "garbage is left")
        opened = {node: each.opened for node, each in cluster.histories.items()}
        for server in cluster.servers.values():
            server.kill()
        await self._until(
            lambda: all(each.opened > opened[node] for node, each in cluster.histories.items()),
            "nodes were not taken over",
        )
        await self._until(self._is_clean, "garbage is left after the last takeover")

    async def _until(self, holds: Callable[[], bool], otherwise: str) -> None:
        for _ in range(SETTLED_S):
            self._restart_ended()
            if holds():
                return
            await self._clock.sleep(1_000)
        raise InvariantBroken(otherwise)

    def _are_nodes_divided(self) -> bool:
        observed = self._storage.tables.observe_nodes()
        counts = Counter(dict.fromkeys(SERVERS, 0))
        for each in observed.nodes:
            serving = [owner for owner in self._cluster.serving if owner.node == each.node]
            if each.server_id is None or [each.epoch] != [one.stream.epoch for one in serving]:
                return False
            counts[each.server_id] += 1
        return max(counts.values()) - min(counts.values()) <= 1

    def _is_clean(self) -> bool:
        return set(self._storage.bucket.objects) == self._storage.referenced()

    def _note(self, what: str, server: SimulatedServer) -> None:
        self.counts[what.split(" ", maxsplit=1)[0]] += 1
        self._write_line(f"{what}: server {server.server_id}")

    def _start(self, loop: SimulatedLoop, work: Coroutine[Any, Any, None]) -> None:
        task = loop.create_task(work)
        self._tasks[task] = getattr(work, "__qualname__", "work")
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._tasks[task]
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._is_over:
            self._schedule.interrupt(error)

    def _write_line(self, text: str) -> None:
        self.trace.append(f"{self._schedule.now_us} {text}")
