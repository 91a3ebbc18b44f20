"""A subscription, its consumers, reads and resets as scripts of steps, for the tests of races."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.ledger import (
    Cursor,
    ManagedLedgerConfig,
    Position,
    StoreConfig,
)
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.subscriptions.errors import SubscriptionClosed, SubscriptionFenced, SubscriptionsError
from kledger.subscriptions.model import Delivery, StartPosition, SubscriptionType
from kledger.subscriptions.subscription import Subscription
from tests.interleavings import Order, Script, interleavings
from tests.subscriptions.partition_fixture import Client, PartitionFixture, values_of
from tests.subscriptions.steps import Gate, NeverIdle, Steps, until_idle

EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED = SubscriptionType

PAIRS = ManagedLedgerConfig(max_entries_per_ledger=2)
UNCACHED = StoreConfig(cache_bytes=0)
ENTRIES = ("a0", "b0", "a1 b1", "a2 b2", "a3 b3", "a4 b4", "a5 b5")
"""Seven entries; the key of a record is its letter, its order within the key its number."""
BATCHES = [
    bytes(build_batch([NewRecord(v.encode(), key=v[:1].encode(), timestamp=1) for v in e.split()]))
    for e in ENTRIES
]
ROUNDS_MAX = 12


def values_from(entry: int) -> list[str]:
    """The values of all records from an entry on."""
    return [value for each in ENTRIES[entry:] for value in each.split()]


class Member(Client):
    """A consumer of a scene; scripts let it join, and join again after it was disconnected."""

    def __init__(self, scene: "Scene", name: str) -> None:
        super().__init__(name)
        self.scene = scene
        self.wants_in = False
        self.is_in = False

    def _take(self, deliveries: Sequence[Delivery]) -> None:
        super()._take(deliveries)
        self.scene.received += [value for each in deliveries for value in values_of(each)]

    def ended(self, error: SubscriptionsError | None) -> None:
        super().ended(error)
        self.is_in = False
        self.deliveries.clear()
        self.scene.begun()

    async def come(self, permits: int = 1_000) -> None:
        """Join, or try again later if the position is being set."""
        self.wants_in = True
        try:
            await self.join(self.scene.subscription, self.scene.wanted, permits=permits)
        except SubscriptionFenced:
            return
        self.is_in = True

    async def go(self) -> None:
        self.wants_in = False
        if self.is_in:
            self.is_in = False
            for value in self.values:  # they are redelivered, as none is acknowledged
                self.scene.received.remove(value)
            self.deliveries.clear()
            await self.consumer.close()


class Scene:
    """A subscription over seven entries, and its consumers.

    `received` is what was delivered since the position was set for the last time.
    """

    def __init__(self, fixture: PartitionFixture, steps: Steps, wanted: SubscriptionType) -> None:
        self.fixture = fixture
        self.steps = steps
        self.wanted = wanted
        self.received: list[str] = []
        self.has_begun = False
        self.expected = values_from(0)
        self.positions: list[Position] = []
        self.members: list[Member] = []
        self.answers = Gate()
        """Between a repeated read and the dispatcher."""
        self.subscription: Subscription

    async def open(self, name: str) -> None:
        fixture = self.fixture
        await fixture.open_partition(name, PAIRS)
        self.positions = await asyncio.gather(*(fixture.ledger.add_entry(data) for data in BATCHES))
        self.subscription = await fixture.subscription()
        self.delay_answers(self.subscription.cursor)

    def delay_answers(self, cursor: Cursor) -> None:
        """Let repeated reads wait at the gate after the storage has answered."""
        replay = cursor.replay

        async def replay_and_wait(positions: Any) -> Any:
            answer = await replay(positions)
            await self.answers.pass_through()
            return answer

        cursor.replay = replay_and_wait  # type: ignore[method-assign]

    def member(self, name: str) -> Member:
        self.members.append(Member(self, name))
        return self.members[-1]

    def begun(self) -> None:
        """A position is being set: what was delivered before does not count."""
        self.has_begun = True
        self.received.clear()

    async def settle(self) -> None:
        """Let consumers that want to join do so, and acknowledge, until nothing is left."""
        self.steps.open()
        self.answers.open()
        if not any(member.wants_in for member in self.members):
            self.members[0].wants_in = True
        received = -1
        for _ in range(ROUNDS_MAX):
            await until_idle()
            if len(self.received) == received and not self.subscription.cursor.backlog:
                return
            received = len(self.received)
            await self.reconnect()
            for member in self.members:
                if member.is_in:
                    member.consumer.add_permits(1_000)
                    await member.acknowledge(*member.values)
                    member.deliveries.clear()

    async def reconnect(self) -> None:
        for member in self.members:
            if member.wants_in and not member.is_in:
                await member.come()

    def keeps_the_rule(self) -> bool:
        for key in "ab":
            in_order = [value for value in self.expected if value[0] == key]
            if [value for value in self.received if value[0] == key] != in_order:
                return False
        return not self.subscription.cursor.backlog

    async def close(self) -> None:
        self.steps.open()
        self.answers.open()
        await self.fixture.partition.close()
        await self.fixture.ledger.close()


class Reading:
    """A read in three steps: it begins, the storage answers, what it read is delivered.

    A sequential one reads five records for three permits: the last two wait in the dispatcher.
    """

    def __init__(self, scene: Scene, member: Member) -> None:
        self.scene = scene
        self.member = member

    async def begin(self) -> None:
        self.scene.steps.reads.shut()
        self.scene.answers.shut()
        if self.member.is_in:
            self.ask()
        await until_idle()

    def ask(self) -> None:
        self.member.consumer.add_permits(3)

    async def answer(self) -> None:
        self.scene.steps.reads.open()
        await until_idle()

    async def deliver(self) -> None:
        self.scene.answers.open()
        if self.member.is_in:
            self.member.consumer.add_permits(3)
        await until_idle()

    def script(self) -> Script:
        return [self.begin, self.answer, self.deliver]


class Replaying(Reading):
    """A read of what the member has sent back."""

    def ask(self) -> None:
        if not self.scene.has_begun:
            self.member.nack("a0", "b0")
        self.member.consumer.add_permits(3)


Act: TypeAlias = Callable[[Subscription, list[Position]], Awaitable[None]]


@dataclass(frozen=True)
class Setting:
    """A way to set the position, and the first entry that is unacknowledged then."""

    act: Act
    first: int


BACK = Setting(lambda subscription, positions: subscription.reset(StartPosition(positions[1])), 1)
FORWARD = Setting(
    lambda subscription, positions: subscription.reset(StartPosition(positions[5])), 5
)
REWIND = Setting(lambda subscription, positions: subscription.rewind(), 0)
SKIP = Setting(lambda subscription, positions: subscription.skip(4), 3)
CLEAR = Setting(lambda subscription, positions: subscription.clear_backlog(), 7)
SETTINGS = {"back": BACK, "forward": FORWARD, "rewind": REWIND, "skip": SKIP, "clear": CLEAR}


class Resetting:
    """Sets the position, in two steps: the write begins, and the write is done.

    The second one of two is refused while the first one is under way.
    """

    def __init__(self, scene: Scene, setting: Setting) -> None:
        self.scene = scene
        self.setting = setting
        self.work: asyncio.Future[None] | None = None

    async def begin(self) -> None:
        scene = self.scene
        if scene.subscription.is_fenced:
            with pytest.raises(SubscriptionFenced):
                await self.setting.act(scene.subscription, scene.positions)
            return
        scene.steps.writes.shut()
        scene.begun()
        scene.expected = values_from(self.setting.first)
        self.work = asyncio.ensure_future(self.setting.act(scene.subscription, scene.positions))
        await until_idle()

    async def end(self) -> None:
        if self.work is not None:
            self.scene.steps.writes.open()
            await until_idle()

    def script(self) -> Script:
        return [self.begin, self.end]


MakeScripts: TypeAlias = Callable[[Scene, Member], list[Script]]


@dataclass(frozen=True)
class Race:
    """One race: the type, how many permits the first member begins with, the scripts."""

    wanted: SubscriptionType
    permits: int
    make: MakeScripts
    lengths: tuple[int, ...]
    has_reconnects: bool = False
    """Whether disconnected consumers try to join again after every step."""


class Stage:
    """Plays the interleavings of races, one after the other."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.fixture = PartitionFixture(FaultyEngine(None), ManualClock(1_000_000))
        self.count = 0

    async def open(self) -> None:
        await self.fixture.open(threads=self.steps.threads(), store_config=UNCACHED)

    async def keeps_the_rule(self, race: Race, order: Order) -> bool:
        self.count += 1
        scene = Scene(self.fixture, self.steps, race.wanted)
        await scene.open(f"orders-{self.count}")
        try:
            first = scene.member("first")
            await first.come(race.permits)
            await until_idle()
            scripts = [iter(script) for script in race.make(scene, first)]
            for script in order:
                await next(scripts[script])()
                if race.has_reconnects:
                    await scene.reconnect()
            await scene.settle()
            return scene.keeps_the_rule()
        except (NeverIdle, SubscriptionClosed):  # closed by a fault that the race has caused
            return False
        finally:
            await scene.close()

    async def broken_orders(self, race: Race) -> AsyncIterator[Order]:
        for order in interleavings(race.lengths):
            if not await self.keeps_the_rule(race, order):
                yield order
