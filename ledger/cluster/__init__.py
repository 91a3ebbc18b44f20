"""A cluster of brokers without disks: an object store for entries, a database for their order.

Rule: nothing of it is imported by a server that has a data folder. This is what programs use of it.
"""

from kledger.ledger.cluster.cluster_metrics import show_cluster
from kledger.ledger.cluster.database import (
    ClusterDatabase,
    ClusterDescription,
    ClusterExists,
    DatabaseError,
    DatabaseUnavailable,
    DatabaseUnusable,
    OwnerObservation,
    SessionBroker,
    SessionFenced,
    UnknownOutcome,
)
from kledger.ledger.cluster.database_outage import DatabaseOutage
from kledger.ledger.cluster.nodes_database import (
    NODES_MAX,
    DescribedNode,
    DescribedServer,
    NodesDatabase,
    NodesObservation,
)
from kledger.ledger.cluster.owned_cluster import OwnedCluster
from kledger.ledger.cluster.postgres import PostgresDatabase
from kledger.ledger.cluster.requirements import check_cluster, loss_risks
from kledger.ledger.cluster.session_state import POLL_EVERY_MS, OwnerWatch, WatchStep
from kledger.ledger.cluster.shared_database import SharedDatabase
from kledger.ledger.cluster.standby import OwnedSession, Standby
from kledger.ledger.cluster.store_check import check_store
from kledger.ledger.offload.object_store import ObjectStore

__all__ = [
    "NODES_MAX",
    "POLL_EVERY_MS",
    "ClusterDatabase",
    "ClusterDescription",
    "ClusterExists",
    "DatabaseError",
    "DatabaseOutage",
    "DatabaseUnavailable",
    "DatabaseUnusable",
    "DescribedNode",
    "DescribedServer",
    "NodesDatabase",
    "NodesObservation",
    "ObjectStore",
    "OwnedCluster",
    "OwnedSession",
    "OwnerObservation",
    "OwnerWatch",
    "PostgresDatabase",
    "SessionBroker",
    "SessionFenced",
    "SharedDatabase",
    "Standby",
    "UnknownOutcome",
    "WatchStep",
    "check_cluster",
    "check_store",
    "loss_risks",
    "show_cluster",
]
