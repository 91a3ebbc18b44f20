"""Services: the collaborators of all handlers, built once by `opening`.

Rule: handlers get their collaborators from here and from nowhere else; nothing is global.
Must not know: how the parts are built, or which handler uses which.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from kledger.gateway.wire.uuid_text import uuid_text
from kledger.runtime.entropy import Entropy, SystemEntropy
from kledger.runtime.metrics import Metrics
from kledger.security.audit import AuditLog

if TYPE_CHECKING:
    from kledger.gateway.brokers import Brokers
    from kledger.gateway.cluster_offsets import ClusterOffsets
    from kledger.gateway.config import GatewayConfig
    from kledger.gateway.configs.broker_settings import BrokerSettings
    from kledger.gateway.configs.client_metrics import ClientMetricsSubscriptions
    from kledger.gateway.configs.config_resources import ConfigResources
    from kledger.gateway.configs.group_settings import GroupSettings
    from kledger.gateway.coordinator.groups.group_coordinator import GroupCoordinator
    from kledger.gateway.coordinator.transactions.producer_ids import ProducerIds
    from kledger.gateway.coordinator.transactions.transaction_coordinator import (
        TransactionCoordinator,
    )
    from kledger.gateway.peers.remote_transactions import RemoteTransactions
    from kledger.gateway.quotas.client_quotas import ClientQuotas
    from kledger.gateway.telemetry.client_telemetry import ClientTelemetry
    from kledger.ledger import LedgerStore, TableStore
    from kledger.runtime.clock import Clock
    from kledger.runtime.tasks import Supervisor
    from kledger.runtime.timers import Timers
    from kledger.security.authorizer import Authorizer
    from kledger.security.delegation_tokens import DelegationTokens
    from kledger.security.users import Users
    from kledger.topics.registry import TopicRegistry
    from kledger.topics.retention import LowestCommittedOffset

CLUSTER_ID_KEY = b"gateway/cluster_id"

CatchUp: TypeAlias = Callable[[], Awaitable[None]]
"""Applies what other brokers have changed before the call, if that is possible soon."""


@dataclass(slots=True, kw_only=True)
class Services:
    """The collaborators of all handlers of one server.

    Attributes:
        brokers: those that clients are shown.
        cluster_offsets: what groups of all brokers have committed; None: there is no other broker.
        remote_transactions: those that other brokers coordinate; None: there is no other broker.
        catch_up: with what other brokers have changed; None: there is no other broker.
        is_current: whether no other broker can have taken everything over; None: none ever does.
        authorizer: decides what clients may do; None: every client may do everything.
        audit: logs what clients were refused, and what they changed.
    """

    registry: "TopicRegistry"
    groups: "GroupCoordinator"
    producer_ids: "ProducerIds"
    transactions: "TransactionCoordinator"
    quotas: "ClientQuotas"
    users: "Users"
    delegation_tokens: "DelegationTokens"
    broker_settings: "BrokerSettings"
    client_metrics: "ClientMetricsSubscriptions"
    telemetry: "ClientTelemetry"
    group_settings: "GroupSettings"
    configs: "ConfigResources"
    config: "GatewayConfig"
    clock: "Clock"
    timers: "Timers"
    supervisor: "Supervisor"
    store: "LedgerStore"
    brokers: "Brokers"
    cluster_offsets: "ClusterOffsets | None" = None
    remote_transactions: "RemoteTransactions | None" = None
    catch_up: CatchUp | None = None
    is_current: Callable[[], bool] | None = None
    authorizer: "Authorizer | None" = None
    audit: AuditLog = field(init=False)
    entropy: Entropy = field(default_factory=SystemEntropy)
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        """Begin the audit log."""
        self.audit = AuditLog(self.clock)

    @property
    def rules_version(self) -> int:
        """The version of the access rules; always 0 without an authorizer."""
        return 0 if self.authorizer is None else self.authorizer.version

    @property
    def lowest_committed(self) -> "LowestCommittedOffset":
        """What retention asks about groups."""
        return (self.cluster_offsets or self.groups.offsets).lowest_committed

    @property
    def log_dir(self) -> str:
        """The folder of all partitions, as admin responses name it."""
        return log_dir_of(self.store)

    def close(self) -> None:
        """Answer the clients that wait for a coordinator, and stop its timers. Idempotent."""
        self.transactions.close()
        self.groups.close()
        if self.remote_transactions is not None:
            self.remote_transactions.close()


def log_dir_of(store: "LedgerStore") -> str:
    """Return the folder of all partitions, as admin responses name it."""
    return "memory" if store.path is None else str(store.path)


async def load_cluster_id(tables: "TableStore", entropy: Entropy) -> str:
    """Return the stored id of this cluster, or store a new one and return it.

    It has the form of Kafka's ids.
    """
    async with tables.change_lock():
        stored = tables.get_row(CLUSTER_ID_KEY)
        if stored is not None:
            return stored.decode("ascii")
        cluster_id = uuid_text(entropy.uuid4())
        await tables.put_rows([(CLUSTER_ID_KEY, cluster_id.encode("ascii"))])
        return cluster_id
