"""The registry as groups see it."""

from kledger.gateway.coordinator.consumer_messages import TopicMetadata
from kledger.gateway.coordinator.groups.topic_catalog import RegistryCatalog
from kledger.security.principal import Principal
from tests.gateway.authorized import authorizer_of, authorizing_gateway
from tests.gateway.handlers.group_bench import group_bench
from tests.security.acl_words import allow, rule

ALICE = Principal("alice")


async def test_catalog_follows_the_registry() -> None:
    async with group_bench() as bench:
        registry = bench.services.registry
        catalog = RegistryCatalog(registry, None)
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


async def test_catalog_without_rules_shows_everybody_everything() -> None:
    async with group_bench() as bench:
        catalog = RegistryCatalog(bench.services.registry, None)
        assert (0, True) == (catalog.rights_version, catalog.may_describe(ALICE, "10.0.0.1", "t"))


async def test_catalog_follows_the_rules() -> None:
    async with authorizing_gateway([rule("ALLOW", "READ", "TOPIC:t", host="10.0.0.1")]) as gateway:
        authorizer = authorizer_of(gateway)
        catalog = RegistryCatalog(gateway.services.registry, authorizer)
        version = catalog.rights_version
        assert version
        assert catalog.may_describe(ALICE, "10.0.0.1", "t")
        assert not catalog.may_describe(ALICE, "10.0.0.2", "t")
        assert not catalog.may_describe(ALICE, "10.0.0.1", "u")
        await authorizer.create([allow("DESCRIBE", "TOPIC:u")])
        assert catalog.may_describe(ALICE, "10.0.0.1", "u")
        assert version < catalog.rights_version
