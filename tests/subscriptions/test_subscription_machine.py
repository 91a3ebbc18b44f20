"""A subscription against plain sets, through everything that consumers and crashes can do to it.

`unacknowledged` is every record that is not acknowledged. A delivered record is one of them, and no
other consumer has it; connected consumers get all of them in the end; only acknowledgements and
setting the position change them.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kledger.batches.builder import NewRecord, build_batch
from kledger.ledger import EARLIEST, LATEST, ManagedLedgerConfig, Position, StoreConfig
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.subscriptions.errors import StorageFailed, SubscriptionsError
from kledger.subscriptions.model import Delivery, StartPosition, SubscriptionType
from kledger.subscriptions.subscription import Subscription
from tests.subscriptions.partition_fixture import Client, PartitionFixture, values_of
from tests.subscriptions.steps import Steps, until_idle

EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED = SubscriptionType
Result = TypeVar("Result")

KEYS = (b"a", b"b", b"c")
PICKS = st.integers(0, 1 << 30)
TYPES = st.sampled_from(list(SubscriptionType))
SIZES = st.lists(st.integers(1, 3), min_size=1, max_size=4)
PERMITS = st.lists(st.integers(0, 9), min_size=1, max_size=3)
CLIENTS_MAX = 4
SMALL = ManagedLedgerConfig(max_entries_per_ledger=3)
UNCACHED = StoreConfig(cache_bytes=0)


class DeliveryModel(Client):
    """A consumer that checks its deliveries; `held` is what it has not acknowledged."""

    def __init__(self, machine: "SubscriptionMachine", name: str) -> None:
        super().__init__(name)
        self.machine = machine
        self.held: set[int] = set()
        self.newest = -1

    def _take(self, deliveries: Sequence[Delivery]) -> None:
        super()._take(deliveries)
        for delivery in deliveries:
            for value in values_of(delivery):
                self.machine.check(self, int(value))
                self.held.add(int(value))

    def ended(self, error: SubscriptionsError | None) -> None:
        super().ended(error)
        self.machine.gone(self)


class SubscriptionMachine(RuleBasedStateMachine):
    """See above; `durable` is what was unacknowledged in the last known durable state."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock(1_000_000)
        self.steps = Steps()
        self.fixture = PartitionFixture(FaultyEngine(None), self.clock)
        self.positions: list[tuple[Position, int, int]] = []
        self.keys: list[bytes] = []
        self.unacknowledged: set[int] = set()
        self.durable: set[int] = set()
        self.clients: list[DeliveryModel] = []
        self.former: list[DeliveryModel] = []
        self.wanted = EXCLUSIVE
        self.newest_of: dict[bytes, int] = {}
        self.name_count = 0
        self.subscription: Subscription

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.loop.run_until_complete(work)

    @initialize(wanted=TYPES, sizes=SIZES, permits=PERMITS, pick=PICKS)
    def start(
        self, wanted: SubscriptionType, sizes: list[int], permits: list[int], pick: int
    ) -> None:
        self.run(self.open())
        self.append(sizes, pick)
        self.join(wanted, permits)

    async def open(self) -> None:
        await self.fixture.open(threads=self.steps.threads(), store_config=UNCACHED, config=SMALL)
        self.subscription = await self.fixture.subscription()

    # What is checked when something is delivered

    def check(self, client: DeliveryModel, record: int) -> None:
        """A record is delivered to a consumer."""
        assert client in self.clients, "it was disconnected"
        assert record in self.unacknowledged, "it is acknowledged"
        if self.wanted in {EXCLUSIVE, FAILOVER}:
            assert record > client.newest, "out of order"
            client.newest = record
            return
        assert all(record not in each.held for each in self.clients), "another consumer has it"
        if self.wanted is KEY_SHARED:
            key = self.keys[record]
            others = (each for each in self.clients if each is not client)
            assert all(self.keys[each] != key for other in others for each in other.held)
            assert record > self.newest_of.get(key, -1), "out of order for its key"
            self.newest_of[key] = record

    def gone(self, client: DeliveryModel) -> None:
        """A consumer has left, or was disconnected."""
        if client in self.clients:
            self.clients.remove(client)
        client.held.clear()
        self.former.append(client)
        self.goes_back()

    def goes_back(self) -> None:
        """What was delivered may be redelivered, from its beginning."""
        self.newest_of.clear()
        for each in self.clients:
            each.newest = -1

    # Appending, joining, leaving

    @rule(sizes=SIZES, pick=PICKS)
    def append(self, sizes: list[int], pick: int) -> None:
        self.run(self.append_all(sizes, pick))

    async def append_all(self, sizes: list[int], pick: int) -> None:
        for size in sizes:
            first = len(self.positions)
            numbers = range(first, first + size)
            self.keys += [KEYS[(pick >> number) % len(KEYS)] for number in range(size)]
            data = build_batch(
                [NewRecord(b"%d" % each, key=self.keys[each], timestamp=1) for each in numbers]
            )
            self.unacknowledged.update(numbers)
            self.durable.update(numbers)
            adding = asyncio.ensure_future(self.fixture.ledger.add_entry(bytes(data)))
            self.positions += [(EARLIEST, index, size) for index in range(size)]
            # It is delivered as soon as it is confirmed, before the caller continues.
            position = await adding
            self.positions[first:] = [(position, index, size) for index in range(size)]
        await until_idle()

    @precondition(lambda self: len(self.clients) < CLIENTS_MAX)
    @rule(wanted=TYPES, permits=PERMITS)
    def join(self, wanted: SubscriptionType, permits: list[int]) -> None:
        if not self.clients:
            self.wanted = wanted
        for each in permits:
            if self.wanted is EXCLUSIVE and self.clients:
                return
            self.name_count += 1
            client = DeliveryModel(self, f"c{self.name_count:03}")
            self.goes_back()
            self.clients.append(client)
            self.run(self.join_one(client, each))

    async def join_one(self, client: DeliveryModel, permits: int) -> None:
        await client.join(self.subscription, self.wanted, permits=permits)
        await until_idle()

    @precondition(lambda self: self.clients)
    @rule(pick=PICKS)
    def leave(self, pick: int) -> None:
        client = self.pick(pick)
        self.gone(client)
        self.run(self.and_turns(client.consumer.close()))

    async def and_turns(self, work: Coroutine[Any, Any, None]) -> None:
        await work
        await until_idle()

    @precondition(lambda self: self.clients)
    @rule(pick=PICKS, permits=st.integers(1, 9))
    def add_permits(self, pick: int, permits: int) -> None:
        self.run(self.permit(self.pick(pick), permits))

    async def permit(self, client: DeliveryModel, permits: int) -> None:
        client.consumer.add_permits(permits)
        await until_idle()

    def pick(self, pick: int) -> DeliveryModel:
        return self.clients[pick % len(self.clients)]

    def some_of(self, client: DeliveryModel, picks: list[int]) -> list[int]:
        held = sorted(client.held & self.unacknowledged)
        return sorted({held[each % len(held)] for each in picks}) if held else []

    # Acknowledging, sending back

    @precondition(lambda self: self.clients)
    @rule(
        pick=PICKS,
        picks=st.lists(PICKS, min_size=1, max_size=6),
        how=st.sampled_from(["one by one", "upto", "failing"]),
    )
    def acknowledge(self, pick: int, picks: list[int], how: str) -> None:
        client = self.pick(pick)
        records = self.some_of(client, picks)
        if how == "upto" and self.wanted in {EXCLUSIVE, FAILOVER}:
            self.acknowledge_upto(client, records)
            return
        if not records:
            return
        self.unacknowledged.difference_update(records)
        self.forget(records)
        self.run(self.report(client, records, fails=how == "failing"))

    def acknowledge_upto(self, client: DeliveryModel, records: list[int]) -> None:
        if records:
            upto = set(range(records[0] + 1))
            self.unacknowledged -= upto
            self.forget(upto)
            self.run(self.and_turns(client.acknowledge_upto(str(records[0]))))
            self.durable = set(self.unacknowledged)

    def forget(self, records: Sequence[int] | set[int]) -> None:
        for client in self.clients:
            client.held.difference_update(records)

    async def report(self, client: DeliveryModel, records: list[int], *, fails: bool) -> None:
        """What failed to become durable counts, and is durable when it is said again."""
        if fails:
            self.fixture.engine.fail_next("commit")
            with pytest.raises(StorageFailed):
                await client.acknowledge(*map(str, records))
        await client.acknowledge(*map(str, records))
        self.durable = set(self.unacknowledged)
        await until_idle()

    @precondition(lambda self: self.former)
    @rule(pick=PICKS)
    def acknowledge_late(self, pick: int) -> None:
        """Disconnected consumers acknowledge all they had, without effect."""
        client = self.former[pick % len(self.former)]
        self.run(self.and_turns(client.acknowledge(*client.values)))

    @precondition(lambda self: self.clients)
    @rule(pick=PICKS, picks=st.lists(PICKS, max_size=6))
    def send_back(self, pick: int, picks: list[int]) -> None:
        """Some, or all that it has."""
        client = self.pick(pick)
        records = self.some_of(client, picks)
        self.goes_back()
        if self.wanted in {EXCLUSIVE, FAILOVER} or not picks:
            client.held.clear()
        client.held.difference_update(records)
        self.run(self.send_those_back(client, records if picks else None))

    async def send_those_back(self, client: DeliveryModel, records: list[int] | None) -> None:
        if records is None:
            client.consumer.redeliver(None)
        else:
            client.nack(*map(str, records))
        await until_idle()

    # Setting the position

    @rule(how=st.sampled_from(["reset", "reset", "skip", "clear", "rewind", "end"]), pick=PICKS)
    def set_it(self, how: str, pick: int) -> None:
        before, subscription = set(self.unacknowledged), self.subscription
        match how:
            case "reset":
                record = pick % len(self.positions)
                self.unacknowledged = set(range(record, len(self.positions)))
                work = subscription.reset(StartPosition(*self.positions[record]))
            case "end":
                self.unacknowledged = set() if pick % 2 else set(range(len(self.positions)))
                work = subscription.reset(StartPosition(LATEST if pick % 2 else EARLIEST))
            case "skip":
                self.unacknowledged.difference_update(sorted(self.unacknowledged)[: 1 + pick % 6])
                work = subscription.skip(1 + pick % 6)
            case "clear":
                self.unacknowledged.clear()
                work = subscription.clear_backlog()
            case _:
                work = subscription.rewind()
        try:
            self.run(self.set_position(work))
        except StorageFailed:
            assert how == "skip", "to skip is to read"
            self.unacknowledged = before
            self.run(until_idle())

    async def set_position(self, work: Coroutine[Any, Any, None]) -> None:
        self.steps.reads.open()
        known = tuple(self.clients)
        await work
        assert [] == self.clients
        assert all(client.ends == [None] for client in known)
        self.durable = set(self.unacknowledged)
        await until_idle()

    # Storage

    @rule(how=st.sampled_from(["hold", "release", "fail"]))
    def read(self, how: str) -> None:
        """From now on reads stay in flight, or end at once, or fail."""
        match how:
            case "hold":
                self.steps.reads.shut()
            case "release":
                self.steps.reads.open()
                self.run(until_idle())
            case _:
                self.fixture.engine.fail_next("read")

    @rule(how=st.sampled_from(["crash", "crash over an acknowledgement", "restart"]), pick=PICKS)
    def start_over(self, how: str, pick: int) -> None:
        """Cut the power, or close: that makes durable what has failed to be."""
        if how == "restart":
            self.durable = set(self.unacknowledged)
            self.run(self.start_again())
        else:
            self.run(self.crash_over(pick, has_lost=how != "crash"))
            self.unacknowledged = set(self.durable)

    async def crash_over(self, pick: int, *, has_lost: bool) -> None:
        lost = []
        if has_lost and self.clients:
            client = self.pick(pick)
            self.steps.writes.shut()
            records = self.some_of(client, [pick, pick >> 3])
            lost = [asyncio.ensure_future(client.acknowledge(*map(str, records)))]
            await asyncio.sleep(0)
        self.fixture.engine.drop_unsynced()
        await self.start_again()
        for outcome in await asyncio.gather(*lost, return_exceptions=True):
            assert outcome is None or isinstance(outcome, SubscriptionsError)

    async def start_again(self) -> None:
        self.steps.open()
        await self.fixture.close()
        assert [] == self.clients
        self.fixture = PartitionFixture(self.fixture.engine, self.clock)
        await self.open()

    # What holds

    @precondition(lambda self: self.clients)
    @rule()
    def everybody_gets_everything(self) -> None:
        """With permits, every unacknowledged record is delivered, or follows one that is."""
        self.run(self.drain())

    async def drain(self) -> None:
        self.steps.reads.open()
        for _ in range(30):
            for client in self.clients:
                client.consumer.add_permits(100)
            self.clock.advance(10_000)
            await until_idle()
            with_somebody: set[int] = set().union(*(client.held for client in self.clients))
            if with_somebody == self.unacknowledged:
                return
            assert with_somebody < self.unacknowledged
            for client in self.clients:
                records = [str(each) for each in client.held & self.unacknowledged]
                self.unacknowledged -= client.held
                client.held.clear()
                await client.acknowledge(*records)
                self.durable = set(self.unacknowledged)
        raise AssertionError(f"{sorted(self.unacknowledged)} are with no consumer")

    @invariant()
    def unacknowledged_is_known(self) -> None:
        if not hasattr(self, "subscription"):
            return
        cursor = self.subscription.cursor
        for number, (position, index, _) in enumerate(self.positions):
            left = cursor.batch_indexes(position)
            is_unacknowledged = not cursor.state.is_acknowledged(position) and (
                left is None or index in left
            )
            assert is_unacknowledged is (number in self.unacknowledged), number
        stats = self.subscription.stats()
        assert tuple(client.name for client in self.clients) == stats.consumers
        held = sum(len(client.held & self.unacknowledged) for client in self.clients)
        if self.wanted in {SHARED, KEY_SHARED}:
            assert held == stats.unacknowledged

    def teardown(self) -> None:
        if hasattr(self, "subscription"):
            self.steps.open()
            self.run(self.fixture.close())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


TestSubscriptionMachine = SubscriptionMachine.TestCase
TestSubscriptionMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
