"""The service alone: races, limits and what a restart finds; the rest is in the contract suite."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kledger.ledger import LedgerError
from kledger.ledger.testing import FaultyEngine
from kledger.named_topics import service as service_module
from kledger.named_topics.errors import (
    GroupDestroyed,
    NamedTopicNotFound,
    NotOwner,
    UnknownSubscriber,
    WrongArgument,
)
from kledger.named_topics.model import (
    TO_TIME,
    ChannelCommit,
    ChannelPoll,
    ChannelTarget,
    CommitRequest,
    NamedTopicOptions,
    SeekRequest,
    SubscriberJoin,
)
from kledger.named_topics.service import NamedTopicService
from kledger.topics import PartitionLog
from tests.batches.words import batch
from tests.named_topics.words import running, ticks, until
from tests.topics.words import TopicStore, append

Running = tuple[TopicStore, NamedTopicService]
NEW = SubscriberJoin("g", 0, "", "")


@pytest.fixture
async def served() -> AsyncIterator[Running]:
    async with running(FaultyEngine(None)) as (opened, service):
        await service.open("t", channel_count=2, options=NamedTopicOptions(), create=True)
        yield opened, service


async def test_seek_whose_channel_moves_while_a_time_is_looked_up_moves_nothing(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, service = served
    first = await service.join("t", NEW)
    begun, going = asyncio.Event(), asyncio.Event()
    look_up = PartitionLog.offset_for_timestamp

    async def held(log: PartitionLog, timestamp: int) -> object:
        begun.set()
        await going.wait()
        return await look_up(log, timestamp)

    monkeypatch.setattr(PartitionLog, "offset_for_timestamp", held)
    request = SeekRequest("g", first.subscriber, False, (ChannelTarget(1, TO_TIME, 5),))
    seek = asyncio.create_task(service.seek("t", request))
    await begun.wait()
    await service.join("t", NEW)
    going.set()
    with pytest.raises(NotOwner, match="channel 1"):
        await seek
    [group] = await service.groups("t")
    assert [0, 0] == [each.next_offset for each in group.channels]


async def test_destroying_a_group_while_a_commit_is_under_way_leaves_no_rows(
    served: Running,
) -> None:
    opened, service = served
    found = await service.join("t", NEW)
    topic = opened.registry.get("t")
    assert topic is not None
    await append(await topic.open_partition(0), batch("a"))
    destroyed = asyncio.create_task(service.destroy_group("t", "g"))
    await asyncio.sleep(0)
    [outcome] = await service.commit(
        "t", CommitRequest("g", found.subscriber, (ChannelCommit(0, 0, 0, 0),))
    )
    await destroyed
    assert ("rejected", "state") == outcome[:2]
    assert [] == list(opened.store.scan_rows(b"named-channel"))
    with pytest.raises(GroupDestroyed):
        await service.poll("t", ChannelPoll("g", found.subscriber, 1, 0, 0, 1, ()))


async def test_new_owner_begins_behind_a_commit_only_if_that_is_durable() -> None:
    """It began behind one whose write then failed, so that nobody received what that covers."""
    engine = FaultyEngine(None)
    async with running(engine) as (opened, service):
        await service.open("t", channel_count=1, options=NamedTopicOptions(), create=True)
        first = await service.join("t", NEW)
        await append(await opened.log("t"), batch("a", "b"))
        hold = engine.hold_next("commit")
        committing = asyncio.create_task(
            service.commit("t", CommitRequest("g", first.subscriber, (ChannelCommit(0, 1, 1, 0),)))
        )
        await hold.reached()
        await service.leave("t", "g", first.subscriber)
        joining = asyncio.create_task(service.join("t", NEW))
        await ticks()
        hold.fail()
        with pytest.raises(LedgerError):
            await committing
        [channel] = (await joining).channels
        assert 0 == channel.next_offset
        engine.drop_unsynced()


async def test_anonymous_subscriber_that_goes_while_it_joins_leaves_nothing() -> None:
    """Its group stayed until the next start, and with it everything published since."""
    engine = FaultyEngine(None)
    async with running(engine) as (opened, service):
        await service.open("t", channel_count=1, options=NamedTopicOptions(), create=True)
        await opened.log("t")
        hold = engine.hold_next("commit")
        joining = asyncio.create_task(service.join("t", SubscriberJoin("", 0, "", "")))
        await hold.reached()
        joining.cancel()
        hold.release()
        async with asyncio.timeout(60):
            while not await service.groups("t"):
                await ticks()
        opened.clock.advance(service_module.ANONYMOUS_TIMEOUT_MS)
        async with asyncio.timeout(60):
            while await service.groups("t"):
                await ticks()
        engine.drop_unsynced()


async def test_anonymous_groups_that_a_restart_finds_wait_for_their_subscribers() -> None:
    engine = FaultyEngine(None)
    async with running(engine) as (_, service):
        await service.open("t", channel_count=1, options=NamedTopicOptions(), create=True)
        back, gone = [await service.join("t", SubscriberJoin("", 0, "", "")) for _ in range(2)]
        engine.drop_unsynced()
    async with running(engine) as (opened, service):
        again = await service.join("t", SubscriberJoin("", back.subscriber, "", ""))
        assert back.group == again.group
        opened.clock.advance(service_module.ANONYMOUS_TIMEOUT_MS - 1)
        await ticks()
        poll = ChannelPoll(again.group, again.subscriber, again.epoch, 0, 0, 1, ())
        await service.poll("t", poll)
        assert 2 == len(await service.groups("t"))
        opened.clock.advance(1)
        while len(await service.groups("t")) > 1:
            await ticks()
        assert [back.group] == [each.name for each in await service.groups("t")]
        assert gone.group != back.group
        # Its client is not seen for as long, and takes its group along.
        opened.clock.advance(service_module.ANONYMOUS_TIMEOUT_MS)
        while await service.groups("t"):
            await ticks()
        with pytest.raises(GroupDestroyed):  # it would miss what was published meanwhile
            await service.join("t", SubscriberJoin("", again.subscriber, "", ""))
        engine.drop_unsynced()


async def test_rows_of_a_topic_that_another_facade_deletes_go_with_it(served: Running) -> None:
    opened, service = served
    found = await service.join("t", NEW)
    await opened.registry.delete("t")
    with pytest.raises(NamedTopicNotFound):
        await service.poll("t", ChannelPoll("g", found.subscriber, 1, 0, 0, 1, ()))
    assert [] == service.names()
    await until(lambda: not list(opened.store.scan_rows(b"named-")))


async def test_rows_of_a_topic_that_was_deleted_before_a_kill_go_with_the_next_start() -> None:
    engine = FaultyEngine(None)
    async with running(engine) as (opened, service):
        await service.open("t", channel_count=1, options=NamedTopicOptions(), create=True)
        await service.join("t", NEW)
        deletion = engine.hold_next("commit")
        deleting = asyncio.create_task(opened.registry.delete("t"))
        await deletion.reached()
        hold = engine.hold_next("commit")
        deletion.release()
        await deleting
        await hold.reached()
        assert [] != list(opened.store.scan_rows(b"named-"))
        engine.drop_unsynced()
        hold.release()
    async with running(engine) as (opened, _):
        await until(lambda: not list(opened.store.scan_rows(b"named-")))
        engine.drop_unsynced()


@pytest.mark.parametrize("commits", [0, 1, 2])
async def test_server_that_is_killed_while_it_creates_a_named_topic_has_all_of_it_or_nothing(
    commits: int,
) -> None:
    """The topic came first: it stayed, and its log was not trimmed as that of a named topic."""
    engine = FaultyEngine(None)
    async with running(engine) as (_, service):
        creating = asyncio.create_task(
            service.open("t", channel_count=1, options=NamedTopicOptions(), create=True)
        )
        for _ in range(commits):
            hold = engine.hold_next("commit")
            await hold.reached()
            hold.release()
        if commits < 2:
            hold = engine.hold_next("commit")
            await hold.reached()
            creating.cancel()
            engine.drop_unsynced()
            hold.release()
        else:
            await creating
            engine.drop_unsynced()
    async with running(engine) as (opened, service):
        assert (["t"] if commits == 2 else []) == service.names()
        assert (commits == 2) == (opened.registry.get("t") is not None)
        count = 1 if commits == 2 else 0
        await until(lambda: len(list(opened.store.scan_rows(b"named-"))) == count)
        engine.drop_unsynced()


async def test_named_topic_of_a_topic_that_is_created_meanwhile_leaves_its_log_alone(
    served: Running,
) -> None:
    opened, service = served
    create = opened.registry.create

    async def late(name: str, **named: Any) -> object:
        await create(name, partitions=2)
        return await create(name, **named)

    opened.registry.create = late  # type: ignore[assignment, method-assign]
    found = await service.open("u", channel_count=0, options=NamedTopicOptions(), create=True)
    assert 2 == found.channel_count
    assert ["t", "u"] == service.names()
    topic = opened.registry.get("u")
    assert topic is not None
    record = service._topics.get(topic.id)
    assert record is not None
    assert not record.owns_log
    assert 2 == len(list(opened.store.scan_rows(b"named-topic")))


async def test_waiting_poll_ends_at_once_for_channels_that_another_facade_adds(
    served: Running,
) -> None:
    opened, service = served
    found = await service.join("t", NEW)
    poll = ChannelPoll("g", found.subscriber, found.epoch, 0, 60_000, 1 << 20, ())
    polling = asyncio.create_task(service.poll("t", poll))
    await ticks()
    assert not polling.done()
    await opened.registry.create_partitions("t", 5)
    allocation = (await polling).allocation
    assert allocation is not None
    assert (5, [0, 1, 2, 3, 4]) == (
        allocation.channel_count, [each.channel for each in allocation.channels]
    )  # fmt: skip


async def test_groups_and_subscribers_have_limits(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, service = served
    monkeypatch.setattr(service_module, "GROUPS_MAX", 2)
    monkeypatch.setattr(service_module, "SUBSCRIBERS_MAX", 2)
    for _ in range(2):
        await service.join("t", NEW)
    with pytest.raises(WrongArgument, match="2 subscribers"):
        await service.join("t", NEW)
    await service.join("t", SubscriberJoin("", 0, "", ""))
    with pytest.raises(WrongArgument, match="2 groups"):
        await service.ensure_group("t", "h", filter_name="", converter_name="")


@pytest.mark.parametrize("name", ["", "x" * 256, "anonymous-5"])
async def test_name_of_a_group_that_cannot_be_is_refused(served: Running, name: str) -> None:
    _, service = served
    with pytest.raises(WrongArgument, match="group: expected"):
        await service.ensure_group("t", name, filter_name="", converter_name="")


async def test_seek_of_a_subscriber_that_is_not_known_is_refused(served: Running) -> None:
    _, service = served
    await service.join("t", NEW)
    with pytest.raises(UnknownSubscriber):
        await service.seek("t", SeekRequest("g", 5, False, ()))
    found = await service.join("t", NEW)
    target = ChannelTarget(found.channels[0].channel, "nowhere", 0)
    with pytest.raises(WrongArgument, match="target"):
        await service.seek("t", SeekRequest("g", found.subscriber, False, (target,)))
