"""Transactions in a partition, with its restarts; rows of docs/SCENARIOS.md."""

import asyncio

import pytest

from kledger.batches.header import read_header
from kledger.batches.reader import iterate_records, read_is_commit
from kledger.ledger import StoreConfig
from kledger.ledger.engine.errors import StorageWriteFailed
from kledger.ledger.testing import FaultyEngine
from kledger.topics.errors import (
    CoordinatorFenced,
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    PartitionTerminated,
    TopicStorageFailed,
)
from kledger.topics.partition.partition_checkpointer import CHECKPOINT_ENTRIES_MIN
from kledger.topics.partition.partition_compaction import CompactionLimits
from kledger.topics.partition.partition_log import PartitionLog
from kledger.topics.partition.results import NO_OFFSET, AppendResult
from kledger.topics.partition.transaction_state import TransactionEnd
from tests.batches.words import batch
from tests.topics.words import SMALL_SEGMENTS, append, offsets, open_topics, outcome

SYNCED = StoreConfig(durability="fsync")


def submit(log: PartitionLog, sequence: int, *, who: int = 9, epoch: int = 0, verified: bool = True,
           transactional: bool = True) -> asyncio.Future[AppendResult]:  # fmt: skip
    """Append one record of a producer."""
    data = batch("v", producer=who, epoch=epoch, sequence=sequence, transactional=transactional)
    future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
    answer = log.append_nowait(memoryview(data), future.set_result, is_verified=verified)
    if answer is not None:
        future.set_result(answer)
    return future


def mark(
    log: PartitionLog, *, commit: bool, who: int = 9, epoch: int = 0, coordinator_epoch: int = 3
) -> asyncio.Future[AppendResult]:
    """End a producer's transaction."""
    future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
    answer = log.append_marker_nowait(
        TransactionEnd(who, epoch, commit, coordinator_epoch), future.set_result
    )
    if answer is not None:
        future.set_result(answer)
    return future


async def test_open_transaction_is_invisible_under_read_committed() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        await append(log, batch("plain"))
        await submit(log, 0)
        await submit(log, 1, verified=False)
        assert (3, 1) == (log.high_watermark, log.last_stable_offset)
        found = await log.read(0, 1 << 20, read_committed=True)
        assert (1, 1, 3) == (len(found.chunks), found.last_stable_offset, found.high_watermark)
        await mark(log, commit=True)
        assert (4, 4) == (log.high_watermark, log.last_stable_offset)
        assert [] == log.aborted_transactions(0, 4)


async def test_marker_is_a_control_batch_that_takes_an_offset() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        await submit(log, 0)
        result = await mark(log, commit=False, epoch=1)
        assert 1 == result.base_offset
        (stored,) = (await log.read(1, 1 << 20)).chunks
        header = read_header(stored)
        assert header.is_control
        assert header.is_transactional
        assert (9, 1, -1, 1) == (
            header.producer_id, header.producer_epoch, header.base_sequence, header.record_count,
        )  # fmt: skip
        assert not read_is_commit(stored)
        assert [1] == [record.offset for record in iterate_records(stored)]


async def test_row_114_first_batch_must_be_verified() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        assert InvalidTransactionState is outcome(await submit(log, 0, verified=False))
        assert 0 == outcome(await submit(log, 0))
        assert log.has_transaction(9, 0)
        assert not log.has_transaction(9, 1)


async def test_row_116_batch_outside_of_the_open_transaction_is_refused() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        await submit(log, 0)
        assert InvalidTransactionState is outcome(await submit(log, 1, transactional=False))
        await mark(log, commit=True)
        assert 2 == outcome(await submit(log, 1, transactional=False))


async def test_row_127_marker_of_a_new_epoch_fences_the_old_one() -> None:
    """A late batch of the ended transaction must not open another one."""
    async with open_topics() as opened:
        log = await opened.log()
        await submit(log, 0)
        await mark(log, commit=False, epoch=1)
        assert InvalidProducerEpoch is outcome(await submit(log, 1))
        assert OutOfOrderSequence is outcome(await submit(log, 1, epoch=1))
        assert 2 == outcome(await submit(log, 0, epoch=1))
        assert InvalidProducerEpoch is outcome(await mark(log, commit=True))


@pytest.mark.parametrize("is_closed_cleanly", [True, False])
async def test_marker_of_a_replaced_coordinator_is_refused_after_restarts(
    is_closed_cleanly: bool,
) -> None:
    """Its epoch comes from the checkpoint, or from the marker that is replayed."""
    async with open_topics(is_closed_cleanly=is_closed_cleanly) as opened:
        log = await opened.log()
        await submit(log, 0)
        await mark(log, commit=True, coordinator_epoch=5)
    for _ in range(2):
        async with open_topics(opened.engine, is_closed_cleanly=is_closed_cleanly) as again:
            log = await again.log()
            assert {9: 5} == log.coordinator_epochs
            assert CoordinatorFenced is outcome(await mark(log, commit=False, coordinator_epoch=4))
            assert 2 == log.high_watermark


async def test_sequences_continue_after_a_marker_of_the_same_epoch() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        await submit(log, 0)
        await mark(log, commit=True)
        assert OutOfOrderSequence is outcome(await submit(log, 5))
        assert 2 == outcome(await submit(log, 1))
        assert 0 == outcome(await submit(log, 0, verified=False)), "a repeated batch is answered"


async def test_aborted_transactions_are_found_by_range() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        for number, commit in enumerate((False, True, False)):
            await submit(log, number)
            await mark(log, commit=commit)
        assert [(9, 0), (9, 4)] == log.aborted_transactions(0, 6)
        assert [(9, 0)] == log.aborted_transactions(0, 4)
        assert [(9, 4)] == log.aborted_transactions(2, 6)
        assert [(9, 4, 5)] == [each[:3] for each in log.aborted_between(2, 6)]
        assert [True, False] == [log.has_aborted_after(offset) for offset in (5, 6)]


async def test_aborted_transactions_of_what_is_compacted_are_not_listed() -> None:
    """A client that got one would wait for its marker, and drop later records of the producer."""
    engine = FaultyEngine(None)
    configs = {**SMALL_SEGMENTS, "cleanup.policy": "compact"}
    async with open_topics(engine) as opened:
        log = await opened.log(configs=configs)
        for number, commit in enumerate((False, True, False)):
            await submit(log, number)
            await mark(log, commit=commit)
        assert [(9, 0), (9, 4)] == log.aborted_transactions(0, 6)
        await log.compact(CompactionLimits())
        assert [] == log.aborted_transactions(0, 6)
        await submit(log, 3)
        await mark(log, commit=False)
    async with open_topics(engine) as opened:
        log = await opened.log()
        assert [(9, 6)] == log.aborted_transactions(0, 8), "behind the horizon"
        assert [2] == offsets(await log.read(0, 1 << 20, read_committed=True))
        assert [] == offsets(await log.read(3, 1 << 20, read_committed=True)), "it leads to 6"
        assert [6, 7] == offsets(await log.read(6, 1 << 20, read_committed=True))


async def test_a_compaction_ends_before_an_open_transaction() -> None:
    async with open_topics() as opened:
        log = await opened.log(configs={**SMALL_SEGMENTS, "cleanup.policy": "compact"})
        await append(log, batch("1"))
        await append(log, batch("2"))
        await submit(log, 0)
        await append(log, batch("3"))
        await log.compact(CompactionLimits())
        assert [1] == offsets(await log.read(0, 1 << 20))
        assert [2, 3] == offsets(await log.read(2, 1 << 20))
        await mark(log, commit=True)
        await log.compact(CompactionLimits())
        assert [3] == offsets(await log.read(0, 1 << 20))


async def test_failed_batch_and_failed_marker_leave_no_trace() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine, store_config=SYNCED) as opened:
        log = await opened.log()
        engine.fail_next("commit", StorageWriteFailed("full"))
        assert TopicStorageFailed is outcome(await submit(log, 0))
        assert not log.has_transaction(9, 0)
        assert 0 == outcome(await submit(log, 0))
        engine.fail_next("commit", StorageWriteFailed("full"))
        assert TopicStorageFailed is outcome(await mark(log, commit=False))
        assert log.has_transaction(9, 0)
        assert 0 == log.last_stable_offset
        await mark(log, commit=True)
        assert (2, []) == (log.last_stable_offset, log.aborted_transactions(0, 2))


@pytest.mark.parametrize("is_closed_cleanly", [True, False])
@pytest.mark.parametrize("entries", [0, CHECKPOINT_ENTRIES_MIN])
async def test_restart_keeps_open_and_aborted_transactions(
    is_closed_cleanly: bool, entries: int
) -> None:
    """From the log alone, from a checkpoint with the log after it, and from what closing wrote."""
    engine = FaultyEngine(None)
    async with open_topics(
        engine, store_config=SYNCED, is_closed_cleanly=is_closed_cleanly
    ) as opened:
        log = await opened.log()
        await submit(log, 0)
        await mark(log, commit=False)
        await submit(log, 0, who=8)
        await asyncio.gather(*[submit(log, 1 + each) for each in range(entries)])
        await submit(log, 1 + entries)
        end = log.high_watermark
        if not is_closed_cleanly:
            engine.drop_unsynced()
    async with open_topics(engine, store_config=SYNCED) as opened:
        log = await opened.log()
        assert (end, 2) == (log.high_watermark, log.last_stable_offset)
        assert [(9, 0)] == log.aborted_transactions(0, end)
        assert log.has_transaction(8, 0)
        assert log.has_transaction(9, 0)
        await mark(log, commit=True, who=8)
        assert 3 == log.last_stable_offset
        await mark(log, commit=False)
        assert [(9, 0), (9, 3)] == log.aborted_transactions(0, end + 2)
        assert end + 2 == log.last_stable_offset


async def test_aborted_transactions_go_with_the_log_start() -> None:
    async with open_topics() as opened:
        log = await opened.log(configs=SMALL_SEGMENTS)
        for number in range(6):
            await submit(log, number)
            await mark(log, commit=False)
        await opened.store.flush()
        await log.delete_records(9)
        assert [(9, 8), (9, 10)] == log.aborted_transactions(0, 12)
        rows = opened.store.scan_rows(b"P")
        assert 2 == sum(key[21:22] == b"A" for key, _ in rows)


async def test_idle_producers_with_an_open_transaction_are_not_forgotten() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        await submit(log, 0)
        await submit(log, 0, who=8, transactional=False)
        opened.clock.advance(1 << 40)
        await log.enforce_retention()
        assert {9} == set(log.producers())
        assert OutOfOrderSequence is outcome(await submit(log, 5))


@pytest.mark.parametrize("is_closed_cleanly", [True, False])
async def test_in_a_terminated_log_transactions_end_without_a_marker(
    is_closed_cleanly: bool,
) -> None:
    engine = FaultyEngine(None)
    async with open_topics(
        engine, store_config=SYNCED, is_closed_cleanly=is_closed_cleanly
    ) as opened:
        log = await opened.log()
        await append(log, batch("plain"))
        for who in (7, 8, 9):
            await submit(log, 0, who=who)
        await log.terminate()
        seen: list[int] = []
        log.add_listener(lambda: seen.append(log.last_stable_offset))
        for who, commit in ((8, False), (7, True), (9, False), (9, False), (5, True)):
            assert NO_OFFSET == outcome(await mark(log, who=who, commit=commit, epoch=1))
        assert [1, 3, 4, 4, 4] == seen
        assert InvalidProducerEpoch is outcome(await mark(log, who=8, commit=True))
        assert PartitionTerminated is outcome(await submit(log, 0, who=9, epoch=1))
        expected: tuple[list[tuple[int, int]], ...] = [(8, 2), (9, 3)], [], [(8, 2), (9, 3)]
        assert expected == aborted_from_to(log)
        if not is_closed_cleanly:
            engine.drop_unsynced()
    async with open_topics(engine, store_config=SYNCED) as opened:
        log = await opened.log()
        assert (4, 4) == (log.high_watermark, log.last_stable_offset)
        assert expected == aborted_from_to(log)


def aborted_from_to(log: PartitionLog) -> tuple[list[tuple[int, int]], ...]:
    """Which of them a reader gets: for all, for what lies before them, for the last record."""
    ranges = (0, 4), (0, 2), (3, 4)
    return tuple(log.aborted_transactions(*each) for each in ranges)


async def test_an_end_without_a_marker_that_was_not_stored_is_tried_again() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine, store_config=SYNCED, is_closed_cleanly=False) as opened:
        log = await opened.log()
        await submit(log, 0)
        await log.terminate()
        engine.fail_next("commit", StorageWriteFailed("full"))
        assert TopicStorageFailed is outcome(await mark(log, commit=False))
        assert NO_OFFSET == outcome(await mark(log, commit=False))
        engine.drop_unsynced()
    async with open_topics(engine, store_config=SYNCED) as opened:
        log = await opened.log()
        assert (1, [(9, 0)]) == (log.last_stable_offset, log.aborted_transactions(0, 1))


async def test_a_termination_on_its_way_ends_no_transaction() -> None:
    """It may fail, and the log would continue after an end that has no marker."""
    engine = FaultyEngine(None)
    async with open_topics(engine, store_config=SYNCED) as opened:
        log = await opened.log()
        await submit(log, 0)
        hold = engine.hold_next("commit")
        ending = asyncio.ensure_future(log.terminate())
        await hold.reached()
        early, stable_offset = mark(log, commit=True), log.last_stable_offset
        hold.release()
        await ending
        assert (PartitionTerminated, 0) == (outcome(await early), stable_offset)
        assert NO_OFFSET == outcome(await mark(log, commit=True))
        assert 1 == log.last_stable_offset
