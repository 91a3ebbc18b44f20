"""Opening: builds what handlers ask for, over a store and its topics.

Rule: everything that the coordinators keep is loaded here, and looked after from here on.
Must not know: listeners, settings beyond the gateway's, processes.
"""

from kledger.gateway.broker_settings import BrokerSettings
from kledger.gateway.client_metrics import ClientMetrics
from kledger.gateway.config import GatewayConfig
from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.groups import GroupCoordinator
from kledger.gateway.coordinator.producer_ids import ProducerIds
from kledger.gateway.coordinator.topic_catalog import RegistryCatalog
from kledger.gateway.coordinator.transactions import TransactionCoordinator, TransactionParts
from kledger.gateway.coordinator.txn_markers import TxnMarkers
from kledger.gateway.group_settings import GroupSettings
from kledger.gateway.quotas import Quotas
from kledger.gateway.services import Services
from kledger.gateway.telemetry import Telemetry
from kledger.ledger import LedgerStore
from kledger.runtime.clock import Clock
from kledger.runtime.entropy import Entropy
from kledger.runtime.metrics import Metrics
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.topics import TopicRegistry


def open_services(
    store: LedgerStore,
    registry: TopicRegistry,
    *,
    config: GatewayConfig,
    clock: Clock,
    timers: Timers,
    supervisor: Supervisor,
    entropy: Entropy,
    metrics: Metrics | None = None,
) -> Services:
    """Load groups, offsets and transactions, and begin to serve them."""
    group_config = GroupConfig.from_gateway(config)
    group_settings = GroupSettings(store, config, group_config)
    groups = GroupCoordinator.open(
        store,
        catalog=RegistryCatalog(registry),
        config=group_config,
        clock=clock,
        timers=timers,
        entropy=entropy,
    )
    producer_ids = ProducerIds(store)
    transactions = TransactionCoordinator(
        TransactionParts(
            store=store,
            offsets=groups.offsets,
            producer_ids=producer_ids,
            end_in=TxnMarkers(registry).end,
            config=config,
            clock=clock,
            timers=timers,
            supervisor=supervisor,
        )
    )
    transactions.start()
    client_metrics = ClientMetrics(store)
    telemetry = Telemetry(
        client_metrics,
        config=config,
        clock=clock,
        timers=timers,
        entropy=entropy,
        long_calls=store.long_calls,
    )
    return Services(
        registry=registry,
        groups=groups,
        producer_ids=producer_ids,
        transactions=transactions,
        quotas=Quotas(store, clock, config),
        broker_settings=BrokerSettings(store, registry, config),
        client_metrics=client_metrics,
        telemetry=telemetry,
        group_settings=group_settings,
        config=config,
        clock=clock,
        timers=timers,
        supervisor=supervisor,
        store=store,
        entropy=entropy,
        metrics=metrics or Metrics(),
    )
