"""What handlers ask for, built over a store."""

from kledger.gateway.config import GatewayConfig
from kledger.gateway.coordinator.group_messages import RequestingMember
from kledger.gateway.coordinator.transactions.txn_state import InitProducerId
from kledger.gateway.opening import open_services
from kledger.ledger import LedgerStore
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.offsets import NO_EXPIRY, CommittedOffset, TopicPartition
from kledger.runtime.entropy import SeededEntropy
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.topics.registry import TopicRegistry


async def test_groups_and_transactions_are_there_again_after_a_restart() -> None:
    engine, clock = FaultyEngine(None), ManualClock(1_000)
    producer_ids = []
    for start in range(2):
        supervisor = Supervisor()
        async with LedgerStore.open(None, engine=engine, clock=clock) as store:
            registry = await TopicRegistry.open(store, None, clock)
            topic = registry.get("t") or await registry.create("t", partitions=1)
            services = open_services(
                store,
                registry,
                config=GatewayConfig(),
                clock=clock,
                timers=Timers(clock, supervisor),
                supervisor=supervisor,
                entropy=SeededEntropy(1),
            )
            assert start == len(services.transactions.records())
            assert start == services.groups.group_count
            _, producer = await services.transactions.initialise(InitProducerId("x", 1_000))
            assert start == producer.epoch
            producer_ids.append(producer.producer_id)
            kept = CommittedOffset(1, -1, "", 0, NO_EXPIRY, topic.id)
            await services.groups.offsets.commit(
                "g", RequestingMember("", -1), [(TopicPartition("t", 0), kept)]
            )
            for _ in range(2):
                services.close()
            await registry.close()
            await supervisor.close()
    assert producer_ids[0] == producer_ids[1]
