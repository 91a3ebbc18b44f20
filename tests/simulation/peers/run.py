"""Run: one seed of transactional producers at two brokers, whose questions and answers are lost.

Rule: as of the simulation of ledgers: everything is drawn from the seed, the same seed writes the
same trace. At every step no last stable offset passes an open transaction; at rest every
transaction has ended everywhere, as its producer was answered.
"""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

from tests.simulation.clock import SimulatedClock
from tests.simulation.invariants import InvariantBroken
from tests.simulation.loop import SimulatedLoop
from tests.simulation.peers.brokers import BROKER_IDS, SimulatedPeers
from tests.simulation.peers.producing import PRODUCERS, Producers
from tests.simulation.run import Failure, stopping_at_crashes
from tests.simulation.schedule import Pace, Schedule

STEPS = 60
CUTS = (0.0, 0.02, 0.1, 0.3)
AWAY_MS = (0, 5, 800, 3_000)
PAUSE_MS = (0, 0, 1, 30, 400, 2_000)
REST_S = 3_600.0
"""Virtual time within which all producers end when nothing is lost any more."""
SETTLED_MS = 30_000
"""Virtual time within which the outcomes of transactions reach everything."""


class PeerRun:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.trace: list[str] = []
        self._random = Random(f"{seed} what")
        pace = Pace(self._random.choice((0, 10, 300)), (50, 400, 20_000))
        self._schedule = Schedule(Random(f"{seed} when"), pace)
        self._clock = SimulatedClock(self._schedule)
        self._cuts = self._random.choice(CUTS)
        self._step = -1
        self._is_over = False
        self._tasks: dict[asyncio.Task[None], str] = {}

    def go(self) -> Failure | None:
        """Run it; return the failure, if there is one."""
        self._write_line(f"seed {self.seed}: {self._cuts:.0%} are lost")
        loop = SimulatedLoop(self._schedule)
        with stopping_at_crashes(self._schedule):
            try:
                loop.run(self._serve(loop))
            except Exception as error:  # noqa: BLE001 - whatever it is, it breaks the run
                return Failure.of(
                    error, seed=self.seed, trace=self.trace, step=self._step, subject="--peers "
                )
            finally:
                self._is_over = True
                loop.end()
                self._schedule.forget_all()
        return None

    async def _serve(self, loop: SimulatedLoop) -> None:
        random = self._random
        peers = SimulatedPeers(random, self._schedule, self._clock)
        await peers.start()
        producers = Producers(peers, self._clock, random)
        peers.network.cuts = self._cuts
        for self._step in range(STEPS):
            idle = [each for each in PRODUCERS if each not in producers.busy]
            dice = random.random()
            if dice < 0.4 and idle:
                name = random.choice(idle)
                self._start(loop, f"transactions of {name}", producers.run(name))
            elif dice < 0.5:
                broker_id, away_ms = random.choice(BROKER_IDS), random.choice(AWAY_MS)
                what = f"broker {broker_id} ends for {away_ms} ms"
                self._start(loop, what, peers.restart(broker_id, away_ms))
            elif dice < 0.53:
                await self._rest(peers, producers)
            producers.check_stable()
            await self._clock.sleep(random.choice(PAUSE_MS))
        await self._rest(peers, producers)
        lost = f"{peers.network.lost} lost, {peers.restarts} restarts"
        self._write_line(f"{len(producers.attempts)} transactions, {lost}")
        await peers.close()

    async def _rest(self, peers: SimulatedPeers, producers: Producers) -> None:
        """Let everything end while nothing is lost; compare what must hold."""
        self._write_line("rest")
        peers.network.cuts = 0.0
        if self._tasks:
            _, waiting = await asyncio.wait(list(self._tasks), timeout=REST_S)
            if waiting:
                names = sorted(self._tasks[each] for each in waiting)
                raise InvariantBroken(f"never ended: {', '.join(names)}")
        for name in PRODUCERS:
            await producers.initialise(name)  # it aborts what its last producer has left open
        await self._clock.sleep(SETTLED_MS)
        await producers.check_ended()
        peers.network.cuts = self._cuts

    def _start(self, loop: SimulatedLoop, what: str, work: Coroutine[Any, Any, None]) -> None:
        self._write_line(what)
        task = loop.create_task(work)
        self._tasks[task] = what
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        what = self._tasks.pop(task)
        error = None if task.cancelled() else task.exception()
        self._write_line(f"ended: {what}")
        if error is not None and not self._is_over:
            self._schedule.interrupt(error)

    def _write_line(self, text: str) -> None:
        self.trace.append(f"{self._schedule.now_us} {text}")
