"""What an owner shows of its work."""

import re
from pathlib import Path

from kledger.ledger.cluster.cluster_metrics import show_cluster
from kledger.ledger.cluster.wal_gc_plan import GarbageLimits
from kledger.ledger.engine.base import CommitGroup
from kledger.runtime.metrics import Metrics
from tests.ledger.cluster.words import OBJECTS, ModelCluster

CLUSTER_PAGE = Path(__file__).parents[3] / "docs" / "CLUSTER.md"
SIZE = 5_000
KEPT = GarbageLimits(inline_age_ms=10**9)
"""Nothing is written again."""


def shown(cluster: ModelCluster, *groups: CommitGroup) -> dict[str, int]:
    """Return what an owner shows after it has committed groups."""
    engine = cluster.own()
    metrics = Metrics()
    show_cluster(metrics, engine._log.stream, engine)
    for group in groups:
        engine.commit(group, sync=True)
        engine.index(group)
    return {
        name.removeprefix("cluster_"): value
        for name, value in metrics.snapshot().items()
        if name.startswith("cluster_")
    }


def entries(ledger_id: int) -> CommitGroup:
    return CommitGroup(entries=[(ledger_id, 0, bytes(SIZE))])


def test_objects_are_counted_with_what_is_dead_in_them() -> None:
    found = shown(
        ModelCluster(limits=OBJECTS, garbage=KEPT),
        entries(7), entries(8), CommitGroup(drops=[7]),
    )  # fmt: skip
    assert (3, 2, 1) == (found["commits"], found["puts"], found["inline_groups"])
    assert (3, 1) == (found["index_groups"], found["index_blocks"])
    assert found["put_bytes"] == found["object_bytes"] > 2 * SIZE
    assert found["put_bytes"] == found["cache_bytes"]
    assert SIZE < found["dead_bytes"] < found["object_bytes"] - SIZE
    assert 0 < found["inline_alive_bytes"] < SIZE, "the group that drops a ledger"


def test_inline_groups_are_counted() -> None:
    found = shown(ModelCluster(garbage=KEPT), entries(7), entries(8))
    assert (2, 2) == (found["commits"], found["inline_groups"])
    assert found["inline_bytes"] == found["inline_alive_bytes"] > 2 * SIZE
    assert 0 == found["puts"] == found["object_bytes"] == found["dead_bytes"]


def test_every_metric_is_explained() -> None:
    page = CLUSTER_PAGE.read_text()
    for name in shown(ModelCluster()):
        # The page of metrics shows times in seconds.
        known = f"{name.removesuffix('_ms')}_seconds" if name.endswith("_ms") else name
        assert re.search(rf"\b{known}\b", page), known
