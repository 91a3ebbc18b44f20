"""Which clusters a broker refuses."""

from dataclasses import replace

import pytest

from kledger.ledger.cluster.database import (
    FORMAT,
    FORMAT_OF_NODES,
    ClusterDescription,
    DatabaseUnusable,
)
from kledger.ledger.cluster.requirements import check_cluster, loss_risks

STORE = "s3://bucket/prefix"
SAFE = ClusterDescription(
    cluster_id="c", incarnation="i", store=STORE, format=FORMAT, epoch=0, owner=None,
    sessions=(), synchronous="ANY 1 (a, b)",
)  # fmt: skip
ASYNCHRONOUS = replace(SAFE, synchronous="")
UNSYNCED = replace(SAFE, loses_on_crash=("fsync = off",))


def test_safe_cluster_is_accepted() -> None:
    check_cluster(SAFE, store=STORE, accepts_loss=False)
    check_cluster(SAFE, store=f"{STORE}/", accepts_loss=False)
    assert [] == loss_risks(SAFE)


@pytest.mark.parametrize(
    ("cluster", "risk"),
    [
        (ASYNCHRONOUS, "a failover loses commits"),
        (UNSYNCED, "a crash of its machine loses commits"),
    ],
)
def test_database_that_may_lose_commits_is_refused_unless_that_is_accepted(
    cluster: ClusterDescription, risk: str
) -> None:
    with pytest.raises(DatabaseUnusable, match=f"{risk}.*cluster.sql.asynchronous=true"):
        check_cluster(cluster, store=STORE, accepts_loss=False)
    check_cluster(cluster, store=STORE, accepts_loss=True)


def test_other_format_and_other_store_are_refused() -> None:
    newer = FORMAT_OF_NODES + 1
    with pytest.raises(DatabaseUnusable, match=f"format {newer}, expected {FORMAT} or"):
        check_cluster(replace(SAFE, format=newer), store=STORE, accepts_loss=True)
    with pytest.raises(DatabaseUnusable, match="object store is s3://bucket/prefix, got s3://b"):
        check_cluster(SAFE, store="s3://b", accepts_loss=True)
