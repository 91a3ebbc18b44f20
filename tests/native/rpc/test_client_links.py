"""Links over a real connection: order, answers, ends."""

import asyncio
from dataclasses import replace

import pytest

from kledger.ledger import Position
from kledger.native.broker import EARLIEST, ConsumerRequest, SendReceipt
from kledger.native.errors import (
    AlreadyClosed,
    ConsumerBusy,
    InvalidArgument,
    KledgerError,
    SubscriptionFenced,
    TopicTerminated,
    Unavailable,
)
from kledger.native.rpc.client_links import RpcConsumerLink, RpcProducerLink
from kledger.subscriptions.model import Acknowledgement, RecordMask, SubscriptionType
from tests.native.recording_broker import Deliveries, Endings, batch, delivery
from tests.native.rpc.connected_pair import MESSAGE_BYTES_MAX, Pair, pair
from tests.native.rpc.held_wire import HeldWire

REQUEST = ConsumerRequest(
    topic="orders",
    partition=2,
    subscription="bills",
    type=SubscriptionType.SHARED,
    start=EARLIEST,
    consumer_name="c",
)


async def producer(both: Pair, ended: Endings) -> RpcProducerLink:
    return await both.client.open_producer("orders", 2, name="p", on_ended=ended)


async def consumer(both: Pair, taken: Deliveries, ended: Endings) -> RpcConsumerLink:
    return await both.client.open_consumer(REQUEST, deliver=taken, on_ended=ended)


async def test_overlapping_sends_arrive_in_order_and_get_their_own_receipts() -> None:
    ended = Endings()
    async with pair() as both:
        link = await producer(both, ended)
        batches = [batch(b"%d" % number, size=number * 300) for number in range(100)]
        receipts = await asyncio.gather(*map(link.send, batches))
        assert batches == both.broker.batches
        assert [SendReceipt(Position(3, n), 10 * n) for n in range(100)] == receipts
        await link.close()
        await link.close()
        assert ("p", "close") in both.broker.calls
        with pytest.raises(AlreadyClosed):
            await link.send(batch(b"late"))
    assert [] == ended.seen


async def test_send_that_is_refused_fails_alone() -> None:
    async with pair() as both:
        link = await producer(both, Endings())
        both.broker.fail_next = TopicTerminated("no more")
        with pytest.raises(TopicTerminated, match="no more"):
            await link.send(batch(b"a"))
        both.broker.fail_next = RuntimeError("a mistake")
        with pytest.raises(KledgerError, match="a mistake"):
            await link.send(batch(b"b"))
        assert SendReceipt(Position(3, 2), 20) == await link.send(memoryview(batch(b"c")))


async def test_batch_above_the_servers_limit_is_refused_by_the_client() -> None:
    async with pair() as both:
        link = await producer(both, Endings())
        with pytest.raises(InvalidArgument, match=str(MESSAGE_BYTES_MAX)):
            await link.send(b"x" * MESSAGE_BYTES_MAX)
        await link.send(b"x" * (MESSAGE_BYTES_MAX - 1024))


async def test_consumer_gets_what_is_delivered_and_its_calls_keep_their_order() -> None:
    taken, ended = Deliveries(), Endings()
    acknowledgement = Acknowledgement(Position(3, 1), 0b11, 2)
    async with pair() as both:
        link = await consumer(both, taken, ended)
        assert ("open_consumer", REQUEST) in both.broker.calls
        link.add_permits(7)
        await both.broker.happened("c", "permits", 7)
        sent = [delivery(0), delivery(1, count=9, records=0b101), delivery(2, b"y", size=300_000)]
        both.broker.links[0].deliver(sent)
        assert sent == await taken.first(3)

        begun = len(both.broker.calls)
        first = asyncio.ensure_future(link.acknowledge([acknowledgement]))
        await asyncio.sleep(0)
        link.redeliver(None)
        link.redeliver([RecordMask(Position(3, 2), 5), RecordMask(Position(3, 3))])
        await link.acknowledge_upto(acknowledgement)
        await first
        masks = (RecordMask(Position(3, 2), 5), RecordMask(Position(3, 3)))
        calls = [call for call in both.broker.calls[begun:] if call[1] != "permits"]
        # Requests with an answer run concurrently, and begin in order.
        assert sorted(calls, key=str) == sorted(
            [
                ("c", "acknowledge", acknowledgement),
                ("c", "redeliver", None),
                ("c", "redeliver", *masks),
                ("c", "acknowledge_upto", acknowledgement),
            ],
            key=str,
        )
        both.broker.fail_next = InvalidArgument("not of this type")
        with pytest.raises(InvalidArgument, match="not of this type"):
            await link.acknowledge_upto(acknowledgement)
        await link.close()
        assert ("c", "close") == both.broker.calls[-1]
    assert [] == ended.seen


ONE_ACTIVE = replace(REQUEST, type=SubscriptionType.EXCLUSIVE)


@pytest.mark.parametrize(
    ("request_", "masks"),
    [(REQUEST, None), (ONE_ACTIVE, None), (ONE_ACTIVE, [RecordMask(Position(3, 0))])],
)
async def test_nothing_from_before_a_redelivery_is_delivered_after_it(
    request_: ConsumerRequest, masks: list[RecordMask] | None
) -> None:
    """Unwritten deliveries, and those on the wire, arrived before the redelivered ones."""
    taken = Deliveries()
    async with pair() as both:
        link = await both.client.open_consumer(request_, deliver=taken, on_ended=Endings())
        link.add_permits(10)
        await both.broker.happened("c", "permits", 10)
        served = both.broker.links[0]
        # Neither the server nor the client has had a tick in which it could write or read.
        served.deliver([delivery(0), delivery(1, count=4, records=0b1011)])
        link.redeliver(masks)
        await both.broker.happened("c", "redeliver", *([None] if masks is None else masks))
        served.deliver([delivery(2)])
        assert [delivery(2)] == await taken.first(1)
        while served.permits < 14:
            await both.broker.changed.wait()
        assert 14 == served.permits, "four records were dropped, and their permits came back"


@pytest.mark.parametrize("masks", [[], [RecordMask(Position(3, 7))]])
async def test_redelivery_of_some_records_keeps_deliveries_in_flight(
    masks: list[RecordMask],
) -> None:
    taken = Deliveries()
    async with pair() as both:
        link = await consumer(both, taken, Endings())
        both.broker.links[0].deliver([delivery(0)])
        link.redeliver(masks)
        assert [delivery(0)] == await taken.first(1)


async def test_deliveries_on_the_wire_are_dropped_by_a_redelivery() -> None:
    """The server has written it, and the client has not taken it yet."""
    taken = Deliveries()
    async with pair() as both:
        wire = HeldWire(both.client._connection)
        link = await both.client.open_consumer(ONE_ACTIVE, deliver=taken, on_ended=Endings())
        link.add_permits(10)
        await both.broker.happened("c", "permits", 10)
        served = both.broker.links[0]
        wire.hold()
        served.deliver([delivery(0), delivery(1)])
        await wire.reached()
        link.redeliver(None)
        await both.broker.happened("c", "redeliver", None)
        served.deliver([delivery(0), delivery(1), delivery(2)])
        wire.release()
        assert [delivery(0), delivery(1), delivery(2)] == await taken.first(3)
        while served.permits < 12:
            await both.broker.changed.wait()
        assert (3, 12) == (len(taken.seen), served.permits)


@pytest.mark.parametrize("name", ["orders", "persistent://public/default/orders"])
@pytest.mark.parametrize("kind", ["reset", "skip", "clear"])
async def test_link_has_ended_when_its_own_client_has_reset(name: str, kind: str) -> None:
    """The server's LinkEnd may arrive later than the answer to the reset."""
    taken, ended = Deliveries(), Endings()
    async with pair() as both:
        wire = HeldWire(both.client._connection)
        link = await consumer(both, taken, ended)
        wire.hold()
        both.broker.links[0].deliver([delivery(0)])
        await wire.reached()
        acknowledging = asyncio.ensure_future(
            link.acknowledge([Acknowledgement(Position(3, 0), 1, 1)])
        )
        await asyncio.sleep(0)
        await set_place(both, name, kind)
        assert [None] == ended.seen
        await acknowledging
        wire.release()
        await link.close()
        await both.broker.happened("c", "close")
    assert ([], [None]) == (taken.seen, ended.seen)


async def test_links_survive_failed_resets_and_those_of_other_partitions() -> None:
    ended = Endings()
    async with pair() as both:
        for other in (
            replace(REQUEST, partition=1),
            replace(REQUEST, topic="others"),
            replace(REQUEST, subscription="others"),
        ):
            await both.client.open_consumer(other, deliver=Deliveries(), on_ended=ended)
        await producer(both, ended)
        await set_place(both, "orders", "reset")
        failing = await consumer(both, Deliveries(), ended)
        both.broker.fail_next = SubscriptionFenced("another client resets it")
        with pytest.raises(SubscriptionFenced):
            await set_place(both, "orders", "reset")
        await failing.acknowledge([Acknowledgement(Position(3, 0), 1, 1)])
    assert [] == ended.seen


async def test_link_that_was_being_opened_during_a_reset_is_fenced() -> None:
    """It may have joined before the reset or after it."""
    async with pair() as both:
        wire = HeldWire(both.client._connection)
        wire.hold()
        opening = asyncio.ensure_future(consumer(both, Deliveries(), Endings()))
        await wire.reached()
        await set_place(both, "orders", "reset")
        wire.release()
        with pytest.raises(SubscriptionFenced):
            await opening
        await both.broker.happened("c", "close")


async def test_link_is_not_opened_during_a_reset_by_its_own_client() -> None:
    ended = Endings()
    async with pair() as both:
        both.broker.hold_open = hold = asyncio.Event()
        setting = asyncio.ensure_future(set_place(both, "orders", "reset"))
        await both.broker.happened("reset_subscription", "orders", "bills", EARLIEST, 2, True)
        opening = asyncio.ensure_future(consumer(both, Deliveries(), ended))
        for _ in range(100):
            await asyncio.sleep(0)
        assert ("open_consumer", REQUEST) not in both.broker.calls
        hold.set()
        await asyncio.gather(setting, opening)
    assert [] == ended.seen


async def set_place(both: Pair, topic: str, kind: str) -> None:
    match kind:
        case "reset":
            await both.client.reset_subscription(
                topic, "bills", EARLIEST, partition=2, inclusive=True
            )
        case "skip":
            await both.client.skip_messages(topic, "bills", 1)
        case _:
            await both.client.clear_backlog(topic, "bills")


async def test_failed_opening_raises_the_servers_error() -> None:
    async with pair() as both:
        both.broker.fail_next = ConsumerBusy("taken by c")
        with pytest.raises(ConsumerBusy, match="taken by c"):
            await consumer(both, Deliveries(), Endings())
        both.broker.fail_next = TopicTerminated("it is")
        with pytest.raises(TopicTerminated):
            await producer(both, Endings())
        assert [] == both.broker.links


async def test_cancelled_opening_leaves_no_stream() -> None:
    async with pair() as both:
        both.broker.hold_open = asyncio.Event()
        opening = asyncio.ensure_future(producer(both, Endings()))
        await both.broker.happened("open_producer", "orders", 2, "p")
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        both.broker.hold_open = None
        link = await producer(both, Endings())
        assert SendReceipt(Position(3, 0), 0) == await link.send(batch(b"x"))


@pytest.mark.parametrize("error", [None, ConsumerBusy("sent away"), Unavailable("not now")])
async def test_end_by_the_broker_reaches_the_client_once(error: KledgerError | None) -> None:
    ended = Endings()
    taken = Deliveries()
    async with pair() as both:
        link = await consumer(both, taken, ended)
        both.broker.links[0].deliver([delivery(0)])
        both.broker.links[0].on_ended(error)
        found = await ended.first()
        assert (type(error), str(error)) == (type(found), str(found))
        # After a reset no earlier delivery arrives.
        assert ([] if error is None else [delivery(0)]) == taken.seen
        late = link.acknowledge([Acknowledgement(Position(3, 0), 1, 1)])
        if error is None:
            await late  # as in one process
        else:
            with pytest.raises(Unavailable):
                await late
        link.add_permits(1)
        link.redeliver(None)
        await link.close()
        await both.broker.happened("c", "close")
    assert 1 == len(ended.seen)


@pytest.mark.parametrize("error", [None, ConsumerBusy("sent away")])
async def test_end_of_a_link_keeps_its_reason_when_writes_cross_it(
    error: KledgerError | None,
) -> None:
    """A write behind the end of the stream turned a reset into a lost connection."""
    acknowledgement = Acknowledgement(Position(3, 0), 1, 1)
    async with pair() as both:
        for ticks in range(60):
            ended = Endings()
            link = await consumer(both, Deliveries(), ended)
            acknowledging = [asyncio.ensure_future(link.acknowledge([acknowledgement]))]
            for _ in range(ticks):
                await asyncio.sleep(0)
            both.broker.links[-1].on_ended(error)
            for _ in range(5):
                acknowledging.append(asyncio.ensure_future(link.acknowledge([acknowledgement])))
                await asyncio.sleep(0)
            assert type(error) is type(await ended.first()), f"after {ticks} ticks"
            found = await asyncio.gather(*acknowledging, return_exceptions=True)
            if error is None:
                assert {None} == set(found), f"after {ticks} ticks"


async def test_unanswered_sends_fail_when_the_link_ends() -> None:
    """They may be appended or not: the producer resends them."""
    ended = Endings()
    async with pair() as both:
        link = await producer(both, ended)
        await link.send(batch(b"a"))
        both.broker.links[0].hold = asyncio.Event()
        sending = asyncio.ensure_future(link.send(batch(b"b")))
        while len(both.broker.batches) < 2:
            await both.broker.changed.wait()
        both.broker.links[0].on_ended(None)
        with pytest.raises(Unavailable):
            await sending
        assert [None] == ended.seen
        both.broker.links[0].hold.set()


async def test_close_waits_for_pending_answers() -> None:
    async with pair() as both:
        link = await producer(both, Endings())
        both.broker.links[0].hold = hold = asyncio.Event()
        sending = asyncio.ensure_future(link.send(batch(b"a")))
        while not both.broker.batches:
            await both.broker.changed.wait()
        closing = asyncio.ensure_future(link.close())
        await asyncio.sleep(0)
        hold.set()
        await closing
        assert SendReceipt(Position(3, 0), 0) == await sending


async def test_nothing_is_delivered_to_a_consumer_that_closes() -> None:
    taken = Deliveries()
    async with pair() as both:
        link = await consumer(both, taken, Endings())
        closing = asyncio.ensure_future(link.close())
        await asyncio.sleep(0)
        both.broker.links[0].deliver([delivery(0)])
        await closing
    assert [] == taken.seen


async def test_client_that_closes_closes_its_links() -> None:
    ended = Endings()
    async with pair() as both:
        await producer(both, ended)
        await consumer(both, Deliveries(), ended)
        await both.client.close()
        await both.broker.happened("p", "close")
        await both.broker.happened("c", "close")
        with pytest.raises(AlreadyClosed):
            await producer(both, ended)
    assert [] == ended.seen
