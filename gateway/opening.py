"""Opening: builds the services of a server over its store and its topics.

Rule: the coordinators load their stored state here, and run their timers from here on.
Must not know: listeners, settings beyond the gateway's, processes.
"""

from typing import TYPE_CHECKING, NamedTuple

from kledger.gateway.brokers import Brokers, OneBroker
from kledger.gateway.config import GatewayConfig
from kledger.gateway.configs.broker_settings import BrokerSettings
from kledger.gateway.configs.client_metrics import ClientMetricsSubscriptions
from kledger.gateway.configs.config_resources import ConfigResources
from kledger.gateway.configs.group_settings import GroupSettings
from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.groups.group_coordinator import GroupCoordinator
from kledger.gateway.coordinator.groups.topic_catalog import RegistryCatalog
from kledger.gateway.coordinator.transactions.producer_ids import ProducerIds
from kledger.gateway.coordinator.transactions.transaction_coordinator import (
    TransactionCoordinator,
    TransactionDependencies,
)
from kledger.gateway.coordinator.transactions.txn_markers import TransactionMarkers
from kledger.gateway.quotas.client_quotas import ClientQuotas
from kledger.gateway.services import Services, log_dir_of
from kledger.gateway.telemetry.client_telemetry import ClientTelemetry
from kledger.ledger import LedgerStore, TableStore
from kledger.runtime.clock import Clock
from kledger.runtime.compute_pool import ComputePool
from kledger.runtime.entropy import Entropy
from kledger.runtime.metrics import Metrics
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.security.authorizer import STANDARD_AUTHORIZER, Authorizer, parse_super_users
from kledger.security.delegation_token_state import DelegationTokenConfig
from kledger.security.delegation_tokens import open_users
from kledger.topics import TopicRegistry
from kledger.topics.registry import TopicCluster

if TYPE_CHECKING:
    from kledger.gateway.cluster_brokers import ClusterBrokers


class Cluster(NamedTuple):
    """What a broker shares with others, and what it knows of them."""

    topics: TopicCluster
    brokers: "ClusterBrokers"

    @property
    def tables(self) -> TableStore:
        """The tables that brokers share."""
        return self.topics.tables


def open_services(
    store: LedgerStore,
    registry: TopicRegistry,
    *,
    cluster: Cluster | None = None,
    config: GatewayConfig,
    clock: Clock,
    timers: Timers,
    supervisor: Supervisor,
    entropy: Entropy,
    metrics: Metrics | None = None,
) -> Services:
    """Load groups, offsets, transactions and access rules, and begin to serve them."""
    tables, brokers = _shared(cluster, store, config)
    authorizer = _open_authorizer(tables, config, clock)
    group_config = GroupConfig.from_gateway(config)
    group_settings = GroupSettings(tables, config, group_config)  # timers of groups go by them
    groups = GroupCoordinator.open(
        store,
        catalog=RegistryCatalog(registry, authorizer),
        config=group_config,
        clock=clock,
        timers=timers,
        entropy=entropy,
        coordinated=brokers.coordinated_shards,
    )
    markers = TransactionMarkers(registry, groups.offsets)
    transactions = TransactionDependencies(
        store=store,
        offsets=groups.offsets,
        producer_ids=ProducerIds(tables),
        write_markers=markers.end,
        write_group_markers=markers.end_groups,
        config=config,
        clock=clock,
        timers=timers,
        supervisor=supervisor,
        coordinated=brokers.coordinated_shards,
    )
    client_metrics = ClientMetricsSubscriptions(tables)
    broker_settings = BrokerSettings(tables, registry, config, log_dir_of(store))
    pool, token = store.compute_pool, _token_config(config)
    users, tokens = open_users(tables, token, clock=clock, entropy=entropy, pool=pool)
    return Services(
        registry=registry,
        groups=groups,
        producer_ids=transactions.producer_ids,
        transactions=_start_transactions(transactions),
        quotas=ClientQuotas(tables, clock, config),
        users=users,
        delegation_tokens=tokens,
        broker_settings=broker_settings,
        client_metrics=client_metrics,
        telemetry=_open_telemetry(
            client_metrics, config, pool, clock, timers=timers, entropy=entropy
        ),
        group_settings=group_settings,
        configs=ConfigResources(registry, broker_settings, group_settings, client_metrics),
        config=config,
        clock=clock,
        timers=timers,
        supervisor=supervisor,
        store=store,
        authorizer=authorizer,
        entropy=entropy,
        metrics=metrics or Metrics(),
        brokers=brokers,
    )


def _shared(
    cluster: Cluster | None, store: LedgerStore, config: GatewayConfig
) -> tuple[TableStore, Brokers]:
    """Return what brokers share, and the brokers; a server that is alone has its own store."""
    return (store, OneBroker(config)) if cluster is None else (cluster.tables, cluster.brokers)


def _open_telemetry(
    subscriptions: ClientMetricsSubscriptions,
    config: GatewayConfig,
    compute_pool: ComputePool,
    clock: Clock,
    *,
    timers: Timers,
    entropy: Entropy,
) -> ClientTelemetry:
    return ClientTelemetry(
        subscriptions,
        config=config,
        clock=clock,
        timers=timers,
        entropy=entropy,
        compute_pool=compute_pool,
    )


def _start_transactions(parts: TransactionDependencies) -> TransactionCoordinator:
    transactions = TransactionCoordinator(parts)
    transactions.start()
    return transactions


def _open_authorizer(tables: TableStore, config: GatewayConfig, clock: Clock) -> Authorizer | None:
    """Load the access rules, if the settings switch them on; any other class is refused."""
    if not config.authorizer_class_name:
        return None
    if config.authorizer_class_name != STANDARD_AUTHORIZER:
        raise ValueError(
            f"authorizer.class.name: expected {STANDARD_AUTHORIZER} or nothing, got "
            f"{config.authorizer_class_name!r}"
        )
    return Authorizer(
        tables,
        clock,
        super_users=parse_super_users(config.super_users),
        allows_without_rules=config.allow_everyone_if_no_acl_found,
    )


def _token_config(config: GatewayConfig) -> DelegationTokenConfig:
    return DelegationTokenConfig(
        secret_key=config.delegation_token_secret_key,
        max_lifetime_ms=config.delegation_token_max_lifetime_ms,
        expiry_time_ms=config.delegation_token_expiry_time_ms,
    )
