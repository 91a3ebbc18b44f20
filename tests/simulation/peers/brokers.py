"""Brokers: two that ask each other, each with a store of its own, which end and begin again.

Rule: what brokers share is one table in memory that outlives them; all else is read from their
stores at each start. Broker K leads the partitions and coordinates the shards with remainder K.
Must not know: what clients do.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from kledger.gateway.config import GatewayConfig
from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.groups.group_coordinator import GroupCoordinator
from kledger.gateway.coordinator.transactions.producer_ids import ProducerIds
from kledger.gateway.coordinator.transactions.transaction_coordinator import (
    TransactionCoordinator,
    TransactionDependencies,
)
from kledger.gateway.coordinator.transactions.txn_markers import TransactionMarkers
from kledger.gateway.handlers import k24_add_partitions_to_txn, k27_write_txn_markers
from kledger.gateway.peers.cluster_markers import ClusterMarkers
from kledger.gateway.peers.peers import Peers
from kledger.gateway.peers.remote_transactions import RemoteTransactions
from kledger.gateway.produce.transaction_verification import TransactionVerification
from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.header import decode_request_header, response_prefix
from kledger.ledger import LedgerStore, StoreConfig
from kledger.ledger.commits.committer import RowsDone
from kledger.ledger.engine.base import Row
from kledger.ledger.table_store import RowChanged
from kledger.ledger.testing import ClockPace
from kledger.runtime.containment import Containment
from kledger.runtime.entropy import SeededEntropy
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.topics import TopicRegistry
from kledger.topics.placement import Placement
from kledger.topics.registry import TopicCluster
from tests.gateway.coordinator.consumer_words import CatalogOfTest
from tests.simulation.clock import SimulatedClock
from tests.simulation.disk import Disk
from tests.simulation.engine import SimulatedEngine
from tests.simulation.faults import Faults
from tests.simulation.peers.network import Network
from tests.simulation.schedule import Schedule
from tests.simulation.threads import simulated_threads

BROKER_IDS = (0, 1)
PARTITIONS = 4
TOPIC = "t"
HANDLERS = {27: k27_write_txn_markers, 24: k24_add_partitions_to_txn}


class SharedRows:
    """What the tables of all brokers have in common, and who follows."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.lock = asyncio.Lock()
        self.views: list[TablesView] = []


class TablesView:
    """The `TableStore` of one broker: every change is seen by all at once."""

    def __init__(self, shared: SharedRows, containment: Containment) -> None:
        self.containment = containment
        self.followers: list[tuple[bytes, RowChanged]] = []
        self._shared = shared
        shared.views.append(self)

    def get_row(self, key: bytes) -> bytes | None:
        return self._shared.rows.get(key)

    def scan_rows(self, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        return sorted(each for each in self._shared.rows.items() if each[0].startswith(prefix))

    def append_rows_nowait(self, rows: Sequence[Row], done: RowsDone) -> None:
        asyncio.get_running_loop().call_soon(self._write, rows, done)

    append_rows_lazily = append_rows_nowait

    async def put_rows(self, rows: Sequence[Row]) -> None:
        self._write(rows, lambda _: None)

    def _write(self, rows: Sequence[Row], done: RowsDone) -> None:
        for key, value in rows:
            if value is None:
                self._shared.rows.pop(key, None)
            else:
                self._shared.rows[key] = value
        done(None)
        for view in self._shared.views:
            for prefix, changed in view.followers if view is not self else ():
                for key, value in rows:
                    if key.startswith(prefix):
                        changed(key, value)

    def change_lock(self) -> AbstractAsyncContextManager[None]:
        @asynccontextmanager
        async def locked() -> AsyncIterator[None]:
            async with self._shared.lock:
                yield

        return _Reusable(locked)

    def follow(self, prefix: bytes, changed: RowChanged) -> None:
        self.followers.append((prefix, changed))

    def end(self) -> None:
        self._shared.views.remove(self)


class _Reusable(AbstractAsyncContextManager[None]):
    """A lock that may be taken again and again."""

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        self._make = make
        self._taken: list[AbstractAsyncContextManager[None]] = []

    async def __aenter__(self) -> None:
        made = self._make()
        await made.__aenter__()
        self._taken.append(made)

    async def __aexit__(self, *error: Any) -> None:
        await self._taken.pop().__aexit__(*error)


class _Division:
    """Which broker coordinates what: `ClusterBrokers` without addresses."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id

    def coordinator_id(self, shard: int) -> int:
        return BROKER_IDS[shard % len(BROKER_IDS)]

    def coordinated_shards(self, count: int) -> Collection[int]:
        return [each for each in range(count) if self.coordinator_id(each) == self.broker_id]


@dataclass(slots=True, eq=False)
class PeerBroker:
    """One life of a broker."""

    broker_id: int
    supervisor: Supervisor
    store: LedgerStore
    tables: TablesView
    registry: TopicRegistry
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    remote: RemoteTransactions
    verification: TransactionVerification
    ended: asyncio.Future[None]
    """Done when its clients lose their connections."""

    async def answer(self, frame: memoryview) -> bytes:
        """Answer a request of a peer, as its connection would."""
        header = decode_request_header(frame)
        handler = HANDLERS[header.api_key]
        messages = import_module(
            f"kledger.gateway.wire.messages.{handler.__name__.rpartition('.')[2]}"
        )
        request = decode(messages.REQUEST, header.api_version, frame, header.body_start)
        context = SimpleNamespace(services=self, version=header.api_version)
        body = encode(await handler.handle(cast(Any, context), request), header.api_version)
        key, version = header.api_key, header.api_version
        return response_prefix(header.correlation_id, key, version, len(body)) + body


class SimulatedPeers:
    """Both brokers, over their disks."""

    def __init__(self, random: Random, schedule: Schedule, clock: SimulatedClock) -> None:
        self.network = Network(random, clock, self._serve)
        self.running: dict[int, PeerBroker] = {}
        self.restarts = 0
        self._random = random
        self._schedule = schedule
        self._clock = clock
        self._disks = {each: Disk() for each in BROKER_IDS}
        self._epochs = dict.fromkeys(BROKER_IDS, 0)
        self._shared = SharedRows()
        self._moving = {each: asyncio.Lock() for each in BROKER_IDS}

    async def start(self) -> None:
        for each in BROKER_IDS:
            await self._open(each)
        leaders = [BROKER_IDS[index % len(BROKER_IDS)] for index in range(PARTITIONS)]
        await self.running[0].registry.create(TOPIC, partitions=PARTITIONS, assigned=leaders)

    async def restart(self, broker_id: int, away_ms: int) -> None:
        """End a broker: its peers lose their connections, and it what it has not stored."""
        async with self._moving[broker_id]:
            self.restarts += 1
            await self._end(self.running.pop(broker_id))
            await self._clock.sleep(away_ms)
            await self._open(broker_id)

    async def close(self) -> None:
        for broker_id in BROKER_IDS:
            async with self._moving[broker_id]:
                await self._end(self.running.pop(broker_id))

    def _serve(self, broker_id: int) -> Callable[[memoryview], Any] | None:
        broker = self.running.get(broker_id)
        return None if broker is None else broker.answer

    async def _end(self, broker: PeerBroker) -> None:
        broker.ended.set_result(None)
        self.network.cut_off(broker.broker_id)
        broker.remote.close()
        broker.transactions.close()
        broker.groups.close()
        broker.tables.end()
        await broker.registry.close()
        await broker.supervisor.close()
        await broker.store.close()

    async def _open_store(self, broker_id: int) -> LedgerStore:
        clock, schedule = self._clock, self._schedule
        engine = SimulatedEngine(
            self._disks[broker_id],
            Faults(Random(0), {}, clock),
            schedule,
            checkpoint_groups=20,
            resident=1.0,
        )
        return await LedgerStore.open(
            None,
            config=StoreConfig(durability="fsync"),
            clock=clock,
            engine=engine,
            threads=simulated_threads(schedule),
            start_pace=partial(ClockPace, clock),
        )

    async def _open(self, broker_id: int) -> None:
        clock, store = self._clock, await self._open_store(broker_id)
        self._epochs[broker_id] += 1
        supervisor = Supervisor(self._schedule.interrupt, store.containment)
        timers, division = Timers(clock, supervisor), cast(Any, _Division(broker_id))
        entropy = SeededEntropy(self._random.getrandbits(32))
        tables = TablesView(self._shared, store.containment)
        registry = await TopicRegistry.open(
            store,
            clock=clock,
            entropy=entropy,
            cluster=TopicCluster(tables, Placement(broker_id, BROKER_IDS)),
            leader_epoch=self._epochs[broker_id],
        )
        groups = GroupCoordinator.open(
            store,
            catalog=CatalogOfTest(t=PARTITIONS),
            config=GroupConfig(group_initial_rebalance_delay_ms=0),
            clock=clock,
            timers=timers,
            entropy=entropy,
            coordinated=division.coordinated_shards,
        )
        peers = Peers(
            lambda target: self.network.connect_to(broker_id, target),
            clock=clock,
            timers=timers,
            supervisor=supervisor,
        )
        markers = ClusterMarkers(
            TransactionMarkers(registry, groups.offsets),
            registry=registry,
            offsets=groups.offsets,
            brokers=division,
            peers=peers,
        )
        transactions = TransactionCoordinator(
            TransactionDependencies(
                store=store,
                offsets=groups.offsets,
                producer_ids=ProducerIds(tables),
                write_markers=markers.end,
                write_group_markers=markers.end_groups,
                config=GatewayConfig(),
                clock=clock,
                timers=timers,
                supervisor=supervisor,
                coordinated=division.coordinated_shards,
            )
        )
        transactions.start()
        remote = RemoteTransactions(transactions, division, peers)
        services = SimpleNamespace(transactions=transactions, remote_transactions=remote)
        self.running[broker_id] = PeerBroker(
            broker_id, supervisor, store, tables, registry, groups, transactions, remote,
            verification=TransactionVerification(cast(Any, services)),
            ended=asyncio.get_running_loop().create_future(),
        )  # fmt: skip
