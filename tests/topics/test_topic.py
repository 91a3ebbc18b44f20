"""One topic and its open partitions."""

import asyncio

import pytest

from kledger.ledger.engine.errors import StorageWriteFailed
from kledger.ledger.testing import FaultyEngine
from kledger.topics.errors import TopicStorageFailed, UnknownPartition, UnknownTopic
from kledger.topics.registry import CLOSED_TOGETHER_MAX
from kledger.topics.topic import unknown_topic
from tests.batches.words import batch
from tests.contained import Contained
from tests.topics.words import all_values, append, open_topics, outcome, submit


async def test_partition_is_opened_once_for_all_callers() -> None:
    async with open_topics() as opened:
        topic = await opened.registry.create("a", partitions=2)
        assert topic.partition(0) is None
        first, second = await asyncio.gather(topic.open_partition(0), topic.open_partition(0))
        assert first is second is topic.partition(0) is await topic.open_partition(0)
        assert (0, "a", topic.id) == (first.index, first.topic, first.topic_id)
        assert [first] == topic.open_partitions()


@pytest.mark.parametrize("index", [-1, 2, 1 << 31])
async def test_partitions_that_do_not_exist(index: int) -> None:
    async with open_topics() as opened:
        topic = await opened.registry.create("a", partitions=2)
        assert topic.partition(index) is None
        with pytest.raises(UnknownPartition, match=r"expected 0 to 1"):
            await topic.open_partition(index)


async def test_deletion_during_opening_is_noticed() -> None:
    async with open_topics() as opened:
        topic = await opened.registry.create("a")
        opening = asyncio.ensure_future(topic.open_partition(0))
        await asyncio.sleep(0)
        await opened.registry.delete("a")
        (outcome,) = await asyncio.gather(opening, return_exceptions=True)
        assert isinstance(outcome, UnknownPartition) or getattr(outcome, "is_closed", False)
        assert topic.is_deleted


async def test_closed_topic_opens_no_partition() -> None:
    """Retention that went on while the server stopped opened one, and failed on its supervisor."""
    async with open_topics() as opened:
        topic = await opened.registry.create("a", partitions=2)
        opening = asyncio.ensure_future(topic.open_partition(0))
        await asyncio.sleep(0)
        await opened.registry.close()
        (outcome,) = await asyncio.gather(opening, return_exceptions=True)
        assert isinstance(outcome, UnknownPartition) or getattr(outcome, "is_closed", False)
        with pytest.raises(UnknownPartition, match="topic a is closed"):
            await topic.open_partition(1)
        assert [] == topic.open_partitions()


async def test_partitions_are_closed_together() -> None:
    """Each commit of a server without a disk takes a round trip to its database."""
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        for name in ("a", "b"):
            topic = await opened.registry.create(name, partitions=CLOSED_TOGETHER_MAX // 2)
            for index in range(topic.partition_count):
                await append(await topic.open_partition(index), batch(b"x"))
        before = engine.calls["commit"]
        await opened.registry.close()
        assert engine.calls["commit"] - before <= 2


async def test_configs_reach_open_partitions() -> None:
    async with open_topics() as opened:
        topic = await opened.registry.create("a")
        log = await topic.open_partition(0)
        await opened.registry.alter_configs("a", {"max.message.bytes": "100"})
        assert 100 == log.config.size_max


def test_unknown_topic_names_it() -> None:
    assert "'x'" in str(unknown_topic("x"))
    assert UnknownTopic is type(unknown_topic("x"))


FAULTS = [
    (
        "kledger.topics.partition.partition_checkpointer.PartitionCheckpointer.confirmed",
        "in the partition's own state",
    ),
    ("kledger.ledger.metadata.ledger_list_state.LedgerListState.advance", "in the ledger's state"),
]


@pytest.mark.parametrize("method", [each for each, _ in FAULTS], ids=[each for _, each in FAULTS])
async def test_partition_that_a_fault_has_closed_can_be_opened_again(
    method: str, monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    """Its callers waited for ever, and what came later was refused until the next start."""
    async with open_topics() as opened:
        log = await opened.log()
        topic = opened.registry.get(log.topic)
        assert topic is not None
        calls: list[bool] = []
        await append(log, batch("before"))

        def fails(*_: object, **__: object) -> None:
            monkeypatch.undo()
            raise RuntimeError("injected")

        monkeypatch.setattr(method, fails)
        log.add_listener(lambda: calls.append(log.is_closed))
        answers = await asyncio.gather(*[submit(log, batch(value)) for value in ("a", "b")])
        assert [TopicStorageFailed, TopicStorageFailed] == [outcome(each) for each in answers]
        assert (True, True) == (log.is_closed, calls[-1])
        assert None is topic.partition(log.index)
        again = await topic.open_partition(log.index)
        assert [b"before", b"a", b"b"] == await all_values(again)
        assert 3 == outcome(await append(again, batch("after")))
        assert UnknownPartition is outcome(await append(log, batch("too late")))
    assert 1 == len(contained.messages)
    assert contained.messages[0].startswith("a fault here closes partition ")


# The first record


async def test_the_first_record_and_its_log_are_one_group() -> None:
    """An opening took a sync of its own before the record could be appended."""
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        topic = await opened.registry.create("a", partitions=200)
        before = engine.calls["commit"]
        logs = [topic.create_partition(index) for index in range(200)]
        done = [append(log, batch("x")) for log in logs if log is not None]
        assert [0] * 200 == [outcome(each) for each in await asyncio.gather(*done)]
        assert engine.calls["commit"] - before <= 2
        assert logs == topic.open_partitions()
        assert topic.create_partition(0) is topic.create_partition(200) is None
    async with open_topics(engine) as again:
        topic = again.registry.all()[0]
        assert topic.create_partition(7) is None
        assert 1 == (await topic.open_partition(7)).high_watermark


async def test_a_log_that_was_not_stored_is_made_anew() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        topic = await opened.registry.create("a")
        log = topic.create_partition(0)
        assert log is not None
        calls: list[bool] = []
        log.add_listener(lambda: calls.append(log.is_closed))
        engine.fail_next("commit", StorageWriteFailed("full"))
        assert TopicStorageFailed is outcome(await append(log, batch("x")))
        assert (True, None) == (calls[-1], topic.partition(0))
        assert UnknownPartition is outcome(await append(log, batch("y")))
        again = await topic.open_partition(0)
        assert 0 == outcome(await append(again, batch("z")))
    async with open_topics(engine) as later:
        assert [b"z"] == await all_values(await later.registry.all()[0].open_partition(0))
