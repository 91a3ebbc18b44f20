"""One link of a consumer: permits, redeliveries, and its end."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kledger.ledger import Position
from kledger.native.client.consumer_session import ConsumerSession
from kledger.native.client.receive_queue import ReceiveQueue
from kledger.native.client.subscribe_options import DeadLetterPolicy, SubscribeOptions
from kledger.native.errors import Unavailable, Unreadable
from kledger.native.message import Message
from kledger.subscriptions.model import ALL, Acknowledgement, RecordMask, SubscriptionType
from tests.native.client_builders import Rig, damaged, delivery, long_delivery, rig, ticks
from tests.native.recording_broker import Endings, RecordingLink

VALUES = [b"%d" % number for number in range(4)]


class Box:
    """Keeps dead letters."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []

    def put(self, messages: Sequence[Message]) -> None:
        self.values += [each.value for each in messages]


def session(
    rig_: Rig, *, type_: str = "shared", size: int = 10, box: Box | None = None, **options: Any
) -> tuple[ConsumerSession, ReceiveQueue]:
    queue = ReceiveQueue(rig_.services.decoder, lambda: None)
    found = ConsumerSession(
        rig_.services,
        SubscribeOptions(
            subscription="s",
            type=SubscriptionType(type_),
            start="latest",
            name="c",
            receiver_queue_size=size,
            **options,
        ),
        topic="orders",
        partition=0,
        queue=queue,
        dead_letters=box,
        on_arrived=lambda: None,
    )
    found.begin(RecordingLink(rig_.broker, "c", Endings()))
    return found, queue


def hand_out(session_: ConsumerSession, queue: ReceiveQueue, count: int) -> list[Message]:
    found = []
    for _ in range(count):
        message = queue.take()
        assert message is not None
        session_.note_received([message])
        found.append(message)
    return found


async def test_permits_come_back_by_halves() -> None:
    async with rig() as rig_:
        it, queue = session(rig_)
        for entry_id in range(3):
            it.deliver([delivery(entry_id, *VALUES)])
        hand_out(it, queue, 4)
        assert [("c", "permits", 10)] == rig_.broker.calls
        hand_out(it, queue, 7)
        assert [("c", "permits", 5), ("c", "permits", 5)] == rig_.broker.calls[1:]
        it.refill()
        it.refill()
        assert ("c", "permits", 1) == rig_.broker.calls[-1]
        assert 4 == len(rig_.broker.calls)


async def test_queue_of_one_grants_one_permit_at_a_time() -> None:
    async with rig() as rig_:
        it, queue = session(rig_, size=1)
        it.deliver([delivery(1, b"a")])
        hand_out(it, queue, 1)
        assert [("c", "permits", 1), ("c", "permits", 1)] == rig_.broker.calls


async def test_redelivering_all_drops_the_queue_and_returns_its_permits() -> None:
    async with rig() as rig_:
        it, queue = session(rig_)
        it.deliver([delivery(1, *VALUES), delivery(2, *VALUES)])
        (first, *_) = hand_out(it, queue, 2)
        it.redeliver_later(first.id, 100)
        it.redeliver_all()
        assert [("c", "redeliver", None), ("c", "permits", 8)] == rig_.broker.calls[1:]
        assert 0 == len(queue)
        await rig_.pass_ms(1_000)
        assert 3 == len(rig_.broker.calls)


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        ("shared", [("c", "redeliver", RecordMask(Position(5, 1), 0b0101))]),
        ("key_shared", [("c", "redeliver", RecordMask(Position(5, 1), 0b0101))]),
        ("exclusive", [("c", "redeliver", None), ("c", "permits", 4)]),
        ("failover", [("c", "redeliver", None), ("c", "permits", 4)]),
    ],
)
async def test_negative_acknowledgements_of_a_moment_go_as_one(
    type_: str, expected: list[Any]
) -> None:
    async with rig() as rig_:
        it, queue = session(rig_, type_=type_)
        it.deliver([delivery(1, *VALUES)])
        messages = hand_out(it, queue, 4)
        for index in (2, 0, 3):
            it.redeliver_later(messages[index].id, 100)
        await it.acknowledge([messages[3].acknowledgement()])
        del rig_.broker.calls[:]
        await rig_.pass_ms(100)
        assert expected == rig_.broker.calls


async def test_what_is_not_acknowledged_in_time_comes_again() -> None:
    async with rig() as rig_:
        it, queue = session(rig_, ack_timeout_ms=1_000)
        it.deliver([delivery(1, *VALUES), delivery(2, b"e")])
        messages = hand_out(it, queue, 3)
        await it.acknowledge_upto(messages[1].id)
        del rig_.broker.calls[:]
        await rig_.pass_ms(1_100)
        assert [("c", "redeliver", RecordMask(Position(5, 1), 0b100))] == rig_.broker.calls


async def test_reader_acknowledges_with_its_permits() -> None:
    async with rig() as rig_:
        it, queue = session(rig_, type_="exclusive", size=4, is_reader=True)
        it.deliver([delivery(1, *VALUES)])
        hand_out(it, queue, 3)
        await rig_.pass_ms(0)
        acknowledgement = Acknowledgement(Position(5, 1), 0b0011, 4)
        assert [
            ("c", "permits", 2),
            ("c", "acknowledge_upto", acknowledgement),
        ] == rig_.broker.calls[1:]


async def test_message_redelivered_too_often_becomes_a_dead_letter() -> None:
    async with rig() as rig_:
        box = Box()
        policy = DeadLetterPolicy(max_redeliver_count=2)
        it, queue = session(rig_, box=box, dead_letter=policy)
        it.deliver(
            [
                delivery(1, b"last time", redelivery_count=2),
                delivery(2, b"a", b"b", records=0b10, redelivery_count=3),
                damaged(3)._replace(redelivery_count=3),
            ]
        )
        assert [b"b"] == box.values
        assert [b"last time"] == [each.value for each in hand_out(it, queue, 1)]
        with pytest.raises(Unreadable):
            queue.take()


@pytest.mark.parametrize("error", [None, Unavailable("lost")])
async def test_ended_session_ignores_calls(error: Unavailable | None) -> None:
    async with rig() as rig_:
        it, queue = session(rig_)
        it.deliver([delivery(1, *VALUES)])
        (message,) = hand_out(it, queue, 1)
        it.redeliver_later(message.id, 100)
        it.end(error)
        assert (0, False) == (len(queue), it.is_alive)
        del rig_.broker.calls[:]
        it.deliver([delivery(2, *VALUES)])
        await it.acknowledge([message.acknowledgement()])
        await it.acknowledge_upto(message.id)
        it.redeliver_later(message.id, 100)
        it.redeliver_all()
        it.return_permits(10)
        await rig_.pass_ms(1_000)
        assert ([], 0) == (rig_.broker.calls, len(queue))
        await it.close()
        assert [("c", "close")] == rig_.broker.calls


async def test_close_waits_for_pending_acknowledgements() -> None:
    async with rig() as rig_:
        it, queue = session(rig_)
        it.deliver([delivery(1, b"a")])
        (message,) = hand_out(it, queue, 1)
        link = it._link
        assert isinstance(link, RecordingLink)
        link.hold = asyncio.Event()
        acknowledging = asyncio.ensure_future(it.acknowledge([message.acknowledgement()]))
        await ticks()
        closing = asyncio.ensure_future(it.close())
        await ticks()
        assert not link.is_closed
        link.hold.set()
        await asyncio.gather(acknowledging, closing)
        assert link.is_closed


async def test_single_record_of_an_entry_is_the_entry() -> None:
    async with rig() as rig_:
        it, queue = session(rig_)
        it.deliver([delivery(1, b"a")])
        (message,) = hand_out(it, queue, 1)
        await it.acknowledge([message.acknowledgement()])
        acknowledgement = Acknowledgement(Position(5, 1), ALL, 1)
        assert ("c", "acknowledge", acknowledgement) == rig_.broker.calls[-1]


async def test_long_dead_letters_are_decoded_elsewhere() -> None:
    async with rig() as rig_:
        box = Box()
        it, queue = session(rig_, box=box, dead_letter=DeadLetterPolicy(max_redeliver_count=2))
        it.deliver(
            [
                long_delivery(1, count=2_000)._replace(redelivery_count=3),
                long_delivery(2, count=2_000, is_damaged=True)._replace(redelivery_count=3),
            ]
        )
        assert [] == box.values
        while len(box.values) < 2_000 or not len(queue):
            await ticks()
        assert [b"%d" % each for each in range(2_000)] == box.values
        assert queue.take() is None
        await ticks()
        with pytest.raises(Unreadable, match="5:2"):
            queue.take()


async def test_long_dead_letters_of_a_link_that_ended_stay_where_they_are() -> None:
    async with rig() as rig_:
        box = Box()
        it, queue = session(rig_, box=box, dead_letter=DeadLetterPolicy(max_redeliver_count=2))
        it.deliver([long_delivery(1, count=2_000)._replace(redelivery_count=3)])
        await asyncio.sleep(0)
        it.end(Unavailable("gone"))
        await ticks()
        assert ([], 0) == (box.values, len(queue))
