"""Which batches are decoded on the loop, and which in the thread."""

import asyncio
from contextlib import aclosing
from itertools import chain
from threading import Event

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.compression import Codec
from kledger.ledger import Position
from kledger.native.client.message_decoder import (
    BYTES_AT_ONCE_MAX,
    PART_MESSAGES,
    PLAIN_BYTES_AT_ONCE_MAX,
    RECORDS_AT_ONCE_MAX,
    STEPS_PER_TICK_MAX,
    MessageDecoder,
    decode_delivery,
)
from kledger.native.errors import AlreadyClosed, Unreadable
from kledger.native.message import Message
from kledger.runtime.blocking import BlockingPool
from kledger.runtime.tasks import Supervisor
from kledger.subscriptions.model import ALL, Delivery
from tests.native.client_builders import damaged, decoder, delivery, long_delivery, ticks


def entry(*records: NewRecord, codec: Codec = Codec.NONE) -> Delivery:
    return Delivery(Position(5, 1), build_batch(records, codec=codec), ALL, 2)


def at_once(it: MessageDecoder, given: Delivery) -> list[Message] | None:
    return it.decode_at_once(given, topic="orders", partition=3, link=None)


def everything(messages: list[Message]) -> list[tuple[object, ...]]:
    return [(each.id, each.key, each.value, each.headers, each.offset) for each in messages]


SHORT = {
    "one": delivery(1, b"a"),
    "native": entry(*[NewRecord(bytes(100))] * RECORDS_AT_ONCE_MAX),
    "large": entry(NewRecord(bytes(BYTES_AT_ONCE_MAX - 1_000))),
    "zstd": entry(*[NewRecord(bytes(100))] * 200, codec=Codec.ZSTD),
    "headers": entry(NewRecord(b"", headers=[("name", b"value")] * 1_000)),
}
LONG = {
    "records": long_delivery(1, count=RECORDS_AT_ONCE_MAX + 1),
    "bytes": entry(NewRecord(bytes(BYTES_AT_ONCE_MAX))),
    "zstd": entry(NewRecord(bytes(PLAIN_BYTES_AT_ONCE_MAX)), codec=Codec.ZSTD),
    "gzip": entry(*[NewRecord(b"")] * 10_000, codec=Codec.GZIP),
    "headers": entry(NewRecord(b"", headers=[("", None)] * (STEPS_PER_TICK_MAX + 300))),
    "headers each": entry(*[NewRecord(b"", headers=[("", None)] * 2)] * RECORDS_AT_ONCE_MAX),
    "headers later": entry(
        *[NewRecord(b"")] * 300, *[NewRecord(b"", headers=[("", None)] * 8)] * 300
    ),
}


@pytest.mark.parametrize("kind", SHORT)
async def test_short_batch_is_decoded_at_once(kind: str) -> None:
    found = at_once(decoder(Supervisor()), SHORT[kind])
    assert found is not None
    assert everything(
        decode_delivery(SHORT[kind], topic="orders", partition=3, link=None)
    ) == everything(found)


@pytest.mark.parametrize("kind", LONG)
async def test_long_batch_is_decoded_elsewhere_and_the_same(kind: str) -> None:
    it = decoder(Supervisor())
    assert at_once(it, LONG[kind]) is None
    found = await it.decode(LONG[kind], topic="orders", partition=3, link=None)
    assert everything(
        decode_delivery(LONG[kind], topic="orders", partition=3, link=None)
    ) == everything(found)


async def test_batches_of_one_tick_share_its_allowance() -> None:
    """Not those that cost next to nothing."""
    it = decoder(Supervisor())
    assert at_once(it, SHORT["native"]) is not None
    assert at_once(it, SHORT["native"]) is None
    assert at_once(it, SHORT["one"]) is not None
    await ticks(1)
    assert at_once(it, SHORT["native"]) is not None


async def test_damaged_short_batch_raises_at_once() -> None:
    with pytest.raises(Unreadable, match="5:9"):
        at_once(decoder(Supervisor()), damaged(9))


async def test_parts_contain_the_delivered_records() -> None:
    records = sum(1 << index for index in range(0, 5_000, 2))
    it = decoder(Supervisor())
    parts = it.decode_parts(
        long_delivery(1, count=5_000, records=records), topic="orders", partition=3, link=None
    )
    found = [[message.value for message in part] async for part in parts]
    assert [PART_MESSAGES, PART_MESSAGES, 500] == [len(part) for part in found]
    assert [b"%d" % number for number in range(0, 5_000, 2)] == list(chain.from_iterable(found))


async def test_damage_behind_the_first_part_yields_nothing() -> None:
    it = decoder(Supervisor())
    parts = it.decode_parts(
        long_delivery(1, count=5_000, is_damaged=True), topic="orders", partition=3, link=None
    )
    with pytest.raises(Unreadable, match="5:1"):
        await anext(parts)


async def test_closed_decoder_raises() -> None:
    it = decoder(Supervisor())
    it.close()
    with pytest.raises(AlreadyClosed):
        await it.decode(LONG["records"], topic="orders", partition=3, link=None)


class HeldPool(BlockingPool):
    """Blocks at the first pause until it is released, and counts pauses."""

    def __init__(self) -> None:
        super().__init__(1)
        self.pauses = 0
        self.reached = asyncio.Event()
        self.go_on = Event()
        self._loop = asyncio.get_running_loop()

    def yield_gil(self) -> None:
        self.pauses += 1
        if self.pauses == 1:
            self._loop.call_soon_threadsafe(self.reached.set)
            assert self.go_on.wait(60)


async def test_dropped_decoding_ends_at_its_next_pause() -> None:
    pool, supervisor = HeldPool(), Supervisor()
    it = decoder(supervisor, pool)
    decoding = it.begin(
        long_delivery(1, count=50_000), topic="orders", partition=3, link=None, changed=lambda: None
    )
    await pool.reached.wait()
    decoding.drop()
    await ticks()
    pool.go_on.set()
    await supervisor.close()
    it.close()
    assert 1 == pool.pauses


async def test_parts_wait_until_they_are_taken() -> None:
    """So a million messages never exist together."""
    supervisor = Supervisor()
    it = decoder(supervisor)
    changes: list[None] = []
    decoding = it.begin(
        long_delivery(1, count=10 * PART_MESSAGES),
        topic="orders",
        partition=3,
        link=None,
        changed=lambda: changes.append(None),
    )
    await ticks(100)
    assert 1 == len(changes)
    first = decoding.take()
    assert first is not None
    assert b"0" == first[0].value
    assert decoding.take() is None
    await ticks(100)
    assert 2 == len(changes)
    decoding.drop()
    await supervisor.close()


async def test_leaving_early_frees_the_memory() -> None:
    it = decoder(Supervisor())
    parts = it.decode_parts(LONG["gzip"], topic="orders", partition=3, link=None)
    async with aclosing(parts):
        await anext(parts)
    with pytest.raises(StopAsyncIteration):
        await anext(parts)
