"""Run: one seed of clients that ask two brokers, whose shards move, over several lives.

Rule: as of the simulation of ledgers: everything is drawn from the seed, the same seed writes the
same trace. After every life and at rest, what clients were answered is compared with what they see.
Must not know: which requests there are.
"""

import asyncio
from contextlib import suppress
from functools import partial
from random import Random
from unittest.mock import patch

from kledger.ledger import LedgerStore
from kledger.ledger.testing import ClockPace
from kledger.runtime.tasks import Supervisor
from tests.simulation.clock import SimulatedClock
from tests.simulation.coordinators.brokers import SHARDS, Cluster
from tests.simulation.coordinators.clients import ACTIONS, finish_everything, pause
from tests.simulation.coordinators.offsets_model import MarkersModel
from tests.simulation.coordinators.scene import ClientState, Scene
from tests.simulation.disk import Disk
from tests.simulation.engine import SimulatedEngine
from tests.simulation.faults import Faults
from tests.simulation.life import Crash, Ending
from tests.simulation.loop import SimulatedLoop
from tests.simulation.run import Failure, stopping_at_crashes
from tests.simulation.schedule import Schedule
from tests.simulation.seed_profile import SeedProfile
from tests.simulation.threads import simulated_threads

TASKS_MAX = 12


class CoordinatorRun:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.trace: list[str] = []
        self._random = Random(f"{seed} what")
        self._profile = SeedProfile.drawn(self._random, ACTIONS)
        self._schedule = Schedule(Random(f"{seed} when"), self._profile.pace)
        self._clock = SimulatedClock(self._schedule)
        self._faults = Faults(Random(f"{seed} faults"), self._profile.fault_rates, self._clock)
        self._disk = Disk()
        self._clients = ClientState()
        self._markers = MarkersModel()
        self._life = 0
        self._scene: Scene | None = None

    def go(self) -> Failure | None:
        """Run all lives; return the failure, if there is one."""
        self._write_line(f"seed {self.seed}: {self._profile}")
        try:
            with (
                stopping_at_crashes(self._schedule),
                patch("kledger.gateway.coordinator.shard_counts.COORDINATOR_SHARD_COUNT", SHARDS),
            ):
                for life in range(self._profile.lives):
                    self._life = life
                    self._live(self._ending())
                self._life += 1
                self._live(Ending.CLOSED)
        except Exception as error:  # noqa: BLE001 - whatever it is, it breaks the run
            return Failure.of(
                error,
                seed=self.seed,
                trace=self.trace,
                life=self._life,
                step=self._scene.step if self._scene else -1,
                subject="--coordinators ",
            )
        return None

    def _ending(self) -> Ending:
        endings = list(Ending)
        if self._profile.store.durability == "os":
            endings.remove(Ending.POWER_CUT)  # what was acknowledged may be lost, as documented
        return self._random.choice(endings)

    def _live(self, ending: Ending) -> None:
        self._write_line(f"life {self._life}: {ending.value}")
        loop = SimulatedLoop(self._schedule)
        self._scene = None
        try:
            with suppress(Crash):
                loop.run(self._serve(loop, ending))
        finally:
            if self._scene is not None:
                self._scene.is_over = True
            loop.end()
            self._schedule.forget_all()
        self._faults.is_on = False
        if ending is Ending.POWER_CUT:
            self._disk.cut_power(self._random.choice((0, 0, 1, 3)))

    async def _serve(self, loop: SimulatedLoop, ending: Ending) -> None:
        profile, random = self._profile, self._random
        scene = self._scene = await self._begin(loop)
        await self._rest(scene)
        crashes = ending in {Ending.KILLED, Ending.POWER_CUT}
        crash_step = random.randrange(profile.steps) if crashes else None
        actions = [action for action, _ in ACTIONS.values()]
        weights = [profile.favours[name] for name in ACTIONS]
        for step in range(profile.steps):
            if scene.store.is_fenced:
                break
            scene.step = step
            if step == crash_step:
                self._crash_soon()
            if random.random() < profile.calm:
                await self._rest(scene)
            else:
                random.choices(actions, weights)[0](scene)
            scene.check_values()
            if len(scene.tasks) > TASKS_MAX:
                await asyncio.wait(list(scene.tasks), return_when=asyncio.FIRST_COMPLETED)
            await pause(scene)
        if ending is not Ending.CLOSED_BUSY:
            await self._rest(scene)
        await self._close(scene)

    async def _begin(self, loop: SimulatedLoop) -> Scene:
        self._faults.is_on = False
        engine = SimulatedEngine(
            self._disk,
            self._faults,
            self._schedule,
            checkpoint_groups=self._profile.checkpoint_groups,
            resident=self._profile.resident,
        )
        store = await LedgerStore.open(
            None,
            config=self._profile.store,
            clock=self._clock,
            engine=engine,
            threads=simulated_threads(self._schedule),
            start_pace=partial(ClockPace, self._clock),
        )
        store.on_fatal = lambda error: self._write_line(f"the store has stopped: {error}")
        supervisor = Supervisor(self._schedule.interrupt, store.containment)
        cluster = Cluster(
            store=store,
            clock=self._clock,
            random=self._random,
            faults=self._faults,
            supervisor=supervisor,
            markers=self._markers,
        )
        await cluster.start()
        return Scene(
            random=self._random,
            schedule=self._schedule,
            loop=loop,
            clock=self._clock,
            faults=self._faults,
            store=store,
            supervisor=supervisor,
            cluster=cluster,
            clients=self._clients,
            trace=self._write_line,
            cancels=self._profile.cancels,
        )

    async def _rest(self, scene: Scene) -> None:
        """Let everything end without faults, then compare the whole state."""
        scene.trace("rest")
        scene.faults.is_on = False
        await scene.rest()
        if not scene.store.is_fenced:
            await finish_everything(scene)
        if not scene.store.is_fenced:
            scene.settle()
        scene.faults.is_on = True

    async def _close(self, scene: Scene) -> None:
        scene.faults.is_on = False
        scene.cluster.close()
        await scene.rest()
        await scene.supervisor.close()
        await scene.store.close()

    def _crash_soon(self) -> None:
        schedule = self._schedule
        delay_us = schedule.work_us() * self._random.choice((1, 3, 10))
        schedule.after(delay_us, lambda: schedule.interrupt(Crash()))

    def _write_line(self, text: str) -> None:
        self.trace.append(f"{self._schedule.now_us} {text}")
