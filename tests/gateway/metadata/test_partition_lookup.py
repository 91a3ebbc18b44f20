"""Partitions that must be opened first, and what becomes of those that cannot be."""

from kledger.gateway.metadata.partition_lookup import (
    CONCURRENT_OPENS_MAX,
    PartitionOpener,
    UnopenedPartition,
    open_partitions,
    open_partitions_by_name,
)
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import LedgerStore
from kledger.ledger.testing import FaultyEngine
from kledger.topics import TopicRegistry, UnknownPartition, UnknownTopic
from kledger.topics.errors import TopicStorageFailed


async def test_a_failure_is_returned_until_a_request_passes() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, engine=engine) as store:
        topic = await (await TopicRegistry.open(store)).create("t", partitions=2)
        logs, missing = PartitionOpener(), list[UnopenedPartition]()
        assert 0 == logs.require(topic, 0, missing) == logs.require(topic, 1, missing)
        assert [(topic, 0), (topic, 1)] == missing
        engine.fail_next("commit")
        await logs.open(missing[:1])
        await logs.open(missing[1:])
        again: list[UnopenedPartition] = []
        storage_error = ErrorCode.KAFKA_STORAGE_ERROR
        assert storage_error == logs.require(topic, 0, again) == logs.require(topic, 0, again)
        assert [] == again
        assert topic.partition(0) is None
        assert topic.partition(1) is not None
        logs.forget_failures()
        assert 0 == logs.require(topic, 0, again)
        await logs.open(again)
        assert topic.partition(0) is not None


async def test_logs_are_opened_together_and_stored_by_one_commit() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, engine=engine) as store:
        count = CONCURRENT_OPENS_MAX + 2
        topic = await (await TopicRegistry.open(store)).create("t", partitions=count)
        before = engine.calls["commit"]

        await PartitionOpener().open([(topic, index) for index in range(count)])

        assert count == len(topic.open_partitions())
        assert 2 == engine.calls["commit"] - before


async def test_a_partition_that_does_not_exist_is_not_opened() -> None:
    async with LedgerStore.open(None) as store:
        topic = await (await TopicRegistry.open(store)).create("t")
        missing: list[UnopenedPartition] = []
        for index in (-1, 1):
            assert 3 == PartitionOpener().require(topic, index, missing)
        assert [] == missing


async def test_each_log_or_why_it_cannot_be_had() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, engine=engine) as store:
        registry = await TopicRegistry.open(store)
        topic = await registry.create("t", partitions=3)
        first = await topic.open_partition(0)
        engine.fail_next("commit")
        logs = await open_partitions_by_name(
            registry, [("t", 0), ("t", 1), ("t", 3), ("missing", 0)]
        )
        assert first is logs["t", 0]
        assert [TopicStorageFailed, UnknownPartition, UnknownTopic] == [
            type(logs[key]) for key in (("t", 1), ("t", 3), ("missing", 0))
        ]
        opened = await open_partitions([(topic, 2)])
        assert topic.partition(2) is opened[topic, 2]
