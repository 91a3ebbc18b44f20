"""A producer link: appended batches, their order, and refused ones."""

import asyncio
from collections.abc import Callable

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.reader import iterate_records
from kledger.ledger import Position, StoreConfig
from kledger.ledger.commits.store_threads import StoreThreads
from kledger.ledger.testing import FaultyEngine
from kledger.native.broker import SendReceipt
from kledger.native.errors import (
    AlreadyClosed,
    InvalidArgument,
    TopicNotFound,
    TopicTerminated,
    Unavailable,
)
from tests.batches.words import NOW_MS, batch
from tests.native.serving import Link, serving, ticks
from tests.runtime.held_pool import HeldPool
from tests.topics.words import all_values


async def test_the_receipt_names_the_stored_batch() -> None:
    async with serving() as serving_:
        log = await serving_.log()
        await serving_.append("x", "y")
        link = Link()
        producer = await serving_.service.open_producer(
            "orders", 0, name="", on_ended=link.on_ended
        )
        receipt = await producer.send(bytes(batch("a", "b", "c")))
        assert 2 == receipt.base_offset
        (entry,) = await log.managed_ledger.read_entries(receipt.position, 1)
        assert receipt.position == entry.position
        records = list(iterate_records(entry.buffer))
        assert [(2, b"a"), (3, b"b"), (4, b"c")] == [(one.offset, one.value) for one in records]
        await producer.close()
        assert [] == link.ends


async def test_memory_that_may_be_written_to_is_not_copied() -> None:
    async with serving() as serving_:
        log = await serving_.log()
        producer = await serving_.service.open_producer(
            "orders", 0, name="", on_ended=Link().on_ended
        )
        own, foreign = batch("a"), bytes(batch("b"))
        await producer.send(own)
        await producer.send(foreign)
        entries = await log.managed_ledger.read_entries(Position(0, 0), 2)
        assert memoryview(entries[0].buffer).obj is own
        assert bytes(batch("b")) == foreign


async def test_sends_that_overlap_keep_their_order_also_when_the_store_is_full() -> None:
    """Some begin while there is room, some while others wait for it, some when it is there again
    and not every waiting batch was appended yet.
    """
    engine = FaultyEngine(None)
    config = StoreConfig(durability="fsync", committer_queue_count_max=4)
    async with serving(engine, store_config=config) as serving_:
        log, store = await serving_.log(), serving_.topics.store
        producer = await serving_.service.open_producer(
            "orders", 0, name="", on_ended=Link().on_ended
        )
        sends: list[asyncio.Future[SendReceipt]] = []

        def begin(*numbers: int) -> None:
            sends.extend(asyncio.ensure_future(producer.send(batch(str(n)))) for n in numbers)

        hold = engine.hold_next("commit")
        begin(*range(12))
        await ticks()
        assert store.is_saturated
        sends[7].cancel()
        store.on_drained(lambda: begin(12, 13))
        await hold.reached()
        hold.release()
        receipts = await asyncio.gather(*sends[:12], return_exceptions=True)
        assert isinstance(receipts[7], asyncio.CancelledError)
        await asyncio.gather(*sends[12:])
        sent = [str(number).encode() for number in range(14) if number != 7]
        assert sent == await all_values(log)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda good: good[:40], "hold no complete batch"),
        (lambda good: good[:-1] + b"\x07", "checksum"),
        (lambda good: good + good, "more than one batch"),
        (lambda good: b"", "no complete batch"),
        (lambda good: good[:16] + b"\1" + good[17:], "Invalid magic found in record: 1"),
    ],
)
async def test_damaged_batches_are_refused(change: Callable[[bytes], bytes], message: str) -> None:
    async with serving() as serving_:
        log = await serving_.log()
        link = Link()
        producer = await serving_.service.open_producer(
            "orders", 0, name="", on_ended=link.on_ended
        )
        with pytest.raises(InvalidArgument, match=message):
            await producer.send(change(bytes(batch("a", "b"))))
        await producer.send(bytes(batch("good")))
        assert [b"good"] == await all_values(log)
        assert [] == link.ends


async def test_a_failed_write_may_be_tried_again() -> None:
    engine = FaultyEngine(None)
    async with serving(engine) as serving_:
        log = await serving_.log()
        producer = await serving_.service.open_producer(
            "orders", 0, name="", on_ended=Link().on_ended
        )
        engine.fail_next("commit")
        with pytest.raises(Unavailable):
            await producer.send(batch("a"))
        assert 0 == (await producer.send(batch("b"))).base_offset
        assert [b"b"] == await all_values(log)


async def test_a_resent_batch_gets_the_receipt_of_the_first_send() -> None:
    async with serving() as serving_:
        await serving_.log()
        producer = await serving_.service.open_producer(
            "orders", 0, name="", on_ended=Link().on_ended
        )
        first = await producer.send(batch("a", producer=7, sequence=0))
        await producer.send(batch("b", producer=7, sequence=1))
        assert first == await producer.send(batch("a", producer=7, sequence=0))


async def test_a_closed_producer_sends_nothing() -> None:
    async with serving() as serving_:
        await serving_.log()
        link = Link()
        producer = await serving_.service.open_producer(
            "orders", 0, name="", on_ended=link.on_ended
        )
        await producer.close()
        await producer.close()
        with pytest.raises(AlreadyClosed):
            await producer.send(batch("a"))
        await serving_.topics.registry.delete("orders")
        assert [] == link.ends


async def test_deleting_the_topic_ends_the_link() -> None:
    async with serving() as serving_:
        await serving_.log()
        link = Link()
        producer = await serving_.service.open_producer(
            "orders", 0, name="", on_ended=link.on_ended
        )
        await serving_.topics.registry.delete("orders")
        assert [TopicNotFound] == link.end_kinds
        for _ in range(2):
            with pytest.raises(TopicNotFound, match="orders was deleted"):
                await producer.send(batch("a"))


async def test_nothing_is_added_to_a_terminated_topic() -> None:
    async with serving() as serving_:
        await serving_.log()
        link = Link()
        producer = await serving_.service.open_producer(
            "orders", 0, name="", on_ended=link.on_ended
        )
        await producer.send(batch("a"))
        await serving_.service.terminate("orders")
        with pytest.raises(TopicTerminated):
            await producer.send(batch("b"))
        with pytest.raises(TopicTerminated):
            await serving_.service.open_producer("orders", 0, name="", on_ended=link.on_ended)


async def test_sends_behind_a_walk_over_records_wait_for_it() -> None:
    pool = HeldPool()
    async with serving(threads=StoreThreads(compute_pool=lambda: pool)) as serving_:
        log = await serving_.log()
        await serving_.topics.registry.alter_configs("orders", {"cleanup.policy": "compact"})
        producer = await serving_.service.open_producer(
            "orders", 0, name="", on_ended=Link().on_ended
        )
        long = build_batch([NewRecord(b"long", b"k", NOW_MS)] * 1000)
        short = build_batch([NewRecord(b"short", b"k", NOW_MS)])
        keyless = build_batch([NewRecord(b"v")] * 1000)
        sends = [asyncio.ensure_future(producer.send(each)) for each in (long, short, keyless)]
        await ticks()
        assert 1 == pool.waiting_count
        assert 0 == log.high_watermark
        pool.release()
        assert [0, 1000] == [(await each).base_offset for each in sends[:2]]
        with pytest.raises(InvalidArgument, match=r"message without key \(1000 records\)"):
            await sends[2]
