"""The results of a partition; tests of a row of docs/SCENARIOS.md have its number."""

import asyncio
import struct

import pytest
from kafka.record.default_records import DefaultRecordBatch as KafkaBatch

from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.header import read_header, refresh_checksum, verify_checksum
from kledger.batches.reader import iterate_records
from kledger.ledger import EARLIEST, Entry, Position
from kledger.ledger.engine.errors import StorageWriteFailed
from kledger.ledger.testing import FaultyEngine
from kledger.topics.config.topic_config import TopicDefaults
from kledger.topics.errors import (
    CorruptMessage,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTransactionState,
    MessageTooLarge,
    OffsetOutOfRange,
    OutOfOrderSequence,
    PartitionTerminated,
    TopicStorageFailed,
    UnknownPartition,
    UnsupportedCompressionType,
)
from kledger.topics.partition.partition_log import PartitionLog
from kledger.topics.partition.read_hints import READ_HINTS_MAX, ReadHints
from kledger.topics.partition.results import AppendResult
from tests.batches.words import NOW_MS, batch
from tests.contained import Contained
from tests.topics.words import (
    SMALL_SEGMENTS,
    all_values,
    append,
    offsets,
    open_topics,
    outcome,
    submit,
)

SEQUENCE_MAX = (1 << 31) - 1


def mine(sequence: int, count: int = 1, *, epoch: int = 0) -> bytearray:
    """A batch of producer 9."""
    values = [f"{epoch}.{sequence + i}" for i in range(count)]
    return batch(*values, producer=9, epoch=epoch, sequence=sequence)


async def test_row_38_identical_batch_again_answers_the_original_offset() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        await append(log, batch("x"))
        assert [1, 1] == [outcome(await append(log, mine(0, 10))) for _ in range(2)]
        assert 11 == log.high_watermark


async def test_row_39_only_the_last_five_batches_are_known() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        for sequence in range(6):
            await append(log, mine(sequence))
        assert 1 == outcome(await append(log, mine(1)))
        assert OutOfOrderSequence is outcome(await append(log, mine(0)))
        assert 6 == log.high_watermark


async def test_row_40_gap_is_refused_and_filled() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        found = [outcome(await append(log, mine(*each))) for each in ((0, 5), (6, 4), (5, 5))]
        assert [0, OutOfOrderSequence, 5] == found
        assert 10 == log.high_watermark


async def test_row_41_what_follows_a_rejected_batch_is_out_of_order() -> None:
    async with open_topics() as opened:
        log = await opened.log(configs={"max.message.bytes": "200"})
        large = build_batch([NewRecord(b"x" * 300)])
        struct.pack_into(">qhi", large, 43, 9, 0, 1)
        refresh_checksum(large)
        sent = [mine(0), large, mine(2), mine(3), mine(4)]
        answers = await asyncio.gather(*[submit(log, each) for each in sent])
        assert [0, MessageTooLarge] + [OutOfOrderSequence] * 3 == [outcome(a) for a in answers]


@pytest.mark.parametrize("is_closed_cleanly", [True, False])
async def test_row_42_duplicates_are_recognised_after_a_restart(is_closed_cleanly: bool) -> None:
    async with open_topics(is_closed_cleanly=is_closed_cleanly) as opened:
        log = await opened.log()
        for sequence in range(0, 12, 2):
            await append(log, mine(sequence, 2))
    async with open_topics(opened.engine) as again:
        log = await again.log()
        assert [10, 4, OutOfOrderSequence, 12] == [
            outcome(await append(log, mine(sequence, 2))) for sequence in (10, 4, 0, 12)
        ]
        assert 14 == log.high_watermark


async def test_row_43_unknown_producer_may_continue_anywhere() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        await append(log, mine(0, 57))
        opened.clock.advance(86_400_001)
        await log.enforce_retention()
        assert {} == log.producers()
        assert 57 == outcome(await append(log, mine(100)))
        await log.delete_records(-1)
        assert 58 == outcome(await append(log, mine(101)))


async def test_row_44_sequence_wraps() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        assert [0, 1, 2] == [outcome(await append(log, mine(s))) for s in (SEQUENCE_MAX, 0, 1)]
        assert 0 == outcome(await append(log, mine(SEQUENCE_MAX)))


async def test_row_45_older_epoch_is_fenced() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        await append(log, mine(0, epoch=1))
        assert InvalidProducerEpoch is outcome(await append(log, mine(0, epoch=0)))


async def test_row_46_newer_epoch_begins_at_zero() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        await append(log, mine(0, 5))
        assert OutOfOrderSequence is outcome(await append(log, mine(5, epoch=1)))
        assert 5 == outcome(await append(log, mine(0, epoch=1)))


async def test_row_47_exactly_one_batch() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        for records in (batch("a") + batch("b"), b"", bytes(5)):
            assert InvalidRecord is outcome(await append(log, records))
        assert 0 == outcome(await append(log, batch("a") + bytes(7)))
        assert ([0], 1) == (offsets(await log.read(0, 1000)), log.high_watermark)


ROW_48 = [
    ("checksum", 17, ">I", 1, False, CorruptMessage),
    ("length below the minimum", 8, ">i", 13, False, CorruptMessage),
    ("length past the field", 8, ">i", 5000, False, InvalidRecord),
    ("base offset", 0, ">q", 7, True, InvalidRecord),
    ("control bit", 21, ">h", 0x20, True, InvalidRecord),
    ("count", 57, ">i", 5, True, InvalidRecord),
    ("magic", 16, ">b", 1, True, InvalidRecord),
    ("codec", 21, ">h", 6, True, UnsupportedCompressionType),
]


@pytest.mark.parametrize(("_name", "at", "form", "value", "redo", "error"), ROW_48)
async def test_row_48_errors_in_the_header(
    _name: str, at: int, form: str, value: int, redo: bool, error: type[Exception]
) -> None:
    async with open_topics() as opened:
        log = await opened.log()
        bad = batch("a")
        struct.pack_into(form, bad, at, value)
        if redo:
            refresh_checksum(bad)
        assert error is outcome(await append(log, bad))
        assert 0 == log.high_watermark


@pytest.mark.parametrize("epoch", [-1, 0, 12345])
async def test_row_49_leader_epoch_of_the_client_is_replaced(epoch: int) -> None:
    async with open_topics() as opened:
        log = await opened.log()
        sent = batch("a")
        struct.pack_into(">i", sent, 12, epoch)
        await append(log, sent)
        (chunk,) = (await log.read(0, 1000)).chunks
        assert log.leader_epoch == read_header(chunk).leader_epoch == 0


async def test_row_50_size_limit_is_inclusive_and_changes_at_once() -> None:
    async with open_topics() as opened:
        sent = batch("a" * 100)
        log = await opened.log(configs={"max.message.bytes": str(len(sent))})
        assert 0 == outcome(await append(log, sent))
        changes = {"max.message.bytes": str(len(sent) - 1)}
        await opened.registry.alter_configs("orders", changes)
        assert MessageTooLarge is outcome(await append(log, sent))


async def test_row_52_log_append_time() -> None:
    async with open_topics() as opened:
        log = await opened.log(configs={"message.timestamp.type": "LogAppendTime"})
        sent = batch("a", "b", codec=1, timestamp=5, producer=9)
        result = await append(log, sent)
        assert NOW_MS == result.log_append_time_ms
        (chunk,) = (await log.read(0, 1000)).chunks
        header = read_header(chunk)
        verify_checksum(chunk, header)
        assert (True, NOW_MS) == (header.is_log_append_time, header.max_timestamp)
        theirs = KafkaBatch(bytes(chunk))
        assert theirs.validate_crc()
        assert [NOW_MS, NOW_MS] == [record.timestamp for record in theirs]
        opened.clock.advance(50)
        assert result == await append(log, sent)  # a duplicate is answered with its first time
        assert (NOW_MS, 0) == await log.offset_for_timestamp(NOW_MS)


async def test_row_53_timestamp_type_and_range() -> None:
    async with open_topics() as opened:
        claimed = build_batch([NewRecord(b"v", timestamp=NOW_MS)], log_append_time_ms=NOW_MS + 9)
        stamping = await opened.log("stamped", {"message.timestamp.type": "LogAppendTime"})
        assert InvalidTimestamp is outcome(await append(stamping, claimed))
        log = await opened.log()
        assert 0 == outcome(await append(log, claimed))
        (chunk,) = (await log.read(0, 1000)).chunks
        assert [NOW_MS] == [record.timestamp for record in iterate_records(chunk)]
        verify_checksum(chunk, read_header(chunk))
        two_days = batch("a", timestamp=NOW_MS + 2 * 86_400_000)
        assert InvalidTimestamp is outcome(await append(log, two_days))
        await opened.registry.alter_configs("orders", {"message.timestamp.before.max.ms": "1000"})
        old = [outcome(await append(log, batch(timestamp=NOW_MS - age))) for age in (1000, 1001)]
        assert [1, InvalidTimestamp] == old
        assert 2 == outcome(await append(log, batch(timestamp=-1)))


async def test_row_54_compacted_topic_wants_keys_and_names_the_records() -> None:
    async with open_topics() as opened:
        log = await opened.log(configs={"cleanup.policy": "compact"})
        for codec in range(5):
            answer = await append(
                log, build_batch([NewRecord(b"v", key=b"k"), NewRecord(b"v")], codec=codec)
            )
            assert isinstance(answer.error, InvalidRecord)
            assert [1] == [index for index, _ in answer.error.record_errors]
        assert 0 == outcome(await append(log, batch("a")))


async def test_row_58_without_idempotence_a_repeat_is_stored_twice() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        assert [0, 1] == [outcome(await append(log, batch("a"))) for _ in range(2)]


async def test_full_validation_walks_every_batch() -> None:
    late = NOW_MS + 3_600_001
    middle = build_batch([NewRecord(b"v", timestamp=t) for t in (NOW_MS, late, NOW_MS)])
    struct.pack_into(">q", middle, 35, NOW_MS)  # the header hides the late one
    refresh_checksum(middle)
    async with open_topics() as opened:
        assert 0 == outcome(await append(await opened.log(), middle))
    async with open_topics(defaults=TopicDefaults(batch_validation="full")) as strict:
        log = await strict.log()
        assert InvalidTimestamp is outcome(await append(log, middle))
        hidden = build_batch([NewRecord(b"v", timestamp=NOW_MS + 7)])
        struct.pack_into(">q", hidden, 35, NOW_MS)
        refresh_checksum(hidden)
        assert 0 == outcome(await append(log, hidden))
        (chunk,) = (await log.read(0, 1000)).chunks
        assert NOW_MS + 7 == read_header(chunk).max_timestamp


async def test_transactional_batch_is_refused() -> None:
    async with open_topics() as opened:
        sent = batch("a", producer=9, transactional=True)
        assert InvalidTransactionState is outcome(await append(await opened.log(), sent))


async def test_duplicate_of_a_pending_batch_waits_for_it() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        log = await opened.log()
        hold = engine.hold_next("commit")
        first, again = submit(log, mine(0)), submit(log, mine(0))
        await hold.reached()
        assert not first.done()
        assert not again.done()
        assert 0 == log.high_watermark
        hold.release()
        assert [0, 0] == [outcome(each) for each in await asyncio.gather(first, again)]
        assert 1 == log.high_watermark


async def test_failed_appends_consume_no_offset_and_no_sequence() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        log = await opened.log()
        await append(log, mine(0, 2))
        hold = engine.hold_next("commit")
        sent = [submit(log, mine(2)), submit(log, mine(3)), submit(log, batch("x"))]
        await hold.reached()
        sent += [submit(log, mine(4)), submit(log, mine(4)), submit(log, batch("y"))]
        hold.fail(StorageWriteFailed("full"))
        assert [TopicStorageFailed] * 6 == [outcome(each) for each in await asyncio.gather(*sent)]
        assert (2, 0) == (log.high_watermark, log.available_bytes(2, log.high_watermark))
        answers = [
            await append(log, mine(2)),
            await append(log, mine(3)),
            await append(log, mine(0, 2)),
        ]
        assert [2, 3, 0] == [outcome(each) for each in answers]
        assert [b"0.0", b"0.1", b"0.2", b"0.3"] == await all_values(log)


async def test_append_inside_a_callback_follows_it() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        inner: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()

        def again(_result: AppendResult) -> None:
            assert log.append_nowait(memoryview(batch("b")), inner.set_result) is None

        assert log.append_nowait(memoryview(batch("a")), again) is None
        assert 1 == outcome(await inner)
        assert [b"a", b"b"] == await all_values(log)


async def test_listeners_are_called_for_appends_trims_and_the_end() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        calls: list[tuple[int, int]] = []

        def listener() -> None:
            calls.append((log.log_start_offset, log.high_watermark))

        log.add_listener(listener)
        await append(log, batch("a", "b"))
        assert (0, 2) == calls[-1]
        await log.delete_records(1)
        assert (1, 2) == calls[-1]
        before = len(calls)
        await opened.registry.delete("orders")
        assert len(calls) > before
        log.remove_listener(listener)
        log.remove_listener(listener)


async def test_delete_records_removes_no_expired_records_above_its_offset() -> None:
    """Deleting up to 1 removed everything, because the records were a month old."""
    async with open_topics() as opened:
        log = await opened.log(configs={"retention.ms": "1000"})
        await append(log, batch(*"abc"))
        opened.clock.advance(30 * 24 * 3_600_000)

        assert 1 == await log.delete_records(1)
        assert (1, 3) == (log.log_start_offset, log.high_watermark)


async def test_row_77_delete_records() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        await append(log, batch(*"abcdefghij"))
        assert 5 == await log.delete_records(5)
        assert isinstance((await log.read(0, 1000)).error, OffsetOutOfRange)
        assert (5, 5) == (log.log_start_offset, await log.delete_records(3))
        for offset in (11, -2):
            with pytest.raises(OffsetOutOfRange):
                await log.delete_records(offset)
        assert 10 == await log.delete_records(-1) == log.high_watermark
        assert 10 == outcome(await append(log, batch("k")))
    async with open_topics(opened.engine) as again:
        log = await again.log()
        assert (10, 11) == (log.log_start_offset, log.high_watermark)


async def test_delete_records_deletes_whole_ledgers() -> None:
    async with open_topics() as opened:
        log = await opened.log(configs=SMALL_SEGMENTS)
        for index in range(20):
            await append(log, batch(str(index) * 100))
        before = log.size_bytes
        await log.delete_records(15)
        assert 0 < log.size_bytes < before / 2
        assert [str(i).encode() * 100 for i in range(15, 20)] == await all_values(log)


async def test_retention_by_size_and_age() -> None:
    async with open_topics() as opened:
        configs = {**SMALL_SEGMENTS, "retention.bytes": "1000"}
        log = await opened.log(configs=configs)
        for index in range(20):
            await append(log, batch(str(index) * 100))
        await opened.registry.enforce_retention()
        assert 1000 <= log.size_bytes < 1500
        assert 0 < log.log_start_offset
        await opened.registry.alter_configs("orders", {"retention.ms": "1000"})
        opened.clock.advance(1002)
        await opened.registry.enforce_retention()
        assert (20, 20, 0) == (log.log_start_offset, log.high_watermark, log.size_bytes)
        assert 20 == outcome(await append(log, batch("x")))
    async with open_topics(opened.engine) as again:
        log = await again.log()
        assert (20, 21) == (log.log_start_offset, log.high_watermark)


async def test_log_emptied_by_retention_keeps_its_end_over_a_restart() -> None:
    async with open_topics() as opened:
        log = await opened.log(configs={"retention.ms": "10"})
        await append(log, batch("a", "b", "c"))
        opened.clock.advance(20)
        await log.enforce_retention()
    for is_closed_cleanly in (True, False):
        async with open_topics(opened.engine, is_closed_cleanly=is_closed_cleanly) as again:
            log = await again.log()
            assert (3, 3) == (log.log_start_offset, log.high_watermark)
            assert await log.offset_for_timestamp(0) is None
            assert await log.max_timestamp_offset() is None


async def test_closed_partition_refuses_calls() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        await append(log, batch("a"))
        await log.close()
        await log.close()
        assert log.is_closed
        assert UnknownPartition is outcome(await append(log, batch("b")))
        assert isinstance((await log.read(0, 100)).error, UnknownPartition)
        for call in (log.delete_records(0), log.enforce_retention()):
            with pytest.raises(UnknownPartition):
                await call


async def test_append_returns_its_position() -> None:
    async with open_topics() as opened:
        log = await opened.log(configs=SMALL_SEGMENTS)
        found = [(await append(log, batch("x" * 100))).position for _ in range(9)]
        assert found == [each.position for each in await entries_of(log)]
        assert (await append(log, batch(producer=9, epoch=1))).position is not None
        refused = await append(log, batch(producer=9, epoch=0))
        assert (InvalidProducerEpoch, None) == (type(refused.error), refused.position)


@pytest.mark.parametrize("is_pending", [True, False])
async def test_resent_batch_has_its_old_position(is_pending: bool) -> None:
    async with open_topics() as opened:
        log = await opened.log()
        first = submit(log, mine(0))
        if not is_pending:
            await first
        again = submit(log, mine(0))
        assert (await first) == (await again)
        assert [(await first).position] == [each.position for each in await entries_of(log)]


async def entries_of(log: PartitionLog) -> list[Entry]:
    """Everything in a partition's ledger."""
    return await log.managed_ledger.read_entries(EARLIEST, 1000)


@pytest.mark.parametrize("is_closed_cleanly", [True, False])
async def test_terminated_partition_refuses_records_after_a_restart(
    is_closed_cleanly: bool,
) -> None:
    async with open_topics(is_closed_cleanly=is_closed_cleanly) as opened:
        log = await opened.log()
        assert not log.is_terminated
        before = submit(log, mine(0))
        last = await log.terminate()
        assert last == (await before).position == await log.terminate()
        assert log.is_terminated
        assert PartitionTerminated is outcome(await append(log, mine(1)))
    async with open_topics(opened.engine) as again:
        log = await again.log()
        assert log.is_terminated
        assert [PartitionTerminated, 0] == [
            outcome(await append(log, mine(each))) for each in (1, 0)
        ]
        assert [b"0.0"] == await all_values(log)
        assert 1 == log.high_watermark
        assert 1 == await log.delete_records(-1)
        await log.enforce_retention()


async def test_termination_that_is_not_stored_has_no_effect() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        log = await opened.log()
        await append(log, batch("a"))
        engine.fail_next("commit", StorageWriteFailed("full"))
        with pytest.raises(TopicStorageFailed):
            await log.terminate()
        assert not log.is_terminated
        assert 1 == outcome(await append(log, batch("b")))


@pytest.mark.parametrize("method", ["confirm", "fail_from"])
async def test_fault_gives_every_caller_an_error_including_duplicates(
    method: str, monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    """The first caller got no result, nor did later ones."""
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        log = await opened.log()
        hold = engine.hold_next("commit")
        same = batch("same", producer=9, epoch=0, sequence=0)
        waiting = [submit(log, each) for each in (same, bytearray(same), batch("other"))]
        await hold.reached()

        def fails(*_: object) -> None:
            raise RuntimeError("injected")

        monkeypatch.setattr(
            f"kledger.topics.partition.partition_state.PartitionState.{method}", fails
        )
        if method == "confirm":
            hold.release()
        else:
            hold.fail()
        answers = await asyncio.gather(*waiting)
        assert [TopicStorageFailed] * 3 == [outcome(each) for each in answers]
        assert {"orders-0 was closed after a fault"} == {str(each.error) for each in answers}
        assert log.is_closed
    assert ["a fault here closes partition orders-0"] == contained.messages[:1]


async def test_raising_callback_closes_the_partition_and_others_are_called(
    contained: Contained,
) -> None:
    async with open_topics() as opened:
        log = await opened.log()
        topic = opened.registry.get("orders")
        assert topic is not None

        def fails(_: object) -> None:
            raise RuntimeError("injected")

        log.append_nowait(memoryview(batch("first")), fails)
        answer = await submit(log, batch("second"))
        assert TopicStorageFailed is outcome(answer)
        again = await topic.open_partition(0)
        assert 2 == again.high_watermark
    assert 1 <= len(contained.messages)


async def test_append_that_fails_after_its_submission_closes_the_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was stored without a waiting caller, and the next append would have got its offset."""
    async with open_topics() as opened:
        log = await opened.log()

        def fails(*_: object) -> None:
            raise RuntimeError("injected")

        with monkeypatch.context() as patch:
            patch.setattr(type(log.managed_ledger), "_roll_or_mark", fails)
            with pytest.raises(RuntimeError):
                log.append_nowait(memoryview(batch("first")), lambda _: None)
        assert log.is_closed
        topic = opened.registry.all()[0]
        again = await topic.open_partition(0)
        answer = await submit(again, batch("second"))
        assert (1, 2) == (outcome(answer), again.high_watermark)


def test_hints_are_remembered_and_the_oldest_evicted() -> None:
    hints = ReadHints()
    for offset in range(READ_HINTS_MAX + 5):
        hints.put(offset, Position(1, offset))
    assert hints.get(4) is None
    assert Position(1, 5) == hints.get(5)
    hints.put(5, Position(2, 0))
    assert (Position(2, 0), Position(1, 6)) == (hints.get(5), hints.get(6))
