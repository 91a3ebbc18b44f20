"""Topics by name and id, and their changes."""

import asyncio
from uuid import UUID

import pytest

from kledger.ledger import UnreadableRow
from kledger.ledger.engine.errors import StorageWriteFailed
from kledger.ledger.testing import FaultyEngine
from kledger.topics.config.topic_config import TopicDefaults
from kledger.topics.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidTopicName,
    MessageTooLarge,
    TopicAlreadyExists,
    TopicStorageFailed,
    UnknownPartition,
    UnknownTopic,
)
from kledger.topics.keys import DELETION_KEYS, TOPIC_KEYS
from kledger.topics.registry import TopicRegistry
from tests.batches.words import batch
from tests.topics.words import append, open_topics, outcome


async def test_row_31_creation() -> None:
    async with open_topics(defaults=TopicDefaults(num_partitions=3)) as opened:
        registry = opened.registry
        assert 3 == (await registry.create("a", partitions=-1, replication=-1)).partition_count
        for error, name, fields in [
            (InvalidReplicationFactor, "b", {"replication": 3}),
            (InvalidReplicationFactor, "b", {"replication": 0}),
            (TopicAlreadyExists, "a", {}),
            (TopicAlreadyExists, "persistent://public/default/a", {}),
            (InvalidPartitions, "b", {"partitions": 0}),
            (InvalidPartitions, "b", {"partitions": 100_001}),
            (InvalidConfig, "b", {"configs": {"nonsense": "1"}}),
            (InvalidConfig, "b", {"configs": {"retention.ms": "x"}}),
            (InvalidTopicName, "b c", {}),
            (InvalidTopicName, "__consumer_offsets", {}),
        ]:
            with pytest.raises(error):
                await registry.create(name, **fields)  # type: ignore[arg-type]
            with pytest.raises(error):
                registry.check_creation(name, **fields)  # type: ignore[arg-type]
        await registry.create("x.y")
        with pytest.raises(InvalidTopicName, match=r"collides with existing topic: x\.y"):
            await registry.create("x_y")
        registry.check_creation("only_checked")
        assert ["a", "x.y"] == [topic.name for topic in registry.all()]


async def test_one_topic_has_many_spellings_and_one_id() -> None:
    async with open_topics() as opened:
        topic = await opened.registry.create("persistent://public/default/orders")
        for spelling in ("orders", "public/default/orders", "persistent://public/default/orders"):
            assert topic is opened.registry.get(spelling)
        assert topic is opened.registry.get_by_id(topic.id)
        assert opened.registry.get("persistent://other/ns/orders") is None
        assert opened.registry.get_by_id(UUID(int=5)) is None


async def test_topics_survive_a_restart() -> None:
    async with open_topics() as opened:
        await opened.registry.create("a", partitions=4, configs={"retention.ms": "5"})
        gone = await opened.registry.create("b")
        await opened.registry.delete("b")
        topic_id = opened.registry.all()[0].id
    async with open_topics(opened.engine) as again:
        (topic,) = again.registry.all()
        assert ("a", topic_id, 4, {"retention.ms": "5"}) == (
            topic.name, topic.id, topic.partition_count, topic.configs
        )  # fmt: skip
        assert 5 == topic.config.retention_ms
        assert again.registry.get_by_id(gone.id) is None


async def test_a_topic_that_cannot_be_read_stops_the_start() -> None:
    async with open_topics() as opened:
        await opened.registry.create("t")
        deleted = UUID(int=7)
        for key, name in (
            (TOPIC_KEYS.encode("t"), "topic row 't'"),
            (DELETION_KEYS.encode(deleted), f"deleted topic row '{deleted}'"),
        ):
            before = opened.store.get_row(key)
            await opened.store.put_rows([(key, b"\x03")])
            with pytest.raises(UnreadableRow, match=f"^{name}: expected version 1, got 3$"):
                await TopicRegistry.open(opened.store)
            await opened.store.put_rows([(key, before)])


async def test_two_creations_at_once_make_one_topic() -> None:
    async with open_topics() as opened:
        found = await asyncio.gather(
            *[opened.registry.create("a") for _ in range(3)], return_exceptions=True
        )
        assert 2 == sum(isinstance(each, TopicAlreadyExists) for each in found)


async def test_a_creation_whose_caller_is_cancelled_makes_the_topic() -> None:
    """Its row was durable, and memory did not know: the topic appeared with the next start."""
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        hold = engine.hold_next("commit")
        making = asyncio.ensure_future(opened.registry.create("a"))
        await hold.reached()
        making.cancel()
        again = asyncio.ensure_future(opened.registry.create("a"))
        await asyncio.sleep(0)
        hold.release()
        with pytest.raises(TopicAlreadyExists):
            await again
        (topic,) = opened.registry.all()
    async with open_topics(engine) as later:
        assert [topic.id] == [each.id for each in later.registry.all()]


async def test_a_deletion_whose_caller_is_cancelled_deletes_the_topic() -> None:
    """Its rows were durable, and the topic took records, which the next start deleted."""
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        log = await opened.log("a")
        await append(log, batch("x"))
        hold = engine.hold_next("commit")
        deleting = asyncio.ensure_future(opened.registry.delete("a"))
        await hold.reached()
        deleting.cancel()
        making = asyncio.ensure_future(opened.registry.create("a"))
        await asyncio.sleep(0)
        hold.release()
        topic = await making
        assert [topic] == opened.registry.all()
        assert UnknownPartition is outcome(await append(log, batch("y")))
        await opened.registry.finish_deletions()
        assert [] == opened.store.managed_ledger_names()
    async with open_topics(engine) as later:
        assert [topic.id] == [each.id for each in later.registry.all()]


async def test_changes_whose_callers_are_cancelled_hold() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        topic = await opened.registry.create("a")
        for change in (
            opened.registry.alter_configs("a", {"retention.ms": "5"}),
            opened.registry.create_partitions("a", 3),
        ):
            hold = engine.hold_next("commit")
            changing = asyncio.ensure_future(change)
            await hold.reached()
            changing.cancel()
            hold.release()
            with pytest.raises(asyncio.CancelledError):
                await changing
            await opened.store.flush()
        assert (3, {"retention.ms": "5"}) == (topic.partition_count, topic.configs)


async def test_failed_changes_change_nothing() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        topic = await opened.registry.create("a")
        epoch = opened.registry.epoch
        for change in (
            lambda: opened.registry.create("b"),
            lambda: opened.registry.create_partitions("a", 5),
            lambda: opened.registry.alter_configs("a", {"retention.ms": "5"}),
            lambda: opened.registry.delete("a"),
        ):
            engine.fail_next("commit", StorageWriteFailed("full"))
            with pytest.raises(TopicStorageFailed):
                await change()
        assert [topic] == opened.registry.all()
        assert (1, {}, epoch, 0, False) == (
            topic.partition_count, topic.configs, opened.registry.epoch, topic.epoch,
            topic.is_deleted,
        )  # fmt: skip


async def test_row_24_deleted_and_made_again_is_another_topic() -> None:
    async with open_topics() as opened:
        old = await opened.registry.create("a")
        log = await old.open_partition(0)
        await append(log, batch("x"))
        await opened.registry.delete("a")
        new = await opened.registry.create("a")
        assert old.id != new.id
        assert 0 == outcome(await append(await new.open_partition(0), batch("y")))
        assert UnknownPartition is outcome(await append(log, batch("z")))
        with pytest.raises(UnknownPartition):
            await old.open_partition(0)


async def test_deletion_by_id_leaves_a_topic_alone_that_got_the_name_meanwhile() -> None:
    """It went by name: deleting an old topic deleted the new one of that name too."""
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        old = await opened.registry.create("a")
        hold = engine.hold_next("commit")
        deleting = asyncio.ensure_future(opened.registry.delete("a", topic_id=old.id))
        await hold.reached()
        making = asyncio.ensure_future(opened.registry.create("a"))
        again = asyncio.ensure_future(opened.registry.delete("a", topic_id=old.id))
        await asyncio.sleep(0)
        hold.release()
        await deleting
        new = await making
        with pytest.raises(UnknownTopic, match=str(old.id)):
            await again
        assert new is opened.registry.get("a")
        await opened.registry.delete("a", topic_id=new.id)
        assert [] == opened.registry.all()


async def test_deletion_leaves_no_row_and_no_ledger() -> None:
    async with open_topics() as opened:
        for name in ("a", "b"):
            topic = await opened.registry.create(name, partitions=2)
            for index in range(2):
                await append(await topic.open_partition(index), batch("x" * 500))
                log = topic.partition(index)
                assert log is not None
                await log.delete_records(1)
        await opened.registry.delete("a")
        await opened.registry.delete("b")
        await opened.registry.finish_deletions()
        assert [] == opened.store.scan_rows(b"")
        assert [] == opened.store.managed_ledger_names()


async def test_deletion_that_was_interrupted_is_finished_later() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        log = await opened.log("a")
        await append(log, batch("x"))
        hold = engine.hold_next("commit")
        deleting = asyncio.ensure_future(opened.registry.delete("a"))
        await hold.reached()
        hold.release()
        for _ in range(2):
            engine.fail_next("commit", StorageWriteFailed("full"))
        await deleting
        assert opened.registry.get("a") is None
        await opened.registry.finish_deletions()
        assert 1 == len(opened.store.managed_ledger_names())
    async with open_topics(engine) as again:
        await again.registry.finish_deletions()
        assert ([], []) == (again.registry.all(), again.store.managed_ledger_names())
        assert [] == again.store.scan_rows(b"")


async def test_row_32_partitions_only_grow() -> None:
    async with open_topics() as opened:
        topic = await opened.registry.create("a", partitions=2)
        for total in (1, 2):
            with pytest.raises(InvalidPartitions):
                await opened.registry.create_partitions("a", total)
        with pytest.raises(UnknownPartition):
            await topic.open_partition(2)
        await opened.registry.create_partitions("a", 3)
        assert 0 == (await topic.open_partition(2)).high_watermark
        assert 1 == topic.epoch


async def test_configs_change_at_once_and_together_or_not_at_all() -> None:
    async with open_topics() as opened:
        topic = await opened.registry.create("a", configs={"retention.ms": "5", "flush.ms": "1"})
        with pytest.raises(InvalidConfig):
            await opened.registry.alter_configs("a", {"retention.ms": "6", "nonsense": None})
        with pytest.raises(InvalidConfig):
            await opened.registry.alter_configs(
                "a", {"retention.ms": "6", "min.compaction.lag.ms": str((1 << 63) - 1),
                      "max.compaction.lag.ms": "5"}
            )  # fmt: skip
        assert {"retention.ms": "5", "flush.ms": "1"} == topic.configs
        await opened.registry.alter_configs("a", {"retention.ms": "6", "flush.ms": None})
        assert ({"retention.ms": "6"}, 6) == (topic.configs, topic.config.retention_ms)
        await opened.registry.alter_configs("a", {"retention.bytes": "7"}, replace=True)
        assert {"retention.bytes": "7"} == topic.configs
        checked = opened.registry.check_changes(topic, {"retention.bytes": None})
        assert ({}, {"retention.bytes": "7"}) == (checked, topic.configs)


async def test_unknown_topics_cannot_be_changed() -> None:
    async with open_topics() as opened:
        for change in (
            opened.registry.delete("a"),
            opened.registry.create_partitions("a", 2),
            opened.registry.alter_configs("a", {}),
        ):
            with pytest.raises(UnknownTopic):
                await change


async def test_epoch_moves_with_every_change() -> None:
    async with open_topics() as opened:
        seen = {opened.registry.epoch}
        for change in (
            opened.registry.create("a"),
            opened.registry.create_partitions("a", 2),
            opened.registry.alter_configs("a", {"flush.ms": "1"}),
            opened.registry.delete("a"),
        ):
            await change
            seen.add(opened.registry.epoch)
        assert 5 == len(seen)


async def test_retention_reaches_closed_partitions() -> None:
    async with open_topics() as opened:
        log = await opened.log("a", {"retention.ms": "10"})
        await append(log, batch("x"))
    async with open_topics(opened.engine) as again:
        again.clock.advance(11)
        await again.registry.create("untouched", partitions=50)
        await again.registry.enforce_retention()
        topic = again.registry.get("a")
        assert topic is not None
        found = topic.partition(0)
        assert found is not None
        assert (1, 1) == (found.log_start_offset, found.high_watermark)
        untouched = again.registry.get("untouched")
        assert untouched is not None
        assert [] == untouched.open_partitions()


async def test_other_defaults_hold_at_once_for_topics_and_their_open_partitions() -> None:
    async with open_topics() as opened:
        registry = opened.registry
        topic = await registry.create("a")
        own = await registry.create("own", configs={"max.message.bytes": "5000"})
        log = await topic.open_partition(0)
        defaults = TopicDefaults(configs={"message.max.bytes": "100", "log.retention.ms": "7"})
        registry.check_defaults(defaults)
        registry.change_defaults(defaults)
        assert [(100, 7), (5_000, 7)] == [
            (each.config.size_max, each.config.retention_ms) for each in (topic, own)
        ]
        assert MessageTooLarge is outcome(await append(log, batch("x" * 200)))


async def test_defaults_that_contradict_a_topic_are_refused() -> None:
    async with open_topics() as opened:
        await opened.registry.create("a", configs={"min.compaction.lag.ms": "9"})
        defaults = TopicDefaults(configs={"log.cleaner.max.compaction.lag.ms": "5"})
        with pytest.raises(InvalidConfig):
            opened.registry.check_defaults(defaults)


async def test_strategies_are_allowed_when_they_are_set_and_prevent_no_other_change() -> None:
    engine = FaultyEngine(None)
    strategy = {"compaction.strategy": "own:Newest"}
    allowing = TopicDefaults(compaction_strategy_modules=("own",))
    async with open_topics(engine, defaults=allowing) as opened:
        await opened.registry.create("a", configs=strategy)
        with pytest.raises(InvalidConfig, match="got other:Newest"):
            await opened.registry.alter_configs("a", {"compaction.strategy": "other:Newest"})
    async with open_topics(engine) as opened:
        registry = opened.registry
        with pytest.raises(InvalidConfig, match="got own:Newest"):
            await registry.create("b", configs=strategy)
        with pytest.raises(InvalidConfig, match="got own:Newest"):
            await registry.alter_configs("a", strategy)
        topic = await registry.alter_configs("a", {"retention.ms": "5"})
        assert {**strategy, "retention.ms": "5"} == topic.configs
        assert {} == (await registry.alter_configs("a", {}, replace=True)).configs
