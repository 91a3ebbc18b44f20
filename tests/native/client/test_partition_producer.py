"""One partition of a producer: batches, order, refusals, lost links."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from kledger.batches.header import read_header
from kledger.batches.reader import iterate_records
from kledger.ledger import Buffer
from kledger.native.broker import SendReceipt
from kledger.native.client.message_encoder import OutgoingMessage
from kledger.native.client.partition_producer import RESEND_RETRY_MS, PartitionProducer
from kledger.native.client.send_plan import BATCH_BYTES_MAX, BATCHES_MAX
from kledger.native.errors import (
    AlreadyClosed,
    InvalidArgument,
    NotInSequence,
    TopicNotFound,
    TopicTerminated,
    Unavailable,
)
from kledger.native.message_id import MessageId
from tests.native.client_builders import Rig, rig, ticks
from tests.native.recording_broker import RecordingLink


@dataclass
class Sender:
    """A partition producer, and the callbacks that it called."""

    rig: Rig
    producer: PartitionProducer
    settled: list[OutgoingMessage]

    def add(self, *values: bytes, is_alone: bool = False) -> list[asyncio.Future[MessageId]]:
        outcomes = []
        for value in values:
            outcome = asyncio.get_running_loop().create_future()
            self.producer.add(
                OutgoingMessage(value, None, 0, (), 0, outcome, len(value), is_alone=is_alone)
            )
            outcomes.append(outcome)
        return outcomes

    def numbers(self) -> list[tuple[int, int]]:
        """Epoch and sequence of every batch that the server has seen, all of one producer."""
        headers = [read_header(each) for each in self.rig.broker.batches]
        assert 1 == len({each.producer_id for each in headers})
        return [(each.producer_epoch, each.base_sequence) for each in headers]

    def sent(self) -> list[list[bytes | None]]:
        """The values of every batch that the server has seen."""
        return [[each.value for each in iterate_records(b)] for b in self.rig.broker.batches]


@asynccontextmanager
async def sender(*, is_batching: bool = True) -> AsyncIterator[Sender]:
    async with rig() as rig_:
        settled: list[OutgoingMessage] = []
        producer = PartitionProducer(
            rig_.services,
            "orders",
            2,
            name="p",
            is_batching=is_batching,
            on_finished=settled.extend,
            on_batch_taken=lambda _: None,
        )
        await producer.open()
        yield Sender(rig_, producer, settled)
        await producer.close()


async def test_messages_queued_during_a_send_share_a_batch() -> None:
    async with sender() as it:
        hold = it.rig.broker.links[0].hold = asyncio.Event()
        first = it.add(b"a", b"b")
        await ticks()
        rest = it.add(b"c") + it.add(b"d")
        await ticks()
        assert [[b"a", b"b"]] == it.sent()
        assert [] == it.settled
        hold.set()
        assert [MessageId(3, 0, 0, 2), MessageId(3, 0, 1, 2)] == await asyncio.gather(*first)
        assert [MessageId(3, 1, 0, 2), MessageId(3, 1, 1, 2)] == await asyncio.gather(*rest)
        await ticks()
        assert 4 == len(it.settled)


async def test_full_batches_leave_together_as_many_as_a_partition_remembers() -> None:
    async with sender() as it:
        hold = it.rig.broker.links[0].hold = asyncio.Event()
        outcomes = it.add(*[bytes(BATCH_BYTES_MAX)] * (BATCHES_MAX + 2))
        await ticks()
        assert [(0, number) for number in range(BATCHES_MAX)] == it.numbers()
        assert [] == it.settled
        hold.set()
        await asyncio.gather(*outcomes)
        assert [(0, number) for number in range(BATCHES_MAX + 2)] == it.numbers()
        assert BATCHES_MAX + 2 == len(it.settled)


async def test_single_messages_do_not_join_a_group_of_full_batches() -> None:
    async with sender() as it:
        hold = it.rig.broker.links[0].hold = asyncio.Event()
        outcomes = it.add(bytes(BATCH_BYTES_MAX), b"a") + it.add(b"b", is_alone=True)
        await ticks()
        assert 2 == len(it.sent())
        hold.set()
        await asyncio.gather(*outcomes)
        assert [[b"a"], [b"b"]] == it.sent()[1:]


async def test_id_of_a_send_can_be_acknowledged() -> None:
    async with sender() as it:
        ids = await asyncio.gather(*it.add(b"a", b"b"))
        assert [0b01, 0b10] == [each.acknowledgement().records for each in ids]


async def test_single_message_batches_leave_together() -> None:
    async with sender() as it:
        outcomes = it.add(b"a", b"b") + it.add(b"c", b"d", is_alone=True) + it.add(b"e")
        await asyncio.gather(*outcomes)
        assert [[b"a", b"b"], [b"c"], [b"d"], [b"e"]] == it.sent()


async def test_message_of_a_cancelled_sender_is_not_sent() -> None:
    async with sender() as it:
        one, two, three = it.add(b"a", b"b", b"c")
        two.cancel()
        await asyncio.gather(one, three)
        (gone,) = it.add(b"d")
        gone.cancel()
        await ticks()
        assert [[b"a", b"c"]] == it.sent()
        assert 4 == len(it.settled)


async def test_refused_message_fails_no_other() -> None:
    async with sender() as it:
        it.rig.broker.fail_next = InvalidArgument("one of them")
        outcomes = it.add(b"a", b"b")
        await asyncio.gather(*outcomes)
        assert [[b"a", b"b"], [b"a"], [b"b"]] == it.sent()
        it.rig.broker.fail_next = InvalidArgument("this one")
        with pytest.raises(InvalidArgument, match="this one"):
            await it.add(b"c")[0]


@pytest.mark.parametrize("error", [Unavailable("disk full"), TopicTerminated("end")])
async def test_servers_error_is_raised_without_retry(error: Exception) -> None:
    async with sender() as it:
        it.rig.broker.fail_next = error
        for outcome in it.add(b"a", b"b"):
            with pytest.raises(type(error)):
                await outcome
        assert 1 == len(it.sent())
        await it.add(b"c")[0]


async def test_batch_of_a_lost_link_is_resent_before_later_ones() -> None:
    async with sender() as it:
        link = it.rig.broker.links[0]
        link.hold = asyncio.Event()
        outcomes = it.add(b"a", b"b")
        await ticks()
        outcomes += it.add(b"c")
        it.rig.broker.fail_next = Unavailable("lost")
        link.on_ended(Unavailable("lost"))
        link.hold.set()
        await asyncio.gather(*outcomes)
        assert [[b"a", b"b"], [b"a", b"b"], [b"c"]] == it.sent()
        assert 2 == len(it.rig.broker.links)


async def test_batch_of_a_lost_link_keeps_its_numbers() -> None:
    async with sender() as it:
        await it.add(b"a")[0]
        link = it.rig.broker.links[0]
        link.hold = asyncio.Event()
        outcomes = it.add(b"b", b"c")
        await ticks()
        it.rig.broker.fail_next = Unavailable("lost")
        link.on_ended(Unavailable("lost"))
        link.hold.set()
        await asyncio.gather(*outcomes, *it.add(b"d"))
        assert [(0, 0), (0, 1), (0, 1), (0, 3)] == it.numbers()
        assert [False, False, True, False] == it.rig.broker.resent


@pytest.mark.parametrize("error", [Unavailable("disk full"), TopicTerminated("end")])
async def test_batch_after_a_refused_one_begins_a_new_epoch(error: Exception) -> None:
    async with sender() as it:
        await it.add(b"a")[0]
        it.rig.broker.fail_next = error
        with pytest.raises(type(error)):
            await it.add(b"b")[0]
        await it.add(b"c")[0]
        await it.add(b"d")[0]
        assert [(0, 0), (0, 1), (1, 0), (1, 1)] == it.numbers()


async def test_batches_refused_behind_another_are_resent_in_order() -> None:
    async with sender(is_batching=False) as it:
        await it.add(b"a")[0]
        refusals = iter([InvalidArgument("bad"), NotInSequence("gap"), NotInSequence("gap"), None])
        it.rig.broker.refuse = lambda: next(refusals, None)
        outcomes = await asyncio.gather(*it.add(b"b", b"c", b"d"), return_exceptions=True)
        assert isinstance(outcomes[0], InvalidArgument)
        assert [[b"a"], [b"b"], [b"c"], [b"d"], [b"c"], [b"d"]] == it.sent()
        assert [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)] == it.numbers()
        assert not any(it.rig.broker.resent)


async def test_lost_batches_are_settled_before_refused_ones() -> None:
    """The answers to the second and the third were lost; the fourth was refused behind a gap."""
    async with sender(is_batching=False) as it:
        link = it.rig.broker.links[0]
        link.hold = asyncio.Event()
        outcomes = it.add(b"a", b"b", b"c", b"d")
        await ticks()
        lost = Unavailable("lost")
        gap = NotInSequence("gap")
        refusals = iter([None, lost, lost, gap, None, None, gap])  # the fifth: of opening a link
        it.rig.broker.refuse = lambda: next(refusals, None)
        link.on_ended(lost)
        link.hold.set()
        await asyncio.gather(*outcomes)
        assert [[b"b"], [b"c"], [b"c"], [b"d"]] == it.sent()[4:]
        assert [(0, 1), (0, 2), (1, 0), (1, 1)] == it.numbers()[4:]
        assert [True, True, False, False] == it.rig.broker.resent[4:]


async def test_first_batch_of_an_epoch_that_does_not_follow_is_not_tried_for_ever() -> None:
    async with sender() as it:
        it.rig.broker.fail_next = NotInSequence("what should it follow")
        with pytest.raises(NotInSequence):
            await it.add(b"a")[0]
        assert 1 == len(it.sent())


async def test_single_messages_of_a_lost_link_keep_their_order() -> None:
    async with sender(is_batching=False) as it:
        link = it.rig.broker.links[0]
        link.hold = asyncio.Event()
        outcomes = it.add(b"a", b"b", b"c")
        await ticks()
        link.on_ended(Unavailable("lost"))
        it.rig.broker.fail_all = Unavailable("lost")
        link.hold.set()
        await ticks()
        it.rig.broker.fail_all = None
        await it.rig.pass_ms(1_000)
        await asyncio.gather(*outcomes)
        assert [[b"a"], [b"b"], [b"c"]] == it.sent()[-3:]


async def test_unavailable_server_fails_the_batch_in_the_end() -> None:
    async with sender() as it:
        it.rig.broker.links[0].on_ended(Unavailable("lost"))
        it.rig.broker.fail_all = Unavailable("away")
        (outcome,) = it.add(b"a")
        for _ in range(RESEND_RETRY_MS // 1_000 + 6):
            await it.rig.pass_ms(1_000)
        with pytest.raises(Unavailable):
            await outcome
        it.rig.broker.fail_all = None
        await it.add(b"b")[0]


async def test_link_that_is_lost_with_every_batch_is_given_up_in_the_end() -> None:
    async with sender() as it:
        opened, tries = it.rig.broker.open_producer, list[Buffer]()

        async def losing(*given: Any, **rest: Any) -> RecordingLink:
            link = await opened(*given, **rest)

            async def lose(data: Buffer, *, is_resent: bool = False) -> SendReceipt:
                assert is_resent is bool(tries)
                tries.append(data)
                it.rig.clock.advance(RESEND_RETRY_MS // 3)
                link.on_ended(Unavailable("lost"))
                raise Unavailable("lost")

            link.send = lose  # type: ignore[method-assign]
            return link

        it.rig.broker.open_producer = losing  # type: ignore[method-assign]
        it.rig.broker.links[0].on_ended(None)
        (outcome,) = it.add(b"a")
        await ticks()
        with pytest.raises(Unavailable):
            await outcome
        assert 3 == len(tries)


async def test_final_error_fails_every_later_send() -> None:
    async with sender() as it:
        it.rig.broker.links[0].on_ended(TopicNotFound("deleted"))
        for outcome in it.add(b"a") + it.add(b"b"):
            with pytest.raises(TopicNotFound):
                await outcome
        assert 1 == len(it.rig.broker.links)


async def test_end_of_an_old_link_is_no_end_of_the_new_one() -> None:
    async with sender() as it:
        old = it.rig.broker.links[0]
        old.on_ended(None)
        await it.add(b"a")[0]
        old.on_ended(TopicNotFound("late"))
        await it.add(b"b")[0]
        assert 2 == len(it.rig.broker.links)


async def test_close_fails_pending_messages() -> None:
    async with sender() as it:
        it.rig.broker.links[0].hold = asyncio.Event()
        outcomes = it.add(b"a")
        await ticks()
        outcomes += it.add(b"b")
        assert outcomes == it.producer.unfinished
        await it.producer.close()
        for outcome in outcomes:
            with pytest.raises(AlreadyClosed):
                await outcome
        assert it.rig.broker.links[0].is_closed
