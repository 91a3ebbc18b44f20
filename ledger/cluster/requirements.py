"""Requirements: whether a broker may use a cluster as it is described.

Rule: a database that may lose commits which it has answered is refused, unless the operator accepts
the loss. So is a cluster of another format or another object store.
Must not know: how a database is reached.
"""

from collections.abc import Sequence

from kledger.ledger.cluster.database import (
    FORMAT,
    FORMAT_OF_NODES,
    ClusterDescription,
    DatabaseUnusable,
)


def loss_risks(cluster: ClusterDescription) -> Sequence[str]:
    """Return why the database may lose commits that it has answered; empty: it does not."""
    risks = [f"a crash of its machine loses commits ({each})" for each in cluster.loses_on_crash]
    if not cluster.synchronous:
        risks.append("a failover loses commits (synchronous_standby_names is empty)")
    return risks


def check_cluster(cluster: ClusterDescription, *, store: str, accepts_loss: bool) -> None:
    """Check what a broker needs.

    Args:
        cluster: as the database describes it.
        store: the URL of the object store in the settings of the broker.
        accepts_loss: `cluster.sql.asynchronous` is set.

    Raises:
        DatabaseUnusable: in one line, with what to do.
    """
    if cluster.format not in (FORMAT, FORMAT_OF_NODES):
        raise DatabaseUnusable(
            f"the cluster has format {cluster.format}, expected {FORMAT} or {FORMAT_OF_NODES}: it "
            "belongs to another release of kledger"
        )
    if cluster.store.rstrip("/") != store.rstrip("/"):
        raise DatabaseUnusable(f"the cluster's object store is {cluster.store}, got {store}")
    if not accepts_loss and (risks := loss_risks(cluster)):
        raise DatabaseUnusable(
            f"the database may lose what was acknowledged: {'; '.join(risks)}. Give it a "
            "synchronous standby, or set cluster.sql.asynchronous=true to accept that"
        )
