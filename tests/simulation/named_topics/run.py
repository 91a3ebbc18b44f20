"""Run: one seed of clients, links and a server that is killed and started again.

Rule: as of the other simulations: everything is drawn from the seed, the same seed writes the same
trace. At rest, and at the end, the whole topic is compared with the model.
Must not know: which actions there are.
"""

import asyncio
from dataclasses import replace
from random import Random
from unittest.mock import patch

from tests.simulation.clock import SimulatedClock
from tests.simulation.disk import Disk
from tests.simulation.faults import Faults
from tests.simulation.loop import SimulatedLoop
from tests.simulation.named_topics.actions import ACTIONS, pause
from tests.simulation.named_topics.filters import is_kept
from tests.simulation.named_topics.member import WatchedState
from tests.simulation.named_topics.model import GroupModel, TopicModel
from tests.simulation.named_topics.network import Network
from tests.simulation.named_topics.server import Machine
from tests.simulation.named_topics.settling import settle
from tests.simulation.named_topics.world import (
    PUBLISHERS,
    TOPIC,
    PublisherProcess,
    TopicSettings,
    World,
)
from tests.simulation.run import Failure, stopping_at_crashes
from tests.simulation.schedule import Schedule
from tests.simulation.seed_profile import SeedProfile

TASKS_MAX = 16
FILTER = f"{is_kept.__module__}:{is_kept.__name__}"
FAULT_RATES = {"write": (0.0, 0.0, 0.02, 0.08), "read": (0.0, 0.0, 0.05)}
"""Lower ones than of ledgers alone: a fault ends more, and takes longer to recover from."""


class NamedTopicRun:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.trace: list[str] = []
        random = self._random = Random(f"{seed} what")
        drawn = SeedProfile.drawn(random, ACTIONS)
        rates = {name: random.choice(each) for name, each in FAULT_RATES.items()}
        self._profile = replace(
            drawn,
            fault_rates={
                **drawn.fault_rates,
                **rates,
                "lookup": 0.0,
                "timer": 0.0,
                "listener": 0.0,
            },
            store=replace(drawn.store, cold_reads_waiting_max=10_000),
        )
        self._settings = TopicSettings(
            channel_count=random.choice((1, 2, 3)),
            is_retaining=random.random() < 0.3,
            timeout_ms=random.choice((4_000, 10_000)),
            page_bytes=random.choice((1, 300, 1 << 20)),
            allows_unowned=random.random() < 0.2,
            has_filter=random.random() < 0.5,
            expiry_ms=20_000 if random.random() < 0.15 else None,
        )
        self._schedule = Schedule(Random(f"{seed} when"), self._profile.pace)
        self._clock = SimulatedClock(self._schedule)
        self._faults = Faults(Random(f"{seed} faults"), self._profile.fault_rates, self._clock)
        self._world: World | None = None

    def go(self) -> Failure | None:
        """Run; return the failure, if there is one."""
        self._write_line(f"seed {self.seed}: {self._profile}, {self._settings}")
        loop = SimulatedLoop(self._schedule)
        watched = "kledger.native.client.named_topics.subscriber.SubscriberState"
        with stopping_at_crashes(self._schedule):
            try:
                with patch(watched, WatchedState):
                    loop.run(self._serve(loop))
            except Exception as error:  # noqa: BLE001 - whatever it is, it breaks the run
                return Failure.of(
                    error,
                    seed=self.seed,
                    trace=self.trace,
                    life=self._world.starts if self._world else 0,
                    step=self._world.step if self._world else -1,
                    subject="--named-topics ",
                )
            finally:
                if self._world is not None:
                    self._world.is_over = True
                loop.end()
                self._schedule.forget_all()
        return None

    async def _serve(self, loop: SimulatedLoop) -> None:
        profile, random = self._profile, self._random
        world = self._world = await self._begin(loop)
        actions = [action for action, _ in ACTIONS.values()]
        weights = [profile.favours[name] for name in ACTIONS]
        world.is_resting, self._faults.is_on = False, True
        for step in range(profile.steps):
            world.step = step
            if random.random() < profile.calm:
                await settle(world)
            else:
                random.choices(actions, weights)[0](world)
            if len(world.tasks) > TASKS_MAX:
                await asyncio.wait(list(world.tasks), return_when=asyncio.FIRST_COMPLETED)
            await pause(world)
        await settle(world)
        world.is_resting, self._faults.is_on = True, False
        await world.close()

    async def _begin(self, loop: SimulatedLoop) -> World:
        """Start a server and publishers, with two groups of a new topic."""
        settings = self._settings
        model = TopicModel(
            is_retaining=settings.is_retaining,
            allows_unowned=settings.allows_unowned,
            expiry_ms=settings.expiry_ms,
            now_ms=self._clock.now_ms,
        )
        machine = Machine(
            disk=Disk(),
            faults=self._faults,
            schedule=self._schedule,
            clock=self._clock,
            store=self._profile.store,
            checkpoint_groups=self._profile.checkpoint_groups,
            resident=self._profile.resident,
        )
        network = Network(model, self._schedule, self._clock, self._random)
        world = World(
            random=self._random,
            loop=loop,
            machine=machine,
            network=network,
            model=model,
            settings=self._settings,
            trace=self._write_line,
            cancels=self._profile.cancels,
        )
        await world.start_server()
        for number in range(PUBLISHERS):
            link, client = await world.open_client()
            world.publishers.append(PublisherProcess(f"p{number}", link, client))
        topic = await world.publishers[0].client.named_topic(
            TOPIC,
            channel_count=settings.channel_count,
            retain_values=settings.is_retaining,
            subscriber_timeout_ms=settings.timeout_ms,
            page_bytes=settings.page_bytes,
            allow_unowned_commits=settings.allows_unowned,
            element_expiry_ms=settings.expiry_ms,
        )
        assert world.server is not None
        await world.server.registry.alter_configs(
            TOPIC, {"internal.segment.bytes": self._random.choice(("150", "400", "100000"))}
        )
        for name in ("a", "b"):
            is_filtered = name == "b" and settings.has_filter
            await topic.ensure_subscriber_group(name, filter=FILTER if is_filtered else None)
            keeps = is_kept if is_filtered else None
            model.groups[name] = GroupModel(name, model, keeps=keeps)
        return world

    def _write_line(self, text: str) -> None:
        self.trace.append(f"{self._schedule.now_us} {text}")
