"""A storm: subscribers that join, fall silent, seek and commit, and power cuts, beside a model.

The model is a list of offsets for each channel and the group's commit; it has no rows, no ownership
and no clock. What may be durable or not after a failed write is learned from the service, and has
to be one of the two.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from kledger.batches.reader import iterate_records
from kledger.delivery.partition_directory import PartitionDirectory
from kledger.ledger import LedgerError, StoreConfig
from kledger.ledger.testing import FaultyEngine
from kledger.named_topics.errors import NotOwner, UnknownSubscriber
from kledger.named_topics.model import (
    NO_OFFSET,
    TO_HEAD,
    TO_POSITION,
    TO_TAIL,
    ChannelAllocation,
    ChannelCommit,
    ChannelFetch,
    ChannelPoll,
    ChannelTarget,
    CommitRequest,
    NamedTopicOptions,
    SeekRequest,
    SubscriberJoin,
)
from kledger.named_topics.service import NamedTopicService
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.topics import TopicsError
from tests.batches.words import batch
from tests.topics.words import TopicStore, append, open_topics

CHANNELS = 3
TIMEOUT_MS = 1_000
MEMBERS = 4


@asynccontextmanager
async def running(engine: FaultyEngine) -> AsyncIterator[tuple[TopicStore, NamedTopicService]]:
    """A service over an engine; it ends as if the process were killed."""
    crashes: list[BaseException] = []
    supervisor = Supervisor(crashes.append)
    async with open_topics(
        engine, store_config=StoreConfig(durability="fsync"), is_closed_cleanly=False
    ) as opened:
        timers = Timers(opened.clock, supervisor)
        service = NamedTopicService(
            store=opened.store,
            registry=opened.registry,
            partitions=PartitionDirectory(
                opened.registry, clock=opened.clock, timers=timers, supervisor=supervisor
            ),
            clock=opened.clock,
            timers=timers,
            supervisor=supervisor,
        )
        try:
            yield opened, service
        finally:
            await supervisor.close()
    assert [] == crashes


@dataclass
class Owned:
    """A channel as a subscriber knows it."""

    ownership: int
    next_offset: int


@dataclass
class Member:
    """A subscriber, and what it has received."""

    id: int = 0
    allocation: ChannelAllocation | None = None
    owned: dict[int, Owned] = field(default_factory=dict)
    read: dict[int, tuple[int, int]] = field(default_factory=dict)

    def take_over(self, allocation: ChannelAllocation) -> dict[int, int]:
        """Take over an allocation; return where it begins in the channels that are new to it."""
        self.id, self.allocation = allocation.subscriber, allocation
        begun = {}
        owned = {}
        for each in allocation.channels:
            known = self.owned.get(each.channel)
            if known is None or known.ownership != each.ownership:
                known = Owned(each.ownership, each.next_offset)
                begun[each.channel] = each.next_offset
                if self.read.get(each.channel, (-1, 0))[0] != each.revision:
                    self.read[each.channel] = (each.revision, NO_OFFSET)
            owned[each.channel] = known
        self.owned = owned
        return begun


class Storm:
    """One run; a seed reproduces it."""

    def __init__(self, engine: FaultyEngine, seed: int, *, is_retaining: bool) -> None:
        self._engine = engine
        self._random = random.Random(seed)
        self._options = NamedTopicOptions(
            subscriber_timeout_ms=TIMEOUT_MS, retain_values=is_retaining
        )
        self.ends = [0] * CHANNELS
        self.next_offsets = [0] * CHANNELS
        """Behind the last commit of each channel."""
        self._doubtful: dict[int, set[int]] = {}
        """Of a failed write: what the next offset of a channel may be, too."""
        self.members = [Member() for _ in range(MEMBERS)]
        self.steps: set[str] = set()
        self._opened: TopicStore
        self._service: NamedTopicService

    async def live(self, steps: int) -> None:
        """Run between two power cuts."""
        async with running(self._engine) as (self._opened, self._service):
            await self._service.open(
                "orders", channel_count=CHANNELS, options=self._options, create=True
            )
            await self._service.ensure_group("orders", "g", filter_name="", converter_name="")
            for member in self.members:
                member.allocation, member.owned = None, {}
            await self._compare()
            for _ in range(steps):
                await self._step()
            self._engine.drop_unsynced()

    async def drain(self) -> list[list[int]]:
        """Let one subscriber receive the rest; return its offsets by channel."""
        async with running(self._engine) as (self._opened, self._service):
            await self._compare()
            member = Member()
            await self._join(member)
            found: list[list[int]] = [[] for _ in range(CHANNELS)]
            while any(
                each.next_offset < self.ends[channel] for channel, each in member.owned.items()
            ):
                for channel, offsets in (await self._poll(member)).items():
                    found[channel] += offsets
            return found

    async def _step(self) -> None:
        member = self._random.choice(self.members)
        steps: dict[Callable[[Member], Awaitable[object]], int] = {
            self._publish: 6, self._join: 2, self._leave: 1, self._poll: 10, self._commit: 8,
            self._seek: 2, self._pass_time: 2, self._break: 1, self._look: 1,
        }  # fmt: skip
        [step] = self._random.choices(list(steps), weights=list(steps.values()))
        self.steps.add(step.__name__.removeprefix("_"))
        await step(member)

    async def _publish(self, _: Member) -> None:
        channel = self._random.randrange(CHANNELS)
        topic = self._opened.registry.get("orders")
        assert topic is not None
        count = self._random.randrange(1, 4)
        log = await topic.open_partition(channel)
        result = await append(log, batch(*["v"] * count))
        if result.error is None:
            assert self.ends[channel] == result.base_offset
            self.ends[channel] += count

    async def _join(self, member: Member) -> None:
        try:
            allocation = await self._service.join("orders", SubscriberJoin("g", member.id, "", ""))
        except (LedgerError, TopicsError):
            return
        member.owned = {}
        self._check_begun(member.take_over(allocation))

    async def _leave(self, member: Member) -> None:
        if member.allocation is not None:
            await self._service.leave("orders", "g", member.id)
            member.allocation, member.owned = None, {}

    async def _poll(self, member: Member) -> dict[int, list[int]]:
        """Poll once; everything that comes is handed out at once."""
        if member.allocation is None:
            return {}
        fetches = tuple(
            ChannelFetch(channel, each.ownership, each.next_offset)
            for channel, each in member.owned.items()
        )
        poll = ChannelPoll("g", member.id, member.allocation.epoch, 0, 0, 1 << 20, fetches)
        try:
            result = await self._service.poll("orders", poll)
        except UnknownSubscriber:
            member.allocation, member.owned = None, {}
            return {}
        except (LedgerError, TopicsError):
            return {}
        if result.allocation is not None:
            self._check_begun(member.take_over(result.allocation))
            return {}
        handed: dict[int, list[int]] = {}
        for elements in result.elements:
            channel, owned = elements.channel, member.owned[elements.channel]
            offsets = [
                record.offset
                for each in elements.batches
                for record in iterate_records(each)
                if record.offset >= elements.start_offset
            ]
            # In order, without a gap, and nothing that was committed.
            first = max(owned.next_offset, self.next_offsets[channel])
            assert list(range(first, elements.next_offset)) == offsets
            owned.next_offset = elements.next_offset
            member.read[channel] = (member.read[channel][0], offsets[-1])
            handed[channel] = offsets
        return handed

    async def _commit(self, member: Member) -> None:
        known = [each for each, (_, offset) in member.read.items() if offset > NO_OFFSET]
        if not known:
            return
        channel = self._random.choice(known)
        revision, read = member.read[channel]
        offset = max(read - self._random.choice([0, 0, 1, 2]), 0)
        before = self.next_offsets[channel]
        request = CommitRequest("g", member.id, (ChannelCommit(channel, offset, read, revision),))
        try:
            [outcome] = await self._service.commit("orders", request)
        except UnknownSubscriber:
            return
        except (LedgerError, TopicsError):
            self._doubtful.setdefault(channel, {before}).add(offset + 1)
            await self._compare()
            return
        if outcome.status == "committed":
            assert before <= offset
            assert await self._owner(channel) == member.id
            self.next_offsets[channel] = offset + 1
        elif outcome.status == "already_committed":
            assert offset < before
        else:
            assert outcome.status in {"rejected", "nothing_to_commit"}
        assert before <= self.next_offsets[channel], "a commit goes forwards"

    async def _seek(self, member: Member) -> None:
        if member.allocation is None:
            return
        channel = self._random.randrange(CHANNELS)
        kind = self._random.choice([TO_POSITION, TO_POSITION, TO_HEAD, TO_TAIL])
        value = self._random.randrange(-1, self.ends[channel] + 2) if kind == TO_POSITION else 0
        is_committing = self._random.random() < 0.3 and kind != TO_HEAD
        request = SeekRequest("g", member.id, is_committing, (ChannelTarget(channel, kind, value),))
        head = 0 if self._options.retain_values else self.next_offsets[channel]
        wanted = {TO_POSITION: value + 1, TO_HEAD: head, TO_TAIL: self.ends[channel]}[kind]
        expected = min(max(wanted, head), self.ends[channel])
        before = self.next_offsets[channel]
        after = expected if is_committing or kind == TO_HEAD else min(before, expected)
        try:
            [outcome] = await self._service.seek("orders", request)
        except (UnknownSubscriber, NotOwner):
            assert await self._owner(channel) != member.id
            return
        except (LedgerError, TopicsError):
            self._doubtful.setdefault(channel, {before}).add(after)
            await self._compare()
            return
        assert expected == outcome.next_offset
        self.next_offsets[channel] = after
        member.read[channel] = (outcome.revision, expected - 1)
        if channel in member.owned:
            member.owned[channel].next_offset = expected

    async def _pass_time(self, member: Member) -> None:
        self._opened.clock.advance(self._random.choice([100, TIMEOUT_MS // 2, TIMEOUT_MS]))
        for _ in range(20):  # timeouts that are due end memberships now
            await asyncio.sleep(0)

    async def _look(self, _: Member) -> None:
        await self._compare()

    async def _break(self, _: Member) -> None:
        self._engine.fail_next("commit")

    async def _owner(self, channel: int) -> int:
        [group] = await self._service.groups("orders")
        return group.channels[channel].owner

    async def _compare(self) -> None:
        """The service knows what the model knows."""
        try:
            [group] = await self._service.groups("orders")
        except (LedgerError, TopicsError):
            return
        for ends in group.channels:
            channel = ends.channel
            assert self.ends[channel] == ends.end_offset
            if channel in self._doubtful:
                assert ends.next_offset in self._doubtful.pop(channel)
                self.next_offsets[channel] = ends.next_offset
            assert self.next_offsets[channel] == ends.next_offset
            assert self.ends[channel] - self.next_offsets[channel] == ends.remaining
            assert ends.owner in {0, *group.subscribers}
        if group.subscribers:
            assert all(each.owner for each in group.channels), "every channel has an owner"

    def _check_begun(self, begun: dict[int, int]) -> None:
        for channel, offset in begun.items():
            allowed = self._doubtful.get(channel, {self.next_offsets[channel]})
            assert offset in allowed, "a new owner begins behind the last commit"
