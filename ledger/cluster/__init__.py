"""A cluster of brokers without disks: an object store for entries, a database for their order.

Rule: nothing of it is imported by a server that has a data folder. This is what programs use of it.
"""

from kledger.ledger.cluster.commit_stream import CommitStream, StreamStopped
from kledger.ledger.cluster.database import (
    AcquiredEpoch,
    ClusterDatabase,
    ClusterDescription,
    ClusterExists,
    CommitsLost,
    DatabaseError,
    DatabaseUnavailable,
    DatabaseUnusable,
    SessionBroker,
    SessionFenced,
    SessionId,
    UnknownOutcome,
)
from kledger.ledger.cluster.postgres import PostgresDatabase
from kledger.ledger.cluster.requirements import check_cluster, loss_risks
from kledger.ledger.cluster.session_state import LOOK_EVERY_MS, OwnerWatch, WatchStep

__all__ = [
    "LOOK_EVERY_MS",
    "AcquiredEpoch",
    "ClusterDatabase",
    "ClusterDescription",
    "ClusterExists",
    "CommitStream",
    "CommitsLost",
    "DatabaseError",
    "DatabaseUnavailable",
    "DatabaseUnusable",
    "OwnerWatch",
    "PostgresDatabase",
    "SessionBroker",
    "SessionFenced",
    "SessionId",
    "StreamStopped",
    "UnknownOutcome",
    "WatchStep",
    "check_cluster",
    "loss_risks",
]
