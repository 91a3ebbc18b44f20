"""Unused partitions are closed, and no client notices."""

import asyncio

import pytest

from kledger.ledger.testing import FaultyEngine
from kledger.topics.errors import TopicStorageFailed
from kledger.topics.partition.partition_checkpointer import PartitionCheckpointer
from kledger.topics.partition.partition_log import PartitionLog
from kledger.topics.partition.transaction_state import TransactionEnd
from tests.batches.words import batch
from tests.contained import Contained
from tests.topics.words import TopicStore, all_values, append, open_topics, outcome, submit

ROUNDS = 2


async def rounds(opened: TopicStore, count: int = ROUNDS + 1) -> list[bool]:
    """End rounds; return what of the only topic is open."""
    for _ in range(count):
        await opened.registry.close_idle_partitions(ROUNDS)
    topics = opened.registry.all()
    return [topic.is_open(index) for topic in topics for index in range(topic.partition_count)]


async def test_unused_partitions_are_closed_and_opened_again() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        topic = await opened.registry.create("a", partitions=3)
        logs = [await topic.open_partition(index) for index in range(3)]
        for log in logs:
            await append(log, batch("x"))
        assert [True] * 3 == await rounds(opened, 2)
        assert topic.partition(1) is logs[1]
        assert [False, True, False] == await rounds(opened, 1)
        assert [False] * 3 == await rounds(opened)
        assert all(log.is_closed for log in logs)
        again = await topic.open_partition(0)
        assert (1, [b"x"]) == (again.high_watermark, await all_values(again))
        assert 1 == outcome(await append(again, batch("y")))


async def test_waiting_reading_and_appending_keep_it_open() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        await append(log, batch("x"))

        def listener() -> None:
            raise AssertionError("nothing moved")

        log.add_listener(listener)
        assert [True] == await rounds(opened, 9)
        log.remove_listener(listener)

        async def reading() -> None:
            await log.read(0, 1)

        async def appending() -> None:
            await append(log, batch("y"))

        async def searching() -> None:
            await log.offset_for_timestamp(0)

        for use in (reading, appending, searching):
            for _ in range(9):
                await use()
                assert [True] == await rounds(opened, 1)
        assert [False] == await rounds(opened)


async def test_an_open_transaction_keeps_it_open() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        begun = batch("x", producer=7, sequence=0, transactional=True)
        result = asyncio.get_running_loop().create_future()
        log.append_nowait(memoryview(bytearray(begun)), result.set_result, is_verified=True)
        await result
        assert [True] == await rounds(opened, 9)
        ended = asyncio.get_running_loop().create_future()
        log.append_marker_nowait(TransactionEnd(7, 0, is_commit=True), ended.set_result)
        await ended
        assert [False] == await rounds(opened)


async def test_idempotence_survives() -> None:
    async with open_topics() as opened:
        first = batch("x", producer=7, sequence=0)
        assert 0 == outcome(await append(await opened.log(), first))
        assert [False] == await rounds(opened)
        log = await opened.log()
        assert 0 == outcome(await append(log, first)), "it was appended before"
        assert 1 == outcome(await append(log, batch("y", producer=7, sequence=1)))


async def test_a_call_that_needs_it_while_it_closes_waits() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        log = await opened.log()
        await append(log, batch("x"))
        hold = engine.hold_next("commit")
        closing = asyncio.ensure_future(rounds(opened))
        await hold.reached()
        topic = opened.registry.all()[0]
        assert (True, None) == (log.is_closed, topic.partition(0))
        opening = asyncio.ensure_future(topic.open_partition(0))
        deleting = asyncio.ensure_future(opened.registry.delete("orders"))
        await asyncio.sleep(0)
        hold.release()
        await closing
        again, _ = await asyncio.gather(opening, deleting, return_exceptions=True)
        assert not isinstance(again, PartitionLog) or again.is_closed
        await opened.registry.finish_deletions()
        assert ([], []) == (opened.store.scan_rows(), opened.store.managed_ledger_names())


async def opens_again(opened: TopicStore) -> None:
    topic = opened.registry.all()[0]
    again = await asyncio.wait_for(topic.open_partition(0), 60)
    end_offset = again.high_watermark
    assert end_offset == outcome(await append(again, batch("more")))
    assert end_offset + 1 == len(await all_values(again))


async def test_a_fault_while_it_closes_answers_appends_and_it_opens_again(
    monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    """The caller of an append got no result: a closing partition took no fault."""
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        log = await opened.log()
        await append(log, batch("x"))
        hold = engine.hold_next("commit")
        waiting = [submit(log, batch(value)) for value in ("y", "z")]
        await hold.reached()
        closing = asyncio.ensure_future(opened.registry.all()[0].close_partition(0))
        await asyncio.sleep(0)

        def fails(*_: object) -> None:
            raise RuntimeError("injected")

        with monkeypatch.context() as patch:
            patch.setattr(PartitionCheckpointer, "confirmed", fails)
            hold.release()
            answers = await asyncio.wait_for(asyncio.gather(*waiting), 60)
        assert [TopicStorageFailed] * 2 == [outcome(answer) for answer in answers]
        await asyncio.wait_for(closing, 60)
        await opens_again(opened)
    assert ["a fault here closes partition orders-0"] == contained.messages


async def test_a_fault_before_it_would_be_closed_for_idleness_opens_it_again(
    contained: Contained,
) -> None:
    async with open_topics() as opened:
        log = await opened.log()
        await append(log, batch("x"))
        await rounds(opened, 2)
        closing = asyncio.ensure_future(rounds(opened, 1))
        log.close_after_fault()
        assert [False] == await closing
        await opens_again(opened)
    assert [] == contained.messages


async def test_a_fault_in_closing_one_leaves_the_others_to_be_closed(
    monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    async with open_topics() as opened:
        topic = await opened.registry.create("orders", partitions=3)
        for index in range(3):
            await append(await topic.open_partition(index), batch("x"))
        close = PartitionCheckpointer.close

        async def fails(_: PartitionCheckpointer) -> None:
            monkeypatch.setattr(PartitionCheckpointer, "close", close)
            raise RuntimeError("injected")

        monkeypatch.setattr(PartitionCheckpointer, "close", fails)
        assert [False] * 3 == await rounds(opened)
        await opens_again(opened)
    assert ["a fault here closes partition orders-0"] == contained.messages


async def test_a_topic_that_is_growing_keeps_its_partitions_open() -> None:
    """The addition follows the cursors of open partitions; one that closes has none."""
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        log = await opened.log()
        await log.managed_ledger.open_cursor("s")
        await rounds(opened)
        hold = engine.hold_next("commit")
        growing = asyncio.ensure_future(opened.registry.create_partitions("orders", 2))
        await hold.reached()
        hold.release()
        hold = engine.hold_next("commit")
        await hold.reached()
        await rounds(opened, 9)
        hold.release()
        topic = await growing
        logs = [await topic.open_partition(index) for index in range(2)]
        assert [{"s"}, {"s"}] == [set(log.managed_ledger.cursor_names) for log in logs]


async def test_retention_reads_rows_and_opens_what_is_due() -> None:
    """It opened every stored partition, and nothing ever closed one."""
    async with open_topics() as opened:
        topic = await opened.registry.create("a", partitions=4, configs={"retention.ms": "1000"})
        for index in range(3):
            opened.clock.advance(200 * index)
            now_ms = opened.clock.now_ms()
            await append(await topic.open_partition(index), batch("x", timestamp=now_ms))
        assert [False] * 4 == await rounds(opened)
        await opened.registry.enforce_retention()
        assert [False] * 4 == await rounds(opened, 0)
        opened.clock.advance(900)
        await opened.registry.enforce_retention()
        assert [True, True, False, False] == await rounds(opened, 0)
        starts = [(await topic.open_partition(index)).log_start_offset for index in range(4)]
        assert [1, 1, 0, 0] == starts
        await rounds(opened)
        await opened.registry.enforce_retention()
        assert [False] * 4 == await rounds(opened, 0)


async def test_retention_is_no_use_of_a_partition() -> None:
    async with open_topics() as opened:
        await append(await opened.log(), batch("x"))
        for _ in range(ROUNDS):
            assert [True] == await rounds(opened, 1)
            await opened.registry.enforce_retention()
        assert [False] == await rounds(opened, 1)
