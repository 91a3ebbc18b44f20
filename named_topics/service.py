"""NamedTopicService: named topics, their groups, and what subscribers ask of them. A shell.

Rule: a decision is made on the newest record submitted, without an await between reading and
submitting, and answered when it is durable; commits that come together share one sync, as all
writes do. Ownership is checked in the step that decides: what was awaited before is looked up
again. A seek changes the revision of its channels, so what was read before it does not count. One
broker of a cluster leads all channels of a topic, and has what is stored of its groups.
Must not know: how clients are connected.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from functools import partial
from uuid import UUID

from kledger.delivery.partition_directory import PartitionDirectory
from kledger.ledger import LedgerError, LedgerStore
from kledger.ledger.record_table import (
    GroupedRecordTable,
    RecordChange,
    RecordTable,
    submit_together,
)
from kledger.named_topics.capacity import TopicCapacities
from kledger.named_topics.channel_plan import check_one_leader, default_channel_count
from kledger.named_topics.channel_positions import ChannelPositions
from kledger.named_topics.channel_reads import read_channel
from kledger.named_topics.channel_record import ChannelRecord
from kledger.named_topics.commit_plan import ChannelView, decide_commit
from kledger.named_topics.errors import (
    GroupDestroyed,
    NamedTopicNotFound,
    NotOwner,
    UnknownSubscriber,
    WrongArgument,
)
from kledger.named_topics.function_run import FunctionNames
from kledger.named_topics.group_functions import (
    NO_FUNCTIONS,
    FunctionSettings,
    GroupChannel,
    GroupFunctions,
)
from kledger.named_topics.log_trimming import LogTrimming
from kledger.named_topics.model import (
    ALL_CHANNELS,
    NO_LIMIT,
    SEEK_KINDS,
    TO_TIME,
    ChannelAllocation,
    ChannelCommit,
    ChannelElements,
    ChannelEnds,
    ChannelPoll,
    ChannelPollResult,
    CommitOutcome,
    CommitRequest,
    NamedTopicInfo,
    NamedTopicOptions,
    OwnedChannel,
    SeekOutcome,
    SeekRequest,
    SubscriberGroupInfo,
    SubscriberJoin,
)
from kledger.named_topics.options_plan import (
    ANONYMOUS_PREFIX,
    check_function,
    check_group_name,
    check_options,
    check_repeated,
    check_stored_functions,
    topic_configs,
)
from kledger.named_topics.records import (
    CHANNEL_ROWS,
    GROUP_ROWS,
    TOPIC_ROWS,
    GroupKey,
    NamedTopicRecord,
    SubscriberGroupRecord,
)
from kledger.named_topics.retention_plan import first_offset_of_group, logical_start
from kledger.named_topics.seek_plan import decide_seek
from kledger.named_topics.subscriber_group import SubscriberGroup
from kledger.named_topics.subscriber_ids_state import SubscriberIds, first_id
from kledger.runtime.clock import Clock
from kledger.runtime.containment import NamedUnit
from kledger.runtime.signal import Signal
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.topics import PartitionLog, Topic, TopicRegistry
from kledger.topics.errors import TopicAlreadyExists, TopicsError, UnknownTopic

logger = logging.getLogger(__name__)

ANONYMOUS_TIMEOUT_MS = 300_000
"""How long an anonymous subscriber may be disconnected; every poll of its client counts."""
WAIT_MS_MAX = 60_000
"""How long one poll waits at most."""
GROUPS_MAX = 10_000
"""Groups of one topic, anonymous ones included."""
SUBSCRIBERS_MAX = 10_000
"""Subscribers of one group."""
NOT_MADE = 0
"""In place of the time of a group that is not made yet."""


class NamedTopicService:
    """One per server."""

    def __init__(
        self,
        *,
        store: LedgerStore,
        registry: TopicRegistry,
        partitions: PartitionDirectory,
        clock: Clock,
        timers: Timers,
        supervisor: Supervisor,
        function_modules: Sequence[str] = (),
        function_settings: FunctionSettings = FunctionSettings(),  # noqa: B008 - a value
    ) -> None:
        """Load what is stored; on the event loop.

        Args:
            store: keeps the rows.
            registry: the topics.
            partitions: opens the partitions.
            clock: for timeouts and expiry.
            timers: of the timeouts.
            supervisor: of the background work.
            function_modules: those of which a group may name functions.
            function_settings: the limits of those functions.

        Raises:
            UnreadableRow: a row cannot be read.
        """
        self._store = store
        self._registry = registry
        self._partitions = partitions
        self._clock = clock
        self._timers = timers
        self._supervisor = supervisor
        self._function_modules = tuple(function_modules)
        self._functions = GroupFunctions(
            store.compute_pool, timers=timers, supervisor=supervisor, settings=function_settings
        )
        self._topics = RecordTable(store, TOPIC_ROWS, self._on_topic_replayed)
        self._group_records = RecordTable(store, GROUP_ROWS, self._on_group_replayed)
        self._channels = GroupedRecordTable(store, CHANNEL_ROWS)
        self._keys_of: dict[UUID, dict[GroupKey, None]] = {}
        """The groups of each topic."""
        self._positions = ChannelPositions(self._topics, self._channels, self._keys_of, clock)
        self._groups: dict[GroupKey, SubscriberGroup] = {}
        self.capacities = TopicCapacities(
            self._topics, self._positions, partitions, clock=clock, timers=timers
        )
        self._opening = asyncio.Lock()
        self._ids = SubscriberIds()
        self._trimming = LogTrimming(clock, supervisor, self._trimmed_logs)
        self._topics.load()
        self._group_records.load()
        self._channels.load()
        if self._topics.durable or self._keys_of:
            self._resume()

    async def close(self) -> None:
        """End the processes of functions; what they do is lost. May be repeated."""
        await self._functions.close()

    # Topics

    async def open(
        self, name: str, *, channel_count: int, options: NamedTopicOptions, create: bool
    ) -> NamedTopicInfo:
        """Return a named topic; make it if it is missing.

        A topic that exists becomes a named topic by this; its log then keeps what the topic's own
        settings keep. Options are those of the first call: a later one that differs, and is not
        the default, is refused. More channels than there are are added.

        Args:
            name: of the topic.
            channel_count: 0: as many as it has, or the default.
            options: what it is.
            create: whether it may become a named topic, and is created if it is missing.

        Raises:
            NamedTopicNotFound: it is none, or missing.
            WrongArgument: an option is wrong, or not that of the topic, or several brokers lead
                partitions of it.
            NotLeader: another broker leads it.
            TopicsError: it cannot be created.
        """
        check_options(options, channel_count)
        async with self._opening:
            try:
                topic = await self._partitions.topic(name)
            except UnknownTopic:
                if not create:
                    raise NamedTopicNotFound(f"there is no named topic {name!r}") from None
                try:
                    return await self._create(name, channel_count, options)
                except TopicAlreadyExists:  # a Kafka client, or another broker, was first
                    topic = self._topic(name)
            topic.check_leader(0)
            record = self._topics.head(topic.id)
            if record is None and not create:
                raise NamedTopicNotFound(f"topic {name!r} is no named topic")
            check_one_leader(topic.name, topic.record.leaders)
            await self._registry.keep_one_leader(topic)
            if record is None:
                record = NamedTopicRecord(options, owns_log=False)
                await _submit([self._topics.change(topic.id, record)])
            else:
                check_repeated(record.options, options, what=f"named topic {topic.name}")
            if channel_count > topic.partition_count:
                await self._registry.create_partitions(topic.name, channel_count)
            elif 0 < channel_count < topic.partition_count:
                raise WrongArgument(
                    f"channel_count of {topic.name}: expected at least {topic.partition_count}, "
                    f"got {channel_count}"
                )
            return NamedTopicInfo(topic.name, topic.partition_count, record.options)

    async def _create(
        self, name: str, channel_count: int, options: NamedTopicOptions
    ) -> NamedTopicInfo:
        """Create a topic with its record, which comes first: without its topic it means nothing."""
        count, configs = channel_count or default_channel_count(), topic_configs(options)
        self._registry.check_creation(name, partitions=count, configs=configs, has_one_leader=True)
        topic_id = self._registry.new_id()
        self._trimming.begin()
        record = NamedTopicRecord(options, owns_log=True)
        await _submit([self._topics.change(topic_id, record)])
        try:
            topic = await self._registry.create(
                name, partitions=count, configs=configs, has_one_leader=True, topic_id=topic_id
            )
        except TopicsError:
            await _submit([self._topics.change(topic_id, None)])
            raise
        return NamedTopicInfo(topic.name, topic.partition_count, options)

    async def wait_for_room(self, name: str, size: int, wait_ms: int) -> bool:
        """Wait until a batch fits into a topic; return False if it did not in that time.

        Raises:
            NamedTopicNotFound: there is no such named topic.
            TopicsError, LedgerError: a channel cannot be read.
        """
        topic, _ = self._named(name)
        capacity = self.capacities.of(topic)
        return capacity is None or await capacity.wait(size, min(wait_ms, WAIT_MS_MAX))

    def check_named(self, name: str) -> None:
        """Check that a topic is a named topic. Raises NamedTopicNotFound."""
        self._named(name)

    def names(self) -> list[str]:
        """Return the names of all named topics, sorted."""
        found = (self._registry.get_by_id(topic_id) for topic_id in self._topics.durable)
        return sorted(topic.name for topic in found if topic is not None)

    async def forget(self, topic_id: UUID) -> None:
        """Delete what is stored of a topic that was deleted.

        Raises:
            LedgerError: the storage failed; the rows refer to no topic, and mean nothing.
        """
        for key in [*self._keys_of.get(topic_id, ())]:
            await self._delete_group(key)
        self.capacities.forget(topic_id)
        if self._topics.head(topic_id) is not None:
            await _submit([self._topics.change(topic_id, None)])

    def _on_topic_replayed(self, topic_id: UUID) -> None:
        if self._topics.get(topic_id) is None:
            self._registry.unwatch(topic_id)
        else:
            self._registry.watch(topic_id, partial(self._on_topic_changed, topic_id))

    def _on_topic_changed(self, topic_id: UUID) -> None:
        """Allocate channels that were added to a topic, by any client; drop a deleted topic."""
        topic = self._registry.get_by_id(topic_id)
        if topic is None:
            self._in_background(self.forget(topic_id), "rows of a deleted topic")
            return
        for key in self._keys_of.get(topic.id, ()):
            group = self._groups.get(key)
            if group is not None and group.ownership.grow(topic.partition_count):
                group.notify()

    # Groups

    async def ensure_group(
        self, name: str, group: str, *, filter_name: str, converter_name: str
    ) -> None:
        """Make a subscriber group, unless it exists.

        Args:
            name: of the topic.
            group: its name.
            filter_name: `module:attribute`; empty: none, or the one that it has.
            converter_name: the same.

        Raises:
            NamedTopicNotFound: there is no such named topic.
            WrongArgument: it exists with another filter or converter, which the server does not
                allow or cannot load, or the name is wrong.
            FunctionsUnavailable, TopicsError, LedgerError: it was not made.
        """
        check_group_name(group)
        topic, record = self._named(name)
        key = GroupKey(topic.id, group)
        wanted = SubscriberGroupRecord(
            is_anonymous=False,
            created_ms=NOT_MADE,
            filter_name=filter_name,
            converter_name=converter_name,
        )
        if not self._check_same(key, wanted):
            await self._functions.load(FunctionNames(filter_name, converter_name))
            await self._make_group(key, topic, record, wanted)

    def _check_same(self, key: GroupKey, wanted: SubscriberGroupRecord) -> bool:
        """Return whether the group exists. Raises WrongArgument if its functions are wrong."""
        for what, name in (("filter", wanted.filter_name), ("converter", wanted.converter_name)):
            check_function(what, name, self._function_modules)
        found = self._group_records.head(key)
        if found is None:
            return False
        for what in ("filter_name", "converter_name"):
            given, expected = getattr(wanted, what), getattr(found, what)
            if given not in {"", expected}:
                raise WrongArgument(
                    f"{what.removesuffix('_name')} of group {key.name}: expected "
                    f"{expected or 'none'}, got {given}"
                )
        return True

    async def _make_group(
        self, key: GroupKey, topic: Topic, named: NamedTopicRecord, record: SubscriberGroupRecord
    ) -> None:
        if len(self._keys_of.get(topic.id, ())) >= GROUPS_MAX:
            raise WrongArgument(f"topic {topic.name} has {GROUPS_MAX} groups, the most it may have")
        channels = {}
        for opened in await self._partitions.open_all(topic.name):
            found = await self._positions.log_of(named, opened.log)
            first = first_offset_of_group(found, is_retaining=named.options.retain_values)
            channels[opened.log.index] = ChannelRecord(first)
        if self._check_same(key, record):
            return  # another call has made it meanwhile
        record = record._replace(created_ms=self._ids.new_group_ms(self._clock.now_ms()))
        await _submit(
            [self._group_records.change(key, record), self._channels.change(key, channels)]
        )

    async def destroy_group(self, name: str, group: str) -> None:
        """Destroy a subscriber group with its positions; its subscribers are disconnected.

        Raises:
            NamedTopicNotFound, GroupDestroyed: there is none.
            LedgerError: nothing has changed.
        """
        topic, _ = self._named(name)
        key = GroupKey(topic.id, group)
        if self._group_records.head(key) is None:
            raise _no_group(group, name)
        await self._delete_group(key)

    async def _delete_group(self, key: GroupKey) -> None:
        changes = [self._group_records.change(key, None)]
        if channels := self._channels.heads(key):
            changes.append(self._channels.change(key, dict.fromkeys(channels)))
        await _submit(changes)
        self.capacities.note_freed(key.topic_id)
        group = self._groups.pop(key, None)
        if group is not None:
            self._end(group)

    def _end(self, group: SubscriberGroup) -> None:
        group.is_destroyed = True
        for member in group.ownership.members:
            group.ownership.leave(member)
        if group.timer is not None:
            group.timer.cancel()
        self._notify(group)

    def _notify(self, group: SubscriberGroup) -> None:
        """Wake the polls of a group that has fewer members."""
        group.notify()
        if not group.ownership.members:
            self._functions.forget(group.key)

    async def groups(self, name: str) -> list[SubscriberGroupInfo]:
        """Return the groups of a topic with the state of every channel, anonymous ones included.

        Raises:
            NamedTopicNotFound: there is no such named topic.
            TopicsError, LedgerError: a channel cannot be read.
        """
        topic, _ = self._named(name)
        found = []
        for key in sorted(self._keys_of.get(topic.id, ())):
            record, group = self._group_records.get(key), self._group(key)
            if record is None or group is None:
                continue
            found.append(
                SubscriberGroupInfo(
                    name=key.name,
                    is_anonymous=record.is_anonymous,
                    subscribers=tuple(group.ownership.members),
                    filter_name=record.filter_name,
                    converter_name=record.converter_name,
                    channels=tuple(
                        [await self._ends(group, each) for each in range(topic.partition_count)]
                    ),
                )
            )
        return found

    # Subscribers

    async def join(self, name: str, join: SubscriberJoin) -> ChannelAllocation:
        """Add a subscriber to a group; make the group for a new subscriber.

        Raises:
            NamedTopicNotFound: there is no such named topic.
            GroupDestroyed: it was a subscriber of the group, which was destroyed.
            WrongArgument: the group has another filter or converter, or too many subscribers, or a
                function cannot be loaded.
            FunctionNotAllowed: the server does not allow a function of the group any more.
            FunctionsUnavailable, TopicsError, LedgerError: the group was not made.
        """
        topic, record = self._named(name)
        subscriber = join.subscriber or self._ids.new(self._clock.now_ms())
        if join.group:
            key = GroupKey(topic.id, join.group)
            found = self._group_records.head(key)
            if join.subscriber and (found is None or join.subscriber < first_id(found.created_ms)):
                raise _no_group(join.group, name)  # or it was made anew since
            await self.ensure_group(
                name, join.group, filter_name=join.filter_name, converter_name=join.converter_name
            )
            subscriber = join.subscriber or self._ids.new(self._clock.now_ms())
        else:
            key = GroupKey(topic.id, f"{ANONYMOUS_PREFIX}{subscriber}")
            if join.subscriber and self._group_records.head(key) is None:
                raise _no_group(key.name, name)  # it was not seen for too long
            wanted = SubscriberGroupRecord(
                is_anonymous=True,
                created_ms=NOT_MADE,
                filter_name=join.filter_name,
                converter_name=join.converter_name,
            )
            if not self._check_same(key, wanted):
                await self._functions.load(FunctionNames(join.filter_name, join.converter_name))
                # Its client may go while the group is written, which nothing else would end.
                ending = partial(self._end_if_left, key)
                timer = self._timers.call_after(ANONYMOUS_TIMEOUT_MS, ending)
                await self._make_group(key, topic, record, wanted)
                timer.cancel()
        await self._load_functions(key)
        group = self._group(key)
        if group is None:
            raise _no_group(join.group, name)
        if len(group.ownership.members) >= SUBSCRIBERS_MAX and subscriber not in group.ownership:
            raise WrongArgument(f"group {join.group} has {SUBSCRIBERS_MAX} subscribers")
        group.ownership.join(subscriber, self._clock.monotonic_ms())
        self._arm(group)
        group.notify()
        await self._settle_commits(group)
        return self._allocation(group, subscriber)

    async def _load_functions(self, key: GroupKey) -> None:
        """Load the functions of a group. Raises FunctionNotAllowed, WrongArgument."""
        names = self._functions_of(key)
        check_stored_functions(key.name, names, self._function_modules)
        await self._functions.load(names)

    async def leave(self, name: str, group: str, subscriber: int) -> None:
        """Remove a subscriber; an anonymous one takes its group along. Repeatable.

        Raises:
            LedgerError: the group of an anonymous subscriber is still there.
        """
        topic = self._registry.get(name)
        found = None if topic is None else self._group(GroupKey(topic.id, group))
        if found is None:
            return
        if found.is_anonymous:
            await self._delete_group(found.key)
        elif found.ownership.leave(subscriber):
            self._arm(found)
            self._notify(found)

    async def poll(self, name: str, poll: ChannelPoll) -> ChannelPollResult:
        """Return the next elements of a subscriber's channels; wait for some if there are none.

        Raises:
            NamedTopicNotFound, GroupDestroyed, UnknownSubscriber: it must join again, or cannot.
            TopicsError, LedgerError: a channel cannot be read.
        """
        group = self._expect_member(name, poll.group, poll.subscriber)
        silent_ms = 0 if group.is_anonymous else max(poll.silent_ms, 0)
        group.ownership.heartbeat(poll.subscriber, self._clock.monotonic_ms() - silent_ms)
        if group.ownership.grow(group.topic.partition_count):
            group.notify()
        found = await self._poll_once(group, poll)
        wait_ms = min(poll.wait_ms, WAIT_MS_MAX)
        if found is not None or wait_ms <= 0:
            return found or ChannelPollResult(None, ())
        changed = Signal()
        logs = [await group.log(each.channel) for each in poll.fetches]
        until_ms = self._clock.monotonic_ms() + wait_ms
        timer = self._timers.call_at(until_ms, changed.notify)
        group.add_wake(changed.notify)
        for log in logs:
            log.add_listener(changed.notify)
        try:
            while True:
                version = changed.version
                self._expect_member(name, poll.group, poll.subscriber)
                found = await self._poll_once(group, poll)
                if found is not None or self._clock.monotonic_ms() >= until_ms:
                    return found or ChannelPollResult(None, ())
                await changed.wait_beyond(version)
        finally:
            timer.cancel()
            group.remove_wake(changed.notify)
            for log in logs:
                log.remove_listener(changed.notify)

    async def _poll_once(
        self, group: SubscriberGroup, poll: ChannelPoll
    ) -> ChannelPollResult | None:
        """Return another allocation or elements, if there are any."""
        elements = await self._read(group, poll)
        if group.ownership.epoch != poll.epoch:
            await self._settle_commits(group)
            return ChannelPollResult(self._allocation(group, poll.subscriber), ())
        if not elements:
            return None
        expires = self._named(group.topic.name)[1].options.element_expiry_ms != NO_LIMIT
        return ChannelPollResult(None, tuple(elements), self._clock.now_ms() if expires else 0)

    async def _settle_commits(self, group: SubscriberGroup) -> None:
        """Wait for the commits of former owners that are under way, before new ones begin.

        A commit whose write fails was not made: what it covers comes again, to the new owner.
        """
        epoch = -1
        while epoch != group.ownership.epoch and self._channels.is_writing(group.key):
            epoch = group.ownership.epoch
            await self._store.flush()

    async def _read(self, group: SubscriberGroup, poll: ChannelPoll) -> list[ChannelElements]:
        _, named = self._named(group.topic.name)
        functions = self._functions_of(group.key)
        found: list[ChannelElements] = []
        room = min(poll.bytes_max, named.options.page_bytes)
        for fetch in poll.fetches:
            ownership = group.ownership
            if room <= 0 or ownership.epoch != poll.epoch:
                break
            if not ownership.owns(poll.subscriber, fetch.channel):
                continue
            log = await group.log(fetch.channel)
            head = await self._positions.head(group.key, fetch.channel, log)
            # A seek back moves the commit back: what is committed now does not come again.
            head = max(head, self._positions.record(group.key, fetch.channel).next_offset)
            elements = await read_channel(log, fetch, head_offset=head, bytes_max=room)
            if elements is not None and functions != NO_FUNCTIONS:
                channel = GroupChannel(group.key, fetch.channel)
                elements = await self._functions.apply(channel, functions, elements, bytes_max=room)
            if elements is not None:
                found.append(elements)
                room -= sum(map(len, elements.batches))
                record = self._positions.record(group.key, fetch.channel)
                group.note_fetched(fetch.channel, record.revision, elements.next_offset - 1)
        return found

    async def commit(self, name: str, request: CommitRequest) -> list[CommitOutcome]:
        """Commit positions, in their order; all that changes is one write.

        Raises:
            NamedTopicNotFound: there is no such named topic.
            UnknownSubscriber: the server does not know the subscriber: it has restarted.
            TopicsError, LedgerError: nothing is committed.
        """
        topic, named = self._named(name)
        key = GroupKey(topic.id, request.group)
        group, may_be_unowned = self._group(key), named.options.allow_unowned_commits
        if group is not None and not may_be_unowned:
            members = group.ownership
            if request.subscriber not in members and not members.has_timed_out(request.subscriber):
                raise UnknownSubscriber(f"group {key.name} has no subscriber {request.subscriber}")
        logs: dict[int, PartitionLog] = {}
        if group is not None:
            for each in {commit.channel for commit in request.commits}:
                if 0 <= each < topic.partition_count:
                    logs[each] = await group.log(each)
        what = f"group {key.name}"
        views: dict[int, ChannelView] = {}
        records: dict[int, ChannelRecord | None] = {}
        outcomes = []
        for commit in request.commits:
            channel = commit.channel
            view = views.get(channel)
            if view is None and group is not None and channel in logs and not group.is_destroyed:
                view = self._view(
                    group, request.subscriber, commit, logs[channel], may_be_unowned=may_be_unowned
                )
            decision = decide_commit(view, channel, commit.offset, what=what)
            outcomes.append(decision.outcome)
            if view is not None:
                if decision.record is not None:
                    records[channel] = decision.record
                    view = ChannelView(decision.record, *view[1:])  # _replace takes twice as long
                views[channel] = view
        if records:
            await _submit([self._channels.change(key, records)])
            self.capacities.note_freed(topic.id)
        return outcomes

    def _view(
        self,
        group: SubscriberGroup,
        subscriber: int,
        commit: ChannelCommit,
        log: PartitionLog,
        *,
        may_be_unowned: bool,
    ) -> ChannelView:
        """Return what the first commit of a request meets in its channel."""
        channel = commit.channel
        record = self._positions.record(group.key, channel)
        is_owner = group.ownership.owns(subscriber, channel)
        group.note_read(channel, commit.revision, commit.read_offset)
        return ChannelView(
            record=record,
            end_offset=log.last_stable_offset,
            read_offset=group.read_offset(channel, record, is_owner=is_owner),
            is_owner=is_owner,
            may_be_unowned=may_be_unowned,
        )

    async def seek(self, name: str, request: SeekRequest) -> list[SeekOutcome]:
        """Reposition channels, all or none; the new positions are durable.

        Raises:
            NamedTopicNotFound, GroupDestroyed, UnknownSubscriber: it must join again, or cannot.
            NotOwner: it does not own all the channels.
            WrongArgument: a target is wrong.
            TopicsError, LedgerError: nothing has moved.
        """
        group = self._expect_member(name, request.group, request.subscriber)
        named = self._topics.get(group.key.topic_id)
        assert named is not None, "a group without a named topic"
        self._check_owned(group, request)
        times: dict[int, int | None] = {}
        logs: dict[int, PartitionLog] = {}
        for channel, kind, value in request.targets:
            if kind not in SEEK_KINDS:
                raise WrongArgument(f"target: expected one of {', '.join(SEEK_KINDS)}, got {kind}")
            logs[channel] = await group.log(channel)
            await self._positions.head(group.key, channel, logs[channel])
            if kind == TO_TIME:
                found = await logs[channel].offset_for_timestamp(value + 1)
                times[channel] = None if found is None else found.offset
        self._expect_member(name, request.group, request.subscriber)
        self._check_owned(group, request)
        outcomes, records = [], dict[int, ChannelRecord | None]()
        for target in request.targets:
            channel = target.channel
            decision = decide_seek(
                self._positions.record(group.key, channel),
                target,
                self._positions.bounds(group.key, channel, logs[channel]),
                time_offset=times.get(channel),
                is_committing=request.is_committing,
            )
            outcomes.append(decision.outcome)
            records[channel] = decision.record
        if records:
            await _submit([self._channels.change(group.key, records)])
            self.capacities.note_freed(group.key.topic_id)
        return outcomes

    async def ends(self, name: str, group: str, subscriber: int, channel: int) -> list[ChannelEnds]:
        """Return the ends of a channel, or of all (-1), but only of those that it owns.

        Raises:
            NamedTopicNotFound, GroupDestroyed, UnknownSubscriber: it must join again, or cannot.
            TopicsError, LedgerError: a channel cannot be read.
        """
        found = self._expect_member(name, group, subscriber)
        owned = [
            each
            for each in found.ownership.channels_of(subscriber)
            if channel in {each, ALL_CHANNELS}
        ]
        return [await self._ends(found, each) for each in owned]

    async def _ends(self, group: SubscriberGroup, channel: int) -> ChannelEnds:
        log = await group.log(channel)
        await self._positions.head(group.key, channel, log)
        head, end = self._positions.bounds(group.key, channel, log)
        record = self._positions.record(group.key, channel)
        return ChannelEnds(
            channel=channel,
            owner=group.ownership.owner(channel),
            head_offset=head,
            end_offset=end,
            committed_offset=record.committed_offset,
            next_offset=record.next_offset,
            remaining=max(end - max(record.next_offset, head), 0),
        )

    # Looking up

    def _topic(self, name: str) -> Topic:
        topic = self._registry.get(name)
        if topic is None:
            raise NamedTopicNotFound(f"there is no named topic {name!r}")
        return topic

    def _named(self, name: str) -> tuple[Topic, NamedTopicRecord]:
        """Return a named topic. Raises NamedTopicNotFound, NotLeader, WrongArgument."""
        topic = self._topic(name)
        topic.check_leader(0)
        record = self._topics.get(topic.id)
        if record is None:
            raise NamedTopicNotFound(f"topic {name!r} is no named topic")
        check_one_leader(topic.name, topic.record.leaders)
        return topic, record

    def _functions_of(self, key: GroupKey) -> FunctionNames:
        record = self._group_records.head(key)
        if record is None:
            return NO_FUNCTIONS
        return FunctionNames(record.filter_name, record.converter_name)

    def _group(self, key: GroupKey) -> SubscriberGroup | None:
        """Return a group that exists, with its members."""
        record, topic = self._group_records.head(key), self._registry.get_by_id(key.topic_id)
        named = self._topics.get(key.topic_id)
        if record is None or topic is None or named is None:
            return None
        group = self._groups.get(key)
        if group is None:
            timeout_ms = named.options.subscriber_timeout_ms
            group = self._groups[key] = SubscriberGroup(
                key,
                topic,
                self._partitions,
                timeout_ms=ANONYMOUS_TIMEOUT_MS if record.is_anonymous else timeout_ms,
                is_anonymous=record.is_anonymous,
            )
        return group

    def _expect_member(self, name: str, group: str, subscriber: int) -> SubscriberGroup:
        topic, _ = self._named(name)
        found = self._group(GroupKey(topic.id, group))
        if found is None:
            raise _no_group(group, name)
        if subscriber not in found.ownership:
            raise UnknownSubscriber(f"group {group} has no subscriber {subscriber}")
        return found

    def _check_owned(self, group: SubscriberGroup, request: SeekRequest) -> None:
        owned = group.ownership.channels_of(request.subscriber)
        for each in request.targets:
            if each.channel not in owned:
                raise NotOwner(
                    f"the subscriber does not own channel {each.channel} of group "
                    f"{group.key.name}, only {owned}"
                )

    def _allocation(self, group: SubscriberGroup, subscriber: int) -> ChannelAllocation:
        ownership = group.ownership
        record = self._group_records.head(group.key)
        channels = []
        for channel in ownership.channels_of(subscriber):
            stands = self._positions.record(group.key, channel)
            channels.append(
                OwnedChannel(
                    channel, ownership.ownership(channel), stands.next_offset, stands.revision
                )
            )
        return ChannelAllocation(
            group=group.key.name,
            subscriber=subscriber,
            epoch=ownership.epoch,
            channel_count=ownership.channel_count,
            channels=tuple(channels),
            filter_name="" if record is None else record.filter_name,
            converter_name="" if record is None else record.converter_name,
        )

    # Timeouts

    def _arm(self, group: SubscriberGroup) -> None:
        """Set the timer of a group to its next timeout."""
        if group.timer is not None:
            group.timer.cancel()
            group.timer = None
        deadline_ms = group.ownership.next_deadline_ms
        if deadline_ms is not None:
            group.timer = self._timers.call_at(deadline_ms, lambda: self._on_deadline(group))

    def _on_deadline(self, group: SubscriberGroup) -> None:
        expired = group.ownership.expire(self._clock.monotonic_ms())
        self._arm(group)
        if expired:
            self._notify(group)
            if group.is_anonymous:
                self._end_if_left(group.key)

    # Background work

    def _resume(self) -> None:
        """Clean up behind the last run, and wait for its anonymous subscribers."""
        self._trimming.begin()
        for topic_id in {*self._topics.durable, *self._keys_of}:
            if self._registry.get_by_id(topic_id) is None:
                self._in_background(self.forget(topic_id), "rows of a deleted topic")
        for key, record in self._group_records.durable.items():
            if record.is_anonymous:
                self._timers.call_after(ANONYMOUS_TIMEOUT_MS, partial(self._end_if_left, key))

    def _end_if_left(self, key: GroupKey) -> None:
        """End an anonymous group whose subscriber has not come back."""
        group = self._group(key)
        if group is not None and not group.ownership.members:
            self._in_background(self._delete_group(key), f"end of {key.name}")

    def _in_background(self, work: Coroutine[None, None, None], what: str) -> None:
        unit = NamedUnit("background work", what)
        self._supervisor.spawn(_contained(work, what), unit.unit_name, unit=unit)

    async def _trimmed_logs(self) -> AsyncIterator[tuple[PartitionLog, int]]:
        """Yield the logs that are trimmed, with the offsets before which they are."""
        for topic_id, named in [*self._topics.durable.items()]:
            topic = self._registry.get_by_id(topic_id)
            if topic is None or not named.owns_log or named.options.retain_values:
                continue
            for log in topic.open_partitions():
                found = await self._positions.log_of(named, log)
                rows = (
                    self._channels.durable.get(key, {}).get(log.index)
                    for key in self._keys_of.get(topic_id, ())
                )
                next_offsets = [0 if row is None else row.next_offset for row in rows]
                yield log, logical_start(found, next_offsets, is_retaining=False)

    def _on_group_replayed(self, key: GroupKey) -> None:
        keys = self._keys_of.setdefault(key.topic_id, {})
        record = self._group_records.get(key)
        if record is None:
            keys.pop(key, None)
            if not keys:
                del self._keys_of[key.topic_id]
        else:
            keys[key] = None
            self._ids.note_group(record.created_ms)


async def _contained(work: Coroutine[None, None, None], what: str) -> None:
    """Run background work; an error of the storage is logged, and the next start does it again."""
    try:
        await work
    except LedgerError as error:
        logger.warning("%s: not done: %s", what, error)


async def _submit(changes: Sequence[RecordChange]) -> None:
    error = await submit_together(changes)
    if error is not None:
        raise error


def _no_group(group: str, topic: str) -> GroupDestroyed:
    return GroupDestroyed(f"topic {topic} has no subscriber group {group!r}")
