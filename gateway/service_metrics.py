"""Gauges of a server: topics, groups, transactions, memory.

Rule: a gauge is computed when it is read; nothing is counted for it.
Must not know: how metrics are shown.
"""

from kledger.gateway.services import Services


def show_services(services: Services) -> None:
    """Register the gauges of a server."""
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
