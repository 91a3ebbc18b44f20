"""Namespaces: their topics, their settings, restarts and limits."""

import asyncio

import pytest

from kledger.ledger import UnreadableRow
from kledger.ledger.engine.errors import StorageWriteFailed
from kledger.ledger.testing import FaultyEngine
from kledger.topics.config.topic_config import TopicDefaults
from kledger.topics.errors import (
    InvalidConfig,
    InvalidNamespaceName,
    InvalidTopicName,
    NamespaceAlreadyExists,
    NamespaceNotDeletable,
    TooManyNamespaces,
    TopicsError,
    TopicStorageFailed,
    UnknownNamespace,
)
from kledger.topics.keys import NAMESPACE_KEYS
from kledger.topics.registry import TopicRegistry
from tests.batches.words import batch
from tests.topics.words import append, open_topics

AUTO = TopicDefaults(namespaces_auto_create=True)


async def test_namespaces_come_and_go() -> None:
    async with open_topics() as opened:
        registry = opened.registry
        assert ["public/default"] == registry.namespaces.all()
        await registry.create_namespace("shop/eu")
        await registry.create_namespace("shop/us")
        assert ["public/default", "shop/eu", "shop/us"] == registry.namespaces.all()
        await registry.delete_namespace("shop/us")
    async with open_topics(opened.engine) as again:
        assert ["public/default", "shop/eu"] == again.registry.namespaces.all()


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("shop/eu", NamespaceAlreadyExists), ("public/default", NamespaceAlreadyExists),
        ("shop", InvalidNamespaceName), ("a/b/c", InvalidNamespaceName),
    ],
)  # fmt: skip
async def test_what_cannot_be_created(name: str, error: type[TopicsError]) -> None:
    async with open_topics() as opened:
        await opened.registry.create_namespace("shop/eu")
        with pytest.raises(error):
            await opened.registry.create_namespace(name)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("shop/us", UnknownNamespace), ("shop", InvalidNamespaceName),
        ("public/default", NamespaceNotDeletable),
    ],
)  # fmt: skip
async def test_what_cannot_be_deleted(name: str, error: type[TopicsError]) -> None:
    async with open_topics() as opened:
        with pytest.raises(error):
            await opened.registry.delete_namespace(name)


async def test_topics_of_one_name_in_two_namespaces_are_two() -> None:
    async with open_topics() as opened:
        registry = opened.registry
        await registry.create_namespace("shop/eu")
        plain, other = await registry.create("orders"), await registry.create("shop/eu/orders")
        assert plain is not other
        assert other is registry.get("persistent://shop/eu/orders")
        assert plain is registry.get("persistent://public/default/orders")
        assert ["orders", "shop/eu/orders"] == [each.name for each in registry.all()]
        assert [other] == registry.topics_of("shop/eu")
        for topic, value in ((plain, "a"), (other, "b")):
            await append(await topic.open_partition(0), batch(value))
        with pytest.raises(NamespaceNotDeletable, match="has topics, expected none, got 1"):
            await registry.delete_namespace("shop/eu")
        await registry.delete("shop/eu/orders")
        await registry.delete_namespace("shop/eu")
        assert registry.get("orders") is plain
        assert registry.get("shop/eu/orders") is None


async def test_a_topic_needs_its_namespace() -> None:
    async with open_topics() as opened:
        with pytest.raises(UnknownNamespace, match=r"namespaces\.auto\.create"):
            await opened.registry.create("shop/eu/orders")
        with pytest.raises(InvalidTopicName):
            opened.registry.check_creation("shop/eu/orders")
        assert [] == opened.registry.all()


async def test_a_topic_creates_its_namespace_where_that_is_allowed() -> None:
    async with open_topics(defaults=AUTO) as opened:
        opened.registry.check_creation("shop/eu/orders")
        assert ["public/default"] == opened.registry.namespaces.all()
        await opened.registry.create("shop/eu/orders")
        await opened.registry.create("shop/eu/bills")
        assert ["public/default", "shop/eu"] == opened.registry.namespaces.all()
    async with open_topics(opened.engine) as again:
        assert again.registry.namespaces.exists("shop/eu")
        assert 2 == len(again.registry.topics_of("shop/eu"))


async def test_namespace_and_topic_are_created_together_or_not_at_all() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine, defaults=AUTO) as opened:
        engine.fail_next("commit", StorageWriteFailed("disk"))
        with pytest.raises(TopicStorageFailed):
            await opened.registry.create("shop/eu/orders")
        assert ["public/default"] == opened.registry.namespaces.all()
        assert [] == opened.registry.all()


async def test_settings_of_topic_namespace_and_server_are_resolved_one_by_one() -> None:
    defaults = TopicDefaults(
        configs={
            "log.retention.ms": "1",
            "log.retention.bytes": "1",
            "log.segment.bytes": "2000000",
        }
    )
    async with open_topics(defaults=defaults) as opened:
        registry = opened.registry
        await registry.create_namespace("shop/eu")
        topic = await registry.create("shop/eu/orders", configs={"retention.ms": "3"})
        other = await registry.create("orders")
        log = await topic.open_partition(0)
        await registry.alter_namespace_configs(
            "shop/eu", {"retention.ms": "2", "retention.bytes": "2"}
        )
        for config in (topic.config, log.config):
            assert (3, 2, 2_000_000) == (
                config.retention_ms, config.retention_bytes, config.segment_bytes
            )  # fmt: skip
        assert (1, 1) == (other.config.retention_ms, other.config.retention_bytes)
        await registry.alter_configs("shop/eu/orders", {"retention.ms": None})
        assert 2 == topic.config.retention_ms
        newer = await registry.create("shop/eu/bills")
        assert 2 == newer.config.retention_ms
    async with open_topics(opened.engine, defaults=defaults) as again:
        found = again.registry.get("shop/eu/orders")
        assert found is not None
        assert (2, 2) == (found.config.retention_ms, found.config.retention_bytes)
        assert {"retention.bytes": "2"} == await again.registry.alter_namespace_configs(
            "shop/eu", {"retention.ms": None}
        )
        assert (1, 2) == (found.config.retention_ms, found.config.retention_bytes)


async def test_settings_of_the_default_namespace_hold_for_plain_names() -> None:
    async with open_topics() as opened:
        topic = await opened.registry.create("orders")
        await opened.registry.alter_namespace_configs("public/default", {"retention.ms": "7"})
        assert 7 == topic.config.retention_ms
        await opened.registry.alter_namespace_configs("public/default", {"retention.ms": None})
        assert ["public/default"] == opened.registry.namespaces.all()
    async with open_topics(opened.engine) as again:
        with pytest.raises(NamespaceAlreadyExists):
            await again.registry.create_namespace("public/default")


async def test_refused_settings_change_nothing() -> None:
    async with open_topics() as opened:
        registry = opened.registry
        await registry.create_namespace("shop/eu")
        topic = await registry.create("shop/eu/orders", configs={"min.compaction.lag.ms": "9"})
        for name, changes, error in (
            ("shop/eu", {"nonsense": "1"}, InvalidConfig),
            ("shop/eu", {"retention.ms": "1", "segment.ms": "soon"}, InvalidConfig),
            ("shop/eu", {"retention.ms": "1", "max.compaction.lag.ms": "8"}, InvalidConfig),
            ("shop/us", {"retention.ms": "1"}, UnknownNamespace),
            ("shop", {"retention.ms": "1"}, InvalidNamespaceName),
        ):
            with pytest.raises(error):
                await registry.alter_namespace_configs(name, changes)
        assert {} == registry.namespaces.configs_of("shop/eu")
        assert 604_800_000 == topic.config.retention_ms


async def test_changes_wait_for_the_write_of_a_cancelled_one() -> None:
    """The second caller must see the namespace that the first one, cancelled, has created."""
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        hold = engine.hold_next("commit")
        first = asyncio.ensure_future(opened.registry.create_namespace("shop/eu"))
        await hold.reached()
        first.cancel()
        second = asyncio.ensure_future(opened.registry.create_namespace("shop/eu"))
        hold.release()
        with pytest.raises(NamespaceAlreadyExists):
            await second


async def test_namespaces_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kledger.topics.namespaces.NAMESPACES_MAX", 2)
    async with open_topics(defaults=AUTO) as opened:
        await opened.registry.create_namespace("a/a")
        await opened.registry.create("a/b/x")
        with pytest.raises(TooManyNamespaces, match="expected at most 2"):
            await opened.registry.create_namespace("a/c")
        with pytest.raises(TooManyNamespaces):
            await opened.registry.create("a/c/x")
        await opened.registry.alter_namespace_configs("public/default", {"retention.ms": "7"})


async def test_an_unreadable_namespace_is_named() -> None:
    async with open_topics() as opened:
        await opened.store.put_rows([(NAMESPACE_KEYS.encode("shop/eu"), b"\x63")])
        with pytest.raises(UnreadableRow, match="namespace row 'shop/eu': expected version 1"):
            await TopicRegistry.open(opened.store)
