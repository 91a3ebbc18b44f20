"""What a server has at a moment: topics, groups, transactions, memory.

Rule: read when somebody looks; nothing is counted for it.
Must not know: who looks.
"""

from kledger.gateway.services import Services


def show_services(services: Services) -> None:
    """Let the metrics of a server tell of what it has."""
    gauge, registry = services.metrics.gauge, services.registry
    gauge("topics", lambda: len(registry.all()), "topics")
    gauge(
        "partitions",
        lambda: sum(each.partition_count for each in registry.all()),
        "partitions of all topics",
    )
    gauge("groups", lambda: services.groups.group_count, "consumer groups")
    gauge("transactional_ids", lambda: len(services.transactions.records()), "transactional ids")
    gauge(
        "cached_bytes", lambda: services.store.cached_bytes, "bytes of the newest entries in memory"
    )
