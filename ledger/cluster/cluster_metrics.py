"""Metrics of an owner: its commits, and its requests to the object store.

Rule: counters are exposed as gauges over the numbers that other classes count; all begin at zero
with each takeover.
Must not know: how metrics are shown.
"""

from collections.abc import Callable

from kledger.ledger.cluster.cluster_engine import ClusterEngine
from kledger.ledger.cluster.commit_stream import CommitStream
from kledger.ledger.cluster.wal_index import WalIndex
from kledger.runtime.clock import boot_ms
from kledger.runtime.metrics import Metrics


def show_cluster(metrics: Metrics, stream: CommitStream, engine: ClusterEngine) -> None:
    """Show what an owner does, for as long as its server lives.

    Args:
        metrics: of its server.
        stream: its commits.
        engine: its engine, over that stream.
    """
    shown: dict[str, tuple[Callable[[], int], str]] = {
        "epoch": (lambda: stream.epoch, "epoch of the owner of the cluster"),
        "is_current": (
            lambda: int(engine.is_current()),
            "1 while no other broker can own the cluster",
        ),
        "unanswered_ms": (
            lambda: max(boot_ms() - stream.answered_at_ms, 0),
            "time since the last answered commit was sent",
        ),
        "commits": (lambda: stream.commit_count, "answered commits"),
        "commit_ms": (lambda: stream.commit_ms, "time until commits were answered"),
        "settled_commits": (
            lambda: stream.barrier_count,
            "commits whose outcome was unknown and had to be settled",
        ),
        "puts": (lambda: engine.writer.puts, "objects written"),
        "put_bytes": (lambda: engine.writer.put_bytes, "bytes of objects written"),
        "put_failures": (lambda: engine.writer.put_failures, "failed requests to write objects"),
        "second_puts": (
            lambda: engine.writer.hedges,
            "requests to write an object beside one that takes long",
        ),
        "gets": (lambda: engine.reader.gets, "ranges of objects read"),
        "get_bytes": (lambda: engine.reader.get_bytes, "bytes of objects read"),
        "inline_groups": (lambda: engine.encoder.inline_groups, "groups in the database"),
        "inline_bytes": (lambda: engine.encoder.inline_bytes, "bytes of groups in the database"),
        "rewritten_bytes": (
            lambda: engine.upkeep.rewritten_bytes,
            "bytes of groups that were written again to free objects",
        ),
        "deleted_objects": (lambda: engine.upkeep.deleted_objects, "objects deleted"),
        "garbage_objects": (
            lambda: engine.upkeep.garbage_objects,
            "objects that wait to be deleted",
        ),
        "cache_bytes": (lambda: engine.cache_bytes, "bytes of objects in memory"),
        "index_groups": (_of_index(engine, lambda index: len(index.files)), "groups in the index"),
        "index_blocks": (
            _of_index(engine, lambda index: index.block_count),
            "blocks in the index, with 32 bytes of memory each",
        ),
        "inline_alive_bytes": (
            _of_index(engine, lambda index: index.inline_bytes),
            "bytes of groups that are in the database now",
        ),
        "object_bytes": (
            _of_index(engine, lambda index: index.object_bytes),
            "bytes of the objects of groups",
        ),
        "dead_bytes": (
            _of_index(engine, lambda index: index.dead_bytes),
            "bytes of the objects of groups that nothing is read from",
        ),
    }
    for name, (read, about) in shown.items():
        metrics.gauge(f"cluster_{name}", read, about)


def _of_index(engine: ClusterEngine, question: Callable[[WalIndex], int]) -> Callable[[], int]:
    return lambda: engine.ask_index(question)
