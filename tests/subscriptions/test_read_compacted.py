"""Consumers that read compacted: permits, removed records and keys, compactions that complete."""

import asyncio
from collections.abc import Iterable, Mapping

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.compression import Codec
from kledger.batches.header import read_header
from kledger.ledger import EARLIEST, ManagedLedgerConfig, NewEntry, Position, StoreConfig
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.subscriptions.entry_view import index_count, indexes_of, kept_records
from kledger.subscriptions.errors import ConsumerBusy, InvalidRequest
from kledger.subscriptions.model import (
    ALL,
    Acknowledgement,
    ConsumerOptions,
    Delivery,
    StartPosition,
    SubscriptionType,
)
from kledger.subscriptions.subscription import Subscription, SubscriptionConsumer
from kledger.topics.compaction.batch_rebuild import emptied, without_records
from tests.subscriptions.partition_fixture import SECONDS_MAX, PartitionFixture

EXCLUSIVE = SubscriptionType.EXCLUSIVE


def stored(*values: bytes | None, codec: Codec = Codec.NONE) -> bytes:
    """Return a batch with a record for each value."""
    return bytes(build_batch([NewRecord(each, key=b"k") for each in values], codec=codec))


def rebuilt(batch: bytes, kept: Iterable[int]) -> bytes:
    """Return what a compaction leaves of a batch."""
    header, kept = read_header(batch), set(kept)
    if not kept:
        return bytes(emptied(header))
    alive = bytearray(index in kept for index in range(header.record_count))
    return batch if all(alive) else bytes(without_records(batch, header, alive, lambda: None))


class Reader:
    """A consumer that reads compacted, and what it got: position and index of each record."""

    def __init__(self) -> None:
        self.got: list[tuple[Position, int]] = []
        self.arrived = asyncio.Event()
        self.consumer: SubscriptionConsumer

    async def join(
        self, subscription: Subscription, permits: int = 1000, *, is_continued: bool = False
    ) -> "Reader":
        self.consumer = await subscription.add_consumer(
            ConsumerOptions(name="c"),
            EXCLUSIVE,
            deliver=self._take,
            on_ended=lambda _: None,
            reads_compacted=True,
            is_continued=is_continued,
        )
        self.consumer.add_permits(permits)
        return self

    def _take(self, deliveries: Iterable[Delivery]) -> None:
        for position, data, records, _ in deliveries:
            mask = (1 << index_count(data)) - 1 if records == ALL else records
            self.got += [(position, index) for index in indexes_of(mask)]
        self.arrived.set()

    async def read(self, count: int) -> list[tuple[Position, int]]:
        """Wait for that many records."""
        async with asyncio.timeout(SECONDS_MAX):
            while len(self.got) < count:
                self.arrived.clear()
                await self.arrived.wait()
        return self.got


async def compact(
    fixture: PartitionFixture, batches: Mapping[Position, bytes], kept: Mapping[Position, list[int]]
) -> None:
    """Keep these records, up to the last batch, which stays even if it is empty."""
    horizon = max(batches)
    entries = {**kept, horizon: kept.get(horizon, [])}
    writer = await fixture.ledger.begin_compaction()
    await writer.append(
        [NewEntry(at, (rebuilt(batches[at], entries[at]),)) for at in sorted(entries)]
    )
    await writer.complete(horizon)


async def filled(fixture: PartitionFixture, *batches: bytes) -> dict[Position, bytes]:
    return {await fixture.ledger.add_entry(each): each for each in batches}


async def opened(fixture: PartitionFixture) -> Subscription:
    return await fixture.partition.open("s", start=StartPosition(EARLIEST), reads_compacted=True)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_permits_count_what_is_delivered(fixture: PartitionFixture, codec: Codec) -> None:
    batches = await filled(fixture, *[stored(b"1", b"2", b"3", codec=codec)] * 5)
    at = sorted(batches)
    await compact(fixture, batches, {at[0]: [1], at[1]: [0, 2], at[3]: [2]})
    subscription = await opened(fixture)
    reader = await Reader().join(subscription, permits=1)
    assert [(at[0], 1)] == await reader.read(1)
    await fixture.quiet()
    reader.consumer.add_permits(2)
    expected = [(at[0], 1), (at[1], 0), (at[1], 2)]
    assert expected == await reader.read(3)
    await fixture.quiet()
    assert (3, 3) == (len(reader.got), subscription.unacknowledged)
    reader.consumer.add_permits(9)
    assert [*expected, (at[3], 2)] == await reader.read(4)
    for position, index in reversed(reader.got):
        await reader.consumer.acknowledge([Acknowledgement(position, 1 << index, 3)])
    cursor = subscription.cursor
    async with asyncio.timeout(SECONDS_MAX):
        while cursor.backlog:  # noqa: ASYNC110 - until the last batch, which is empty, is read
            await asyncio.sleep(0)
    assert (at[-1], 0) == (cursor.mark_delete_position, subscription.unacknowledged)


async def test_removed_keys_are_left_out_until_an_older_value_may_have_been_delivered(
    fixture: PartitionFixture,
) -> None:
    batches = await filled(fixture, stored(b"1"), stored(None), stored(b"", b"2"))
    at = sorted(batches)
    await compact(fixture, batches, {at[0]: [0], at[1]: [0], at[2]: [0, 1]})
    subscription = await opened(fixture)
    reader = await Reader().join(subscription, permits=1)
    assert [(at[0], 0)] == await reader.read(1)
    reader.consumer.add_permits(9)
    assert [(at[0], 0), (at[2], 1)] == await reader.read(2)
    await reader.consumer.close()
    await subscription.reset(StartPosition(EARLIEST))
    continued = await fixture.partition.open(
        "other", start=StartPosition(EARLIEST), is_durable=False, reads_compacted=True
    )
    reader = await Reader().join(continued, is_continued=True)
    assert [(at[0], 0), (at[1], 0), (at[2], 0), (at[2], 1)] == await reader.read(4)
    reader = await Reader().join(subscription, permits=1)
    assert [(at[0], 0)] == await reader.read(1)
    batches |= await filled(fixture, stored(b"3"))
    await fixture.quiet()
    await compact(fixture, batches, {at[1]: [0], at[2]: [0, 1], max(batches): [0]})
    reader.consumer.redeliver(None)
    reader.consumer.add_permits(9)
    assert [(at[1], 0), (at[2], 0), (at[2], 1), (max(batches), 0)] == (await reader.read(5))[1:]


async def test_one_wish_at_a_time(fixture: PartitionFixture) -> None:
    batches = await filled(fixture, stored(b"1"), stored(b"2"), stored(b"3"))
    at = sorted(batches)
    await compact(fixture, batches, {at[1]: [0], at[2]: [0]})
    subscription = await opened(fixture)
    reader = await Reader().join(subscription)
    await reader.read(2)
    options = ConsumerOptions(name="d")
    for wanted, reads_compacted, error in (
        (EXCLUSIVE, False, ConsumerBusy),
        (SubscriptionType.SHARED, True, InvalidRequest),
        (SubscriptionType.KEY_SHARED, True, InvalidRequest),
    ):
        with pytest.raises(error, match="compacted"):
            await subscription.add_consumer(
                options,
                wanted,
                deliver=lambda _: None,
                on_ended=lambda _: None,
                reads_compacted=reads_compacted,
            )
    await reader.consumer.acknowledge([Acknowledgement(at[1], ALL, 0)])
    await reader.consumer.close()
    positions: list[Position] = []
    arrived = asyncio.Event()

    def deliver(deliveries: Iterable[Delivery]) -> None:
        positions.extend(each.position for each in deliveries)
        arrived.set()

    plain = await subscription.add_consumer(
        options, SubscriptionType.SHARED, deliver=deliver, on_ended=lambda _: None
    )
    plain.add_permits(9)
    async with asyncio.timeout(SECONDS_MAX):
        await arrived.wait()
    assert at[2] in positions
    assert at[1] not in positions, "acknowledged"


@pytest.mark.parametrize("first", [0, 4], ids=["of the compacted ledger", "of the log"])
async def test_a_compaction_completes_while_the_dispatcher_reads(first: int) -> None:
    """Its read returns the old state or the new one; no position comes twice, no key is lost."""
    fixture = PartitionFixture(FaultyEngine(None), ManualClock(1_000_000))
    await fixture.open(
        store_config=StoreConfig(cache_bytes=0),
        config=ManagedLedgerConfig(max_entries_per_ledger=1),
    )
    try:
        batches = await filled(fixture, *[stored(b"%d" % number) for number in range(8)])
        at = sorted(batches)
        await compact(fixture, dict(list(batches.items())[:4]), {each: [0] for each in at[:3]})
        subscription = await fixture.partition.open(
            "s", start=StartPosition(at[first]), reads_compacted=True
        )
        hold = fixture.engine.hold_next("read")
        reader = await Reader().join(subscription)
        await hold.reached()
        await compact(fixture, dict(list(batches.items())[:7]), {at[5]: [0], at[6]: [0]})
        await fixture.ledger.trim_before(at[7])
        hold.release()
        async with asyncio.timeout(SECONDS_MAX):
            while (at[7], 0) not in reader.got:
                reader.arrived.clear()
                await reader.arrived.wait()
        got = [position for position, _ in reader.got]
        assert sorted(set(got)) == got
        assert at[5:] == got[-3:]
    finally:
        fixture.engine.release_waiting()
        await fixture.close()


@pytest.mark.parametrize("codec", list(Codec))
def test_kept_records_are_found_by_their_offsets(codec: Codec) -> None:
    batch = stored(b"0", None, b"2", b"", b"4", codec=codec)
    for kept in ([], [0], [1, 2], [3, 4], [0, 1, 2, 3, 4]):
        data = rebuilt(batch, kept)
        assert 5 == index_count(data)
        assert kept == indexes_of(kept_records(data, True))
        assert [each for each in kept if each not in {1, 3}] == indexes_of(
            kept_records(data, False)
        )


def test_all_records_of_a_damaged_entry_count_as_kept() -> None:
    data = bytearray(rebuilt(stored(b"0", b"1", b"2"), [0, 2]))
    data[-1] ^= 0xFF
    assert 0b111 == kept_records(bytes(data[:-1]), True)
    assert 1 == kept_records(b"no batch", False)
