"""A target keeps the order: batches behind a refused one are refused."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kledger.batches.header import read_header, set_producer
from kledger.batches.reader import iterate_batches
from kledger.ledger import Buffer
from kledger.native.broker import OnEnded, ProducerLink, SendReceipt
from kledger.native.errors import InvalidArgument, KledgerError, TopicTerminated, Unavailable
from kledger.native.forwarder.target import LinkTarget
from kledger.runtime.entropy import SeededEntropy
from tests.native.forwarder.builders import one, value_of
from tests.native.serving import Serving, serving


@pytest.fixture
async def there() -> AsyncIterator[Serving]:
    async with serving() as opened:
        await opened.log("orders")
        yield opened


@pytest.fixture
async def target(there: Serving) -> LinkTarget:
    return LinkTarget(there.service, "orders", 0, name="f", entropy=SeededEntropy(1))


async def values(there: Serving) -> list[bytes]:
    log = await there.log("orders")
    found = await log.read(0, 1 << 20, read_committed=False, first_batch_always=True)
    batches = [batch for chunk in found.chunks for _, batch in iterate_batches(chunk)]
    return [value_of(batch) for batch in batches]


async def all_of(*sends: Buffer, target: LinkTarget) -> list[type]:
    results = await asyncio.gather(*map(target.send, sends), return_exceptions=True)
    return [type(each) for each in results]


async def test_sends_that_overlap_are_appended_in_order(there: Serving, target: LinkTarget) -> None:
    await target.start()
    assert 1 == target.sends_in_flight_max
    await target.send(one(b"0"))
    assert 5 == target.sends_in_flight_max
    assert [type(None)] * 3 == await all_of(one(b"1"), one(b"2"), one(b"3"), target=target)
    assert [b"0", b"1", b"2", b"3"] == await values(there)


async def test_batches_behind_a_refused_one_are_refused(there: Serving, target: LinkTarget) -> None:
    """Otherwise the third would be stored before the second, which is resent."""
    await target.start()
    await target.send(one(b"0"))
    damaged = one(b"1")
    damaged[16] = 1
    sends = [one(b"a"), damaged, one(b"b"), one(b"c")]
    assert [type(None), *[InvalidArgument] * 3] == await all_of(*sends, target=target)
    with pytest.raises(InvalidArgument, match="magic"):
        await target.send(one(b"d"))
    await target.start()
    await target.send(one(b"1"))
    assert [b"0", b"a", b"1"] == await values(there)


async def test_a_new_start_refuses_earlier_batches(there: Serving, target: LinkTarget) -> None:
    """A server may process batches of a lost connection later."""
    links: list[ProducerLink] = []
    late = LinkTarget(there.service, "orders", 0, name="f", entropy=SeededEntropy(1))
    await late.start()
    await late.send(one(b"0"))
    links.append(late._link)  # type: ignore[arg-type]
    late._link = None
    stamped = bytearray(one(b"late"))
    set_producer(stamped, *late._sequence.identity, 1)
    await late.start()
    await late.send(one(b"1"))
    with pytest.raises(InvalidArgument, match="epoch"):
        await links[0].send(stamped)
    assert [b"0", b"1"] == await values(there)


async def test_sends_on_an_ended_link_raise_its_error(there: Serving, target: LinkTarget) -> None:
    with pytest.raises(Unavailable):
        await target.send(one(b"0"))
    await target.start()
    await there.service.terminate("orders")
    with pytest.raises(TopicTerminated):
        await target.send(one(b"0"))
    with pytest.raises(TopicTerminated):
        await target.start()
    await target.close()
    await target.close()


class LostLinks:
    """A broker whose links the test ends."""

    def __init__(self) -> None:
        self.endings: list[OnEnded] = []
        self.batches: list[bytes] = []

    async def open_producer(
        self, topic: str, partition: int, *, name: str, on_ended: OnEnded
    ) -> "LostLinks":
        self.endings.append(on_ended)
        return self

    async def send(self, batch: Buffer) -> SendReceipt:
        self.batches.append(bytes(batch))
        raise Unavailable("the answer was lost")

    async def close(self) -> None:
        raise Unavailable("it has ended")


async def test_a_lost_link_ends_only_its_own_start() -> None:
    broker = LostLinks()
    target = LinkTarget(
        broker,  # type: ignore[arg-type]
        "orders", 0, name="f", entropy=SeededEntropy(1),
    )  # fmt: skip
    await target.start()
    broker.endings[0](Unavailable("lost"))
    with pytest.raises(Unavailable, match="lost"):
        await target.send(one(b"0"))
    assert [] == broker.batches
    await target.start()
    broker.endings[0](KledgerError("long ago"))
    with pytest.raises(Unavailable, match="the answer was lost"):
        await target.send(one(b"0"))
    assert 2 == read_header(broker.batches[0]).producer_epoch
    await target.close()
