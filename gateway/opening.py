"""Opening: builds what handlers ask for, over a store and its topics.

Rule: everything that the coordinators keep is loaded here, and looked after from here on.
Must not know: listeners, settings beyond the gateway's, processes.
"""

from gateway.broker_settings import BrokerSettings
from gateway.client_metrics import ClientMetrics
from gateway.config import GatewayConfig
from gateway.coordinator.group_config import GroupConfig
from gateway.coordinator.groups import GroupCoordinator
from gateway.coordinator.producer_ids import ProducerIds
from gateway.coordinator.topic_catalog import RegistryCatalog
from gateway.coordinator.transactions import TransactionCoordinator, TransactionParts
from gateway.coordinator.txn_markers import TxnMarkers
from gateway.group_settings import GroupSettings
from gateway.quotas import Quotas
from gateway.services import Services
from gateway.telemetry import Telemetry
from ledger import LedgerStore
from runtime.clock import Clock
from runtime.entropy import Entropy
from runtime.metrics import Metrics
from runtime.tasks import Supervisor
from runtime.timers import Timers
from topics import TopicRegistry


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
