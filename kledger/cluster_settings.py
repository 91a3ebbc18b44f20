"""Cluster settings: the settings of a server whose data is in a cluster without disks.

Rule: the data of an owner is in the cluster alone, so its settings have no folder; closed ledgers
go to a tier below the same URL, unless another one is named.
Must not know: sessions, how a cluster is served.
"""

from dataclasses import replace
from typing import Final

from kledger.ledger.cluster import (
    ClusterDatabase,
    ClusterDescription,
    DatabaseError,
    DatabaseUnusable,
    PostgresDatabase,
    SessionBroker,
    check_cluster,
)
from kledger.runtime.blocking import BlockingPool, BlockingRunner
from kledger.setting_values import joined_address
from kledger.settings import Settings
from kledger.wiring import CannotStart

TIER: Final = "tier"
"""Below the URL of the cluster's object store: the copies of closed ledgers."""
OFFLOAD_AT_ONCE: Final = {
    "kledger.offload.threshold.bytes": "0",
    "kledger.offload.deletion.lag.ms": "0",
}
"""Settings of topics, unless others are given: a closed ledger is better kept in the tier's format,
and the objects of the write-ahead log get free."""


async def describe_usable(
    settings: Settings, database: ClusterDatabase, pool: BlockingRunner
) -> ClusterDescription:
    """Return the cluster, if a server with these settings may serve it.

    Raises:
        CannotStart: the database is unavailable, or it or a setting is not usable.
    """
    store = settings.cluster.store
    assert store is not None, "no URL of an object store"
    try:
        cluster = await pool.run(database.describe)
        check_cluster(cluster, store=store, accepts_loss=settings.cluster.sql_asynchronous)
    except DatabaseError as error:
        raise CannotStart(
            f"cluster.url: {error}", is_mistake=isinstance(error, DatabaseUnusable)
        ) from error
    return cluster


async def count_nodes(settings: Settings) -> int:
    """Return how many nodes the cluster has; 1: one broker owns all of it. Raises CannotStart."""
    assert settings.cluster.url is not None, "no URL of a database"
    database, pool = PostgresDatabase(settings.cluster.url), BlockingPool(1)
    try:
        return (await describe_usable(settings, database, pool)).nodes
    finally:
        await pool.run(database.close)
        pool.close()


def session_broker_of(settings: Settings) -> SessionBroker:
    """Return what others see of this process."""
    server, kafka = settings.server, settings.kafka
    shown = kafka.advertised_addresses or kafka.listener_addresses or server.kafka or ""
    if not kafka.advertised_addresses and kafka.advertised_host:
        shown = joined_address(kafka.advertised_host, kafka.advertised_port)
    return SessionBroker(kafka.node_id, shown, server.native or "", server.admin or "")


def owner_settings(settings: Settings, cluster: ClusterDescription) -> Settings:
    """Return the settings of the server of an owner: its data is in the cluster alone."""
    url = settings.offload.url or f"{cluster.store.rstrip('/')}/{TIER}"
    return replace(
        settings,
        topics=replace(settings.topics, configs={**OFFLOAD_AT_ONCE, **settings.topics.configs}),
        server=replace(settings.server, memory=True),
        offload=replace(settings.offload, url=url),
        kafka=replace(settings.kafka, cluster_id=cluster.cluster_id),
    )
