"""A partition with subscriptions, over a store in memory, and consumers that record deliveries.

Entries are record batches; the values of their records are what tests talk about.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache

from kledger.batches.reader import iterate_records
from kledger.ledger import (
    EARLIEST,
    LedgerStore,
    ManagedLedger,
    ManagedLedgerConfig,
    Position,
    StoreConfig,
)
from kledger.ledger.commits.store_threads import StoreThreads
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.runtime.signal import Signal
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.subscriptions.errors import SubscriptionsError
from kledger.subscriptions.model import (
    Acknowledgement,
    ConsumerOptions,
    Delivery,
    RecordMask,
    StartPosition,
    SubscriptionType,
)
from kledger.subscriptions.partition_subscriptions import PartitionSubscriptions
from kledger.subscriptions.subscription import Subscription, SubscriptionConsumer
from tests.batches.words import batch

BEGINNING = StartPosition(EARLIEST)
PERMITS = 1_000
SECONDS_MAX = 120
"""Ends a test that hangs, and nothing waits for it otherwise."""


class PartitionFixture:
    """One partition, `orders`, from the engine up to its subscriptions."""

    def __init__(self, engine: FaultyEngine, clock: ManualClock) -> None:
        self.engine = engine
        self.clock = clock
        self.supervisor = Supervisor()
        self.timers = Timers(clock, self.supervisor)
        self.store: LedgerStore
        self.ledger: ManagedLedger
        self.partition: PartitionSubscriptions

    async def open(
        self,
        *,
        threads: StoreThreads | None = None,
        store_config: StoreConfig = StoreConfig(),  # noqa: B008 - frozen
        config: ManagedLedgerConfig = ManagedLedgerConfig(),  # noqa: B008 - frozen
    ) -> None:
        self.store = await LedgerStore.open(
            None, engine=self.engine, clock=self.clock, config=store_config, threads=threads
        )
        await self.open_partition("orders", config)

    async def open_partition(self, name: str, config: ManagedLedgerConfig) -> None:
        """Use another partition from now on."""
        self.ledger = await self.store.open_managed_ledger(name, config=config)
        self.partition = PartitionSubscriptions(
            self.ledger,
            partition_index=0,
            clock=self.clock,
            timers=self.timers,
            supervisor=self.supervisor,
            compute_pool=self.store.compute_pool,
        )

    async def add(self, *values: str) -> Position:
        """Append one batch."""
        return await self.ledger.add_entry(bytes(batch(*values)), message_count=len(values))

    async def subscription(
        self, name: str = "s", *, start: StartPosition = BEGINNING, is_durable: bool = True
    ) -> Subscription:
        return await self.partition.open(name, start=start, is_durable=is_durable)

    async def unacknowledged(self, name: str = "s") -> list[str]:
        """The values of the unacknowledged records of a subscription."""
        subscription = self.partition.get(name)
        assert subscription is not None
        return [value for delivery in await subscription.peek(999) for value in values_of(delivery)]

    async def quiet(self) -> None:
        """Let everything that is due happen."""
        for _ in range(3):
            for _ in range(10):
                await asyncio.sleep(0)
            await self.store.flush()

    async def crash(self) -> None:
        """Lose what was not synced, and start again on what is left."""
        self.engine.drop_unsynced()
        await self.close()
        self.supervisor = Supervisor()
        self.timers = Timers(self.clock, self.supervisor)
        await self.open()

    async def restart(self) -> None:
        await self.close()
        self.supervisor = Supervisor()
        self.timers = Timers(self.clock, self.supervisor)
        await self.open()

    async def close(self) -> None:
        await self.partition.close()
        await self.store.close()
        await self.supervisor.close()


@asynccontextmanager
async def partition_fixture() -> AsyncIterator[PartitionFixture]:
    """Open one, and close it."""
    made = PartitionFixture(FaultyEngine(None), ManualClock(1_000_000))
    await made.open()
    try:
        yield made
    finally:
        made.engine.release_waiting()
        await made.close()


class Client:
    """A consumer that records its deliveries, and how it was disconnected."""

    def __init__(self, name: str = "c") -> None:
        self.name = name
        self.fault_in = ""
        """The callback that raises when it is called next."""
        self.deliveries: list[Delivery] = []
        self.ends: list[SubscriptionsError | None] = []
        self.consumer: SubscriptionConsumer
        self._arrived = Signal()

    async def join(
        self,
        subscription: Subscription,
        wanted: SubscriptionType = SubscriptionType.EXCLUSIVE,
        *,
        permits: int = PERMITS,
        failover_delay_ms: int = 0,
    ) -> "Client":
        self.consumer = await subscription.add_consumer(
            ConsumerOptions(name=self.name),
            wanted,
            deliver=self._take,
            on_ended=self.ended,
            failover_delay_ms=failover_delay_ms,
        )
        if permits:
            self.consumer.add_permits(permits)
        return self

    def _take(self, deliveries: Sequence[Delivery]) -> None:
        self._maybe_fail("deliver")
        self.deliveries += deliveries
        self._arrived.notify()

    def ended(self, error: SubscriptionsError | None) -> None:
        self._maybe_fail("ended")
        self.ends.append(error)

    def _maybe_fail(self, callback: str) -> None:
        if callback == self.fault_in:
            self.fault_in = ""
            raise RuntimeError(f"a fault in {callback}")

    @property
    def values(self) -> list[str]:
        """The values of all delivered records, in order."""
        return [value for delivery in self.deliveries for value in values_of(delivery)]

    async def got(self, count: int) -> list[str]:
        """Wait for that many records."""
        async with asyncio.timeout(SECONDS_MAX):
            version = self._arrived.version
            while len(self.values) < count:
                version = await self._arrived.wait_beyond(version)
        return self.values

    def masks_of(self, *values: str) -> list[tuple[Delivery, int]]:
        """The deliveries that contain these values, with their masks."""
        return [
            (delivery, mask)
            for delivery in self.deliveries
            if (mask := mask_in(delivery, values) & masked(delivery))
        ]

    async def acknowledge(self, *values: str) -> None:
        """Acknowledge delivered records, in one call."""
        await self.consumer.acknowledge(
            [
                Acknowledgement(delivery.position, mask, len(all_values(delivery)))
                for delivery, mask in self.masks_of(*values)
            ]
        )

    async def acknowledge_upto(self, value: str) -> None:
        """Acknowledge everything up to a delivered record."""
        delivery, mask = self.masks_of(value)[-1]
        await self.consumer.acknowledge_upto(
            Acknowledgement(delivery.position, 2 * mask - 1, len(all_values(delivery)))
        )

    def nack(self, *values: str) -> None:
        """Acknowledge delivered records negatively."""
        self.consumer.redeliver(
            [RecordMask(delivery.position, mask) for delivery, mask in self.masks_of(*values)]
        )


def all_values(delivery: Delivery) -> tuple[str, ...]:
    """The values of all records of the entry."""
    return _decoded(bytes(delivery.data))


@cache
def _decoded(data: bytes) -> tuple[str, ...]:
    return tuple((record.value or b"").decode() for record in iterate_records(data))


def masked(delivery: Delivery) -> int:
    """The mask of the delivered records, without bits beyond the batch."""
    return delivery.records & ((1 << len(all_values(delivery))) - 1)


def mask_in(delivery: Delivery, values: Sequence[str]) -> int:
    """The mask of these values in the entry."""
    return sum(1 << index for index, value in enumerate(all_values(delivery)) if value in values)


def values_of(delivery: Delivery) -> list[str]:
    """The values of the delivered records."""
    records = masked(delivery)
    return [value for index, value in enumerate(all_values(delivery)) if records >> index & 1]
