"""The registry as groups see it."""

from kledger.gateway.coordinator.consumer_messages import TopicMetadata
from kledger.gateway.coordinator.groups.topic_catalog import RegistryCatalog
from tests.gateway.handlers.group_bench import group_bench


async def test_catalog_follows_the_registry() -> None:
    async with group_bench() as bench:
        registry = bench.services.registry
        catalog = RegistryCatalog(registry)
        epoch = catalog.epoch
        assert TopicMetadata("t", bench.topic.id, 2) == catalog.find("t")
        assert catalog.find("u") is None
        await registry.create_partitions("t", 3)
        await registry.create("u", partitions=1)
        assert epoch < catalog.epoch
        grown = catalog.find("t")
        assert grown is not None
        assert 3 == grown.partition_count
        assert ["t", "u"] == list(catalog.names())
