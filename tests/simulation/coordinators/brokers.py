"""Brokers: two pairs of coordinators over one store, and which of them serves which shard.

Rule: a shard is attached by one broker at a time, as the placement of a cluster would see to it: a
broker that has begun to detach completes that before another attaches. Nothing else is coordinated
between the brokers: they have nothing in common but the store.
Must not know: what clients do.
"""

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from random import Random
from typing import Literal, TypeAlias

from kledger.gateway.config import GatewayConfig
from kledger.gateway.coordinator.coordinator_shards_state import shard_of
from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.groups.group_coordinator import GroupCoordinator
from kledger.gateway.coordinator.transactions.producer_ids import ProducerIds
from kledger.gateway.coordinator.transactions.transaction_coordinator import (
    TransactionCoordinator,
    TransactionDependencies,
)
from kledger.gateway.coordinator.transactions.txn_state import ProducerIdAndEpoch
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import LedgerStore
from kledger.offsets import TopicPartition
from kledger.runtime.entropy import SeededEntropy
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from tests.gateway.coordinator.consumer_words import CatalogOfTest
from tests.simulation.clock import SimulatedClock
from tests.simulation.coordinators.offsets_model import MarkersModel
from tests.simulation.faults import Faults
from tests.simulation.invariants import check

SHARDS = 4
REFUSES_MARKER = 0.2
"""Probability that a partition refuses a marker while there are faults."""
CONFIG = GroupConfig(group_initial_rebalance_delay_ms=0)

Kind: TypeAlias = Literal["groups", "transactions"]
Shard: TypeAlias = tuple[Kind, int]
KINDS: tuple[Kind, ...] = ("groups", "transactions")


@dataclass(slots=True, eq=False)
class Broker:
    """One pair of coordinators."""

    name: str
    groups: GroupCoordinator
    transactions: TransactionCoordinator

    def coordinator(self, kind: Kind) -> GroupCoordinator | TransactionCoordinator:
        return self.groups if kind == "groups" else self.transactions


@dataclass(slots=True)
class Ownership:
    """The broker that serves a shard.

    Attributes:
        owner: the broker that has attached it, or has not completed to detach it.
        is_moving: whether a move is under way.
        moves: how many have begun.
    """

    owner: Broker | None
    is_moving: bool = False
    moves: int = 0


class Cluster:
    """Two brokers of one process."""

    def __init__(
        self,
        *,
        store: LedgerStore,
        clock: SimulatedClock,
        random: Random,
        faults: Faults,
        supervisor: Supervisor,
        markers: MarkersModel,
    ) -> None:
        """Begin without brokers; `start` makes them."""
        self.catalog = CatalogOfTest(t=4)
        self._store = store
        self._clock = clock
        self._random = random
        self._faults = faults
        self._supervisor = supervisor
        self._timers = Timers(clock, supervisor)
        self._markers = markers
        self._producer_ids = ProducerIds(store)
        self.is_closed = False
        self.brokers: list[Broker] = []
        self.shards: dict[Shard, Ownership] = {}

    async def start(self) -> None:
        """Make both brokers; the first one attaches all shards."""
        for name in ("A", "B"):
            broker = self._open(name)
            if self.brokers:
                for kind in KINDS:
                    await broker.coordinator(kind).detach(range(SHARDS))
            broker.transactions.start()
            self.brokers.append(broker)
        first = self.brokers[0]
        self.shards = {
            (kind, number): Ownership(first) for kind in KINDS for number in range(SHARDS)
        }

    def close(self) -> None:
        self.is_closed = True
        for broker in self.brokers:
            broker.transactions.close()
            broker.groups.close()

    def _open(self, name: str) -> Broker:
        groups = GroupCoordinator.open(
            self._store,
            catalog=self.catalog,
            config=CONFIG,
            clock=self._clock,
            timers=self._timers,
            entropy=SeededEntropy(self._random.getrandbits(32)),
        )
        parts = TransactionDependencies(
            store=self._store,
            offsets=groups.offsets,
            producer_ids=self._producer_ids,
            write_markers=self._write_markers,
            write_group_markers=self._write_group_markers,
            config=GatewayConfig(),
            clock=self._clock,
            timers=self._timers,
            supervisor=self._supervisor,
        )
        return Broker(name, groups, TransactionCoordinator(parts))

    # Owners

    def ownership(self, kind: Kind, key: str) -> Ownership:
        return self.shards[kind, shard_of(key, SHARDS)]

    def serving(self, kind: Kind, key: str) -> Broker | None:
        """Return the broker that would not refuse a key."""
        found = [
            broker for broker in self.brokers if not broker.coordinator(kind).shards.error(key)
        ]
        check(len(found) <= 1, f"{kind}: {key} is served by two brokers")
        return found[0] if found else None

    def is_detached(self, broker: Broker, kind: Kind, key: str) -> bool:
        return bool(broker.coordinator(kind).shards.error(key))

    def committed(self, broker: Broker, group_id: str, partition: int) -> int | None:
        """Return the durable offset of a group that a broker serves."""
        found = broker.groups.offsets.committed(group_id, TopicPartition("t", partition))
        return None if found is None else found.offset

    def is_unstable(self, broker: Broker, group_id: str, partition: int) -> bool:
        return broker.groups.offsets.is_unstable(group_id, TopicPartition("t", partition))

    async def move(self, shards: Collection[Shard], target: Broker) -> None:
        """Detach shards of one kind where they are, and attach them at `target`."""
        (kind,) = {kind for kind, _ in shards}
        ownerships = {number: self.shards[kind, number] for _, number in shards}
        for each in ownerships.values():
            check(not each.is_moving, "a placement moves a shard once at a time")
            each.is_moving = True
            each.moves += 1
        try:
            for broker in self.brokers:
                numbers = [number for number, each in ownerships.items() if each.owner is broker]
                if numbers:
                    await broker.coordinator(kind).detach(numbers)
                    for number in numbers:
                        ownerships[number].owner = None
            await self._pause()
            for each in ownerships.values():
                each.owner = target  # from now on it may have begun to attach
            await target.coordinator(kind).attach(list(ownerships))
        finally:
            for each in ownerships.values():
                each.is_moving = False

    async def _pause(self) -> None:
        await self._clock.sleep(self._random.choice((0, 0, 1, 30)))

    # Markers

    async def _write_markers(
        self, partitions: Iterable[TopicPartition], producer: ProducerIdAndEpoch, is_commit: bool
    ) -> Mapping[TopicPartition, ErrorCode]:
        refused: dict[TopicPartition, ErrorCode] = {}
        await self._clock.sleep(self._random.choice((0, 1, 30, 400)))
        for each in sorted(partitions):
            if self._faults.is_on and self._random.random() < REFUSES_MARKER:
                refused[each] = ErrorCode.KAFKA_STORAGE_ERROR
            else:
                self._markers.take((producer.producer_id, producer.epoch), is_commit)
        return refused

    async def _write_group_markers(
        self, producer: ProducerIdAndEpoch, groups: Set[str], is_commit: bool
    ) -> Collection[str]:
        """Ask the owner of each group, as a broker would ask its peers."""
        elsewhere = set()
        for group in sorted(groups):
            await self._pause()
            broker = self.serving("groups", group)
            if broker is None:
                elsewhere.add(group)
            else:
                elsewhere |= await broker.groups.offsets.write_markers(
                    producer.producer_id, {group}, is_commit
                )
        return elsewhere
