"""Opening: builds the services of a server over its store and its topics.

Rule: the coordinators load their stored state here, and run their timers from here on.
Must not know: listeners, settings beyond the gateway's, processes.
"""

from typing import TYPE_CHECKING

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
from kledger.security.delegation_tokens import DelegationTokens, open_users
from kledger.security.users import Users
from kledger.topics import TopicRegistry

if TYPE_CHECKING:
    from kledger.gateway.cluster import Cluster
    from kledger.gateway.cluster_offsets import ClusterOffsets
    from kledger.gateway.peers.cluster_markers import ClusterMarkers


def open_services(
    store: LedgerStore,
    registry: TopicRegistry,
    *,
    cluster: "Cluster | None" = None,
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
    group_settings = GroupSettings(tables, config, GroupConfig.from_gateway(config))
    groups = GroupCoordinator.open(
        store,
        catalog=RegistryCatalog(registry, authorizer),
        config=group_settings.groups,
        clock=clock,
        timers=timers,
        entropy=entropy,
        coordinated=brokers.coordinated_shards,
    )
    markers = _markers(cluster, registry, groups)
    parts = TransactionDependencies(
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
    transactions = _start_transactions(parts)
    pool = store.compute_pool
    subscriptions = ClientMetricsSubscriptions(tables)
    telemetry = _open_telemetry(subscriptions, pool, config, clock, timers, entropy)
    broker_settings = BrokerSettings(tables, registry, config, log_dir_of(store))
    users, tokens = _open_users(tables, pool, config, clock, entropy)
    return Services(
        registry=registry,
        groups=groups,
        producer_ids=parts.producer_ids,
        transactions=transactions,
        quotas=ClientQuotas(tables, clock, config),
        users=users,
        delegation_tokens=tokens,
        broker_settings=broker_settings,
        client_metrics=subscriptions,
        telemetry=telemetry,
        group_settings=group_settings,
        configs=ConfigResources(registry, broker_settings, group_settings, subscriptions),
        config=config,
        clock=clock,
        timers=timers,
        supervisor=supervisor,
        store=store,
        authorizer=authorizer,
        entropy=entropy,
        metrics=metrics or Metrics(),
        brokers=brokers,
        cluster_offsets=_cluster_offsets(cluster, registry, groups),
        remote_transactions=None if cluster is None else cluster.remote_transactions(transactions),
        catch_up=None if cluster is None else cluster.catch_up,
    )


def _shared(
    cluster: "Cluster | None", store: LedgerStore, config: GatewayConfig
) -> tuple[TableStore, Brokers]:
    """Return what brokers share, and the brokers; a server that is alone has its own store."""
    return (store, OneBroker(config)) if cluster is None else (cluster.tables, cluster.brokers)


def _markers(
    cluster: "Cluster | None", registry: TopicRegistry, groups: GroupCoordinator
) -> "TransactionMarkers | ClusterMarkers":
    local = TransactionMarkers(registry, groups.offsets)
    return local if cluster is None else cluster.markers(local, registry, groups.offsets)


def _cluster_offsets(
    cluster: "Cluster | None", registry: TopicRegistry, groups: GroupCoordinator
) -> "ClusterOffsets | None":
    return None if cluster is None else cluster.lowest_offsets(registry, groups.offsets)


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


def _open_telemetry(  # noqa: PLR0917 - passes everything on
    subscriptions: ClientMetricsSubscriptions,
    pool: ComputePool,
    config: GatewayConfig,
    clock: Clock,
    timers: Timers,
    entropy: Entropy,
) -> ClientTelemetry:
    return ClientTelemetry(
        subscriptions, pool, config=config, clock=clock, timers=timers, entropy=entropy
    )


def _open_users(
    tables: TableStore, pool: ComputePool, config: GatewayConfig, clock: Clock, entropy: Entropy
) -> tuple[Users, DelegationTokens]:
    token_config = _token_config(config)
    return open_users(tables, token_config, clock=clock, entropy=entropy, pool=pool)


def _token_config(config: GatewayConfig) -> DelegationTokenConfig:
    return DelegationTokenConfig(
        secret_key=config.delegation_token_secret_key,
        max_lifetime_ms=config.delegation_token_max_lifetime_ms,
        expiry_time_ms=config.delegation_token_expiry_time_ms,
    )
