"""Acknowledgement groups: sent together, confirmed, cancelled, lost."""

import asyncio

import pytest

from kledger.ledger import Position
from kledger.native.client.acknowledgement_group import AcknowledgementGroup
from kledger.native.errors import AlreadyClosed, InvalidArgument, Unavailable
from kledger.subscriptions.model import Acknowledgement
from tests.native.client_builders import Rig, rig, ticks
from tests.native.recording_broker import Endings, RecordingLink


def ack(entry_id: int) -> Acknowledgement:
    return Acknowledgement(Position(5, entry_id), 1, 4)


def grouped(rig_: Rig) -> tuple[AcknowledgementGroup, RecordingLink]:
    link = RecordingLink(rig_.broker, "c", Endings())
    return AcknowledgementGroup(link, rig_.services.supervisor), link


async def test_later_acknowledgements_form_the_next_group() -> None:
    async with rig() as rig_:
        group, link = grouped(rig_)
        link.hold = asyncio.Event()
        first = [group.acknowledge([ack(1)]), group.acknowledge([ack(2)])]
        await ticks()
        second = [group.acknowledge([ack(3)]), group.acknowledge([ack(4)])]
        await ticks()
        assert [("c", "acknowledge", ack(1), ack(2))] == rig_.broker.calls
        assert not any(each.done() for each in [*first, *second])
        link.hold.set()
        await asyncio.gather(*first, *second)
        assert ("c", "acknowledge", ack(3), ack(4)) == rig_.broker.calls[1]


async def test_both_kinds_go_in_one_group_the_cumulative_one_first() -> None:
    async with rig() as rig_:
        group, _ = grouped(rig_)
        await asyncio.gather(
            group.acknowledge([ack(9)]),
            group.acknowledge_upto(ack(3)),
            group.acknowledge_upto(ack(5)),
        )
        assert [
            ("c", "acknowledge_upto", ack(5)), ("c", "acknowledge", ack(9))
        ] == rig_.broker.calls  # fmt: skip


async def test_refusal_fails_only_its_own_group() -> None:
    async with rig() as rig_:
        group, _ = grouped(rig_)
        rig_.broker.fail_next = Unavailable("no room")
        with pytest.raises(Unavailable, match="no room"):
            await group.acknowledge([ack(1)])
        await group.acknowledge([ack(2)])


async def test_fault_of_one_is_not_that_of_its_group() -> None:
    async with rig() as rig_:
        group, link = grouped(rig_)
        link.refused = {ack(2)}
        calls = [group.acknowledge([ack(n)]) for n in (1, 2, 3)] + [group.acknowledge_upto(ack(0))]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [None, None, None] == [*outcomes[:1], *outcomes[2:]]
        assert isinstance(outcomes[1], InvalidArgument)


async def test_lost_link_after_a_reset_is_no_error() -> None:
    """The messages were taken back: acknowledging them means nothing."""
    async with rig() as rig_:
        group, link = grouped(rig_)
        link.hold = asyncio.Event()
        task = group.acknowledge([ack(1)])
        await ticks()
        group.note_reset()
        rig_.broker.fail_next = Unavailable("gone")
        link.hold.set()
        await task


async def test_cancelled_waiter_leaves_its_group_intact() -> None:
    async with rig() as rig_:
        group, link = grouped(rig_)
        link.hold = asyncio.Event()
        one, two = group.acknowledge([ack(1)]), group.acknowledge([ack(2)])
        await ticks()
        one.cancel()
        link.hold.set()
        await two
        assert one.cancelled()
        assert [("c", "acknowledge", ack(1), ack(2))] == rig_.broker.calls


async def test_acknowledgement_is_sent_without_a_waiter() -> None:
    async with rig() as rig_:
        group, _ = grouped(rig_)
        group.acknowledge_upto_nowait(ack(1))
        rig_.broker.fail_next = Unavailable("gone")
        await group.finish()
        assert [("c", "acknowledge_upto", ack(1))] == rig_.broker.calls


async def test_cancelled_group_fails_all_waiters() -> None:
    async with rig() as rig_:
        group, link = grouped(rig_)
        link.hold = asyncio.Event()
        one = group.acknowledge([ack(1)])
        await ticks()
        two = group.acknowledge([ack(2)])
        await ticks()
        await rig_.services.supervisor.close()
        for task in (one, two):
            with pytest.raises(AlreadyClosed):
                await task
