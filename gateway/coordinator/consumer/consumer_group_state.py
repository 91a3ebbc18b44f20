"""Consumer group state: one group of the consumer protocol, its members, target and timers.

Rule: pure. Every entry point takes the monotonic time and returns effects. A group is a record, and
an event decides which record follows it; `Persist` takes that one, with the answers that wait for
it. Beside the record a group has only the sessions of its members, which follow the durable records
by `replay`, so that a record that cannot be stored leaves nothing to undo.
Must not know: API versions, rows, committed offsets.

Three epochs follow each other: the group's, bumped whenever members, subscriptions or topics
change; the assignment's, once the assignor has computed a target for that; and each member's, once
the member has revoked what the target takes from it.

Source: KIP-848 (the protocol), KIP-345 (static members), KIP-447 (transactional commits).
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from kledger.gateway.coordinator.assignor_plan import ASSIGNORS, MemberSubscription
from kledger.gateway.coordinator.consumer.consumer_group_record import ConsumerGroupRecord
from kledger.gateway.coordinator.consumer.consumer_member_state import (
    NO_PARTITIONS,
    ConsumerMember,
    ConsumerRoster,
    MemberState,
    reconciled,
    updated,
)
from kledger.gateway.coordinator.consumer.consumer_protocol_plan import CONSUMER_PROTOCOL
from kledger.gateway.coordinator.consumer_messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    HeartbeatCommand,
    HeartbeatResult,
    Partitions,
    TopicCatalog,
    TopicMetadata,
)
from kledger.gateway.coordinator.effects import Effect, TimerKey, Transition
from kledger.gateway.coordinator.group_config import ConsumerTimes, GroupConfig
from kledger.gateway.coordinator.group_messages import RequestingMember
from kledger.gateway.regex import InvalidRegex, compile_regex
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.security.principal import Principal

SESSION_KIND: Final = "session"
REBALANCE_KIND: Final = "rebalance"


class ConsumerGroupState(StrEnum):
    """The phase of a group, as tools see it; the values are Kafka's names.

    EMPTY: no members, at most offsets. The first heartbeat that joins leads on.
    ASSIGNING: something has changed that the target assignment does not reflect yet; the next
        heartbeat computes it.
    RECONCILING: some members have not reached their target yet.
    STABLE: every member owns its target.
    """

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescription:
    """A group of the consumer protocol as tools see it."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ConsumerMember, ...] = ()


class _HeartbeatRejected(Exception):
    """A heartbeat gets an error, and nothing has changed."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        self.result = HeartbeatResult(error=error, message=message)
        super().__init__(message)


class ConsumerGroup:
    """One group of the protocol of ConsumerGroupHeartbeat."""

    kind: Final = "consumer"
    protocol_type: Final = CONSUMER_PROTOCOL

    __slots__ = ("_before", "config", "record", "sessions")

    def __init__(
        self, record: ConsumerGroupRecord, sessions: "MemberSessions", config: GroupConfig
    ) -> None:
        """Begin an event.

        Args:
            record: the newest one of the group; an event replaces it by the one that follows.
            sessions: of the group's members, the same in every event.
            config: the settings in force.
        """
        self.record = self._before = record
        self.sessions = sessions
        self.config = config

    @property
    def group_id(self) -> str:
        """The id of the group."""
        return self.record.group_id

    @property
    def members(self) -> ConsumerRoster:
        """The members."""
        return self.record.members

    @property
    def is_empty(self) -> bool:
        """Whether it may be deleted; a static member that left for a while is still a member."""
        return not len(self.members)

    @property
    def is_unused(self) -> bool:
        """Whether it has no members; ids are not assigned before a member joins."""
        return self.is_empty

    @property
    def is_all_classic(self) -> bool:
        """Whether there are members, but none of the consumer protocol any more."""
        return len(self.members) > 0 and all(one.classic is not None for one in self.members)

    @property
    def state(self) -> ConsumerGroupState:
        """The phase of the group."""
        record = self.record
        if not len(record.members):
            return ConsumerGroupState.EMPTY
        if record.epoch > record.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        is_done = all(
            member.state is MemberState.STABLE and member.epoch == record.assignment_epoch
            for member in record.members
        )
        return ConsumerGroupState.STABLE if is_done else ConsumerGroupState.RECONCILING

    @property
    def topics_in_use(self) -> Iterable[str]:
        """The names of the topics that members read."""
        return self.record.topics if len(self.members) else ()

    @property
    def times(self) -> ConsumerTimes:
        """The timeouts in force for its members."""
        return self.config.times_of(self.group_id)

    # ConsumerGroupHeartbeat.

    def heartbeat(
        self, command: HeartbeatCommand, catalog: TopicCatalog, now_ms: int
    ) -> list[Effect]:
        """Let a member join, stay or leave, and move it towards its target.

        A heartbeat is rejected before anything has changed, or accepted as a whole.
        """
        transition = Transition(now_ms)
        try:
            if command.epoch in {LEAVE_EPOCH, STATIC_LEAVE_EPOCH}:
                result = self._leave(command)
            else:
                result = self._stay(command, catalog, transition)
        except _HeartbeatRejected as rejected:
            assert self.record is self._before, f"{self.group_id} changed and rejected"
            transition.answer(command.waiter, rejected.result)
        else:
            self.store(transition, (command.waiter, result))
        return transition.effects

    def _stay(
        self, command: HeartbeatCommand, catalog: TopicCatalog, transition: Transition
    ) -> HeartbeatResult:
        known = self._admit(command)
        if command.topic_regex:
            _check_regex(command.topic_regex)
        before = self._with_request(known, command)
        after = self.reconcile(before, owned=command.owned, catalog=catalog, transition=transition)
        is_new_to_client = command.is_full or after.assigned != before.assigned
        return HeartbeatResult(
            member_id=after.member_id,
            epoch=after.epoch,
            heartbeat_interval_ms=self.times.heartbeat_interval_ms,
            assignment=after.assigned if is_new_to_client else None,
        )

    def _admit(self, command: HeartbeatCommand) -> ConsumerMember | None:
        """Return the sender as the group knows it, None if it is new.

        Raises:
            _HeartbeatRejected: the sender is not the member it claims to be, or the group is full.
        """
        size_max = self.config.consumer_max_size
        if command.member_id not in self.members and len(self.members) >= size_max:
            raise _HeartbeatRejected(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"the group has {len(self.members)} members, which is as many as it may have",
            )
        if command.instance_id is not None:
            return self._admit_static(command, command.instance_id)
        if command.epoch == JOIN_EPOCH:
            return self.members.get(command.member_id)
        member = self._known(command.member_id)
        _check_epoch(member, command)
        return member

    def _admit_static(self, command: HeartbeatCommand, instance_id: str) -> ConsumerMember | None:
        if command.epoch != JOIN_EPOCH:
            member = self._static_member_of(command, instance_id)
            _check_epoch(member, command)
            return member
        holder = self.members.holder_of(instance_id)
        if holder is None:
            return self.members.get(command.member_id)
        # A static member of the classic protocol sends no LeaveGroup when it restarts.
        if holder.epoch != STATIC_LEAVE_EPOCH and holder.classic is None:
            raise _HeartbeatRejected(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member with instance id {instance_id} cannot join the group because the "
                f"instance id is owned by {holder.member_id} member.",
            )
        return holder

    def _with_request(
        self, known: ConsumerMember | None, command: HeartbeatCommand
    ) -> ConsumerMember:
        """Return the member with what its heartbeat says.

        Three cases: 1. a new member; 2. a static member that rejoins, under any id, and keeps its
        partitions; 3. a member that never left.
        """
        if known is None:
            member = ConsumerMember(
                member_id=command.member_id,
                instance_id=command.instance_id,
                rack_id=None,
                client_id=command.client_id,
                client_host=command.client_host,
                rebalance_timeout_ms=command.rebalance_timeout_ms,
            )
        elif known.epoch == STATIC_LEAVE_EPOCH or known.member_id != command.member_id:
            self.forget(known)
            member = replace(
                known,
                member_id=command.member_id,
                epoch=JOIN_EPOCH,
                previous_epoch=JOIN_EPOCH,
                classic=None,
            )
        else:
            member, instance_id = known, command.instance_id or known.instance_id
            if known.classic is not None or instance_id != known.instance_id:
                member = replace(known, instance_id=instance_id, classic=None)
        member = updated(member, command)
        if known is None or not member.has_same_subscription(known):
            self.bump_epoch()
        return member

    def _leave(self, command: HeartbeatCommand) -> HeartbeatResult:
        """Remove a member, or keep the partitions of a static one for a session timeout."""
        if command.instance_id is not None:
            member = self._static_member_of(command, command.instance_id)
        else:
            member = self._known(command.member_id)
        if command.epoch == LEAVE_EPOCH:
            self.remove(member)
        else:
            away = replace(
                member,
                epoch=STATIC_LEAVE_EPOCH,
                previous_epoch=STATIC_LEAVE_EPOCH,
                state=MemberState.STABLE,
                revoking=NO_PARTITIONS,
            )
            self._put(away)
        return HeartbeatResult(member_id=member.member_id, epoch=command.epoch)

    def _known(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise _HeartbeatRejected(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def _static_member_of(self, command: HeartbeatCommand, instance_id: str) -> ConsumerMember:
        """Return the static member that the sender claims to be."""
        holder = self.members.holder_of(instance_id)
        if holder is None:
            raise _HeartbeatRejected(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown."
            )
        if holder.member_id != command.member_id:
            raise _HeartbeatRejected(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {command.member_id} with instance id {instance_id} was fenced by "
                f"member {holder.member_id}.",
            )
        return holder

    # OffsetCommit, OffsetFetch, ConsumerGroupDescribe.

    def check_commit(
        self, sender: RequestingMember, _now_ms: int, *, is_transactional: bool = False
    ) -> ErrorCode:
        """Return the error of an offset commit, or NONE. Only heartbeats renew a session.

        Four cases: 1. the group is empty and the sender claims no epoch: a tool. 2. a transaction
        of a producer that need not be a member (KIP-447). 3. a member in its epoch. 4. any other
        sender: it may have lost the partitions that it commits for.
        """
        if sender.generation < 0 and self.is_empty:
            return ErrorCode.NONE
        is_anonymous = not sender.member_id and sender.instance_id is None
        if is_transactional and sender.generation < 0 and is_anonymous:
            return ErrorCode.NONE
        member = self.members.get(sender.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_classic_sender = member.classic is not None or is_transactional
        if not is_classic_sender and not sender.uses_member_epoch:
            return ErrorCode.UNSUPPORTED_VERSION
        if sender.generation == member.epoch:
            return ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION if is_classic_sender else ErrorCode.STALE_MEMBER_EPOCH

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Return the error of an offset fetch, or NONE; tools claim neither id nor epoch."""
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if epoch == member.epoch else ErrorCode.STALE_MEMBER_EPOCH

    def describe(self) -> ConsumerGroupDescription:
        """Return what tools may see."""
        return ConsumerGroupDescription(
            group_id=self.group_id,
            state=self.state.value,
            epoch=self.record.epoch,
            assignment_epoch=self.record.assignment_epoch,
            assignor=self.record.assignor,
            members=tuple(self.members),
        )

    # Events other than requests.

    def timer_fired(self, key: TimerKey, now_ms: int) -> list[Effect]:
        """End a membership if its deadline has passed."""
        transition = Transition(now_ms)
        member = self.members.get(key.subject)
        session_ms = self.times.session_timeout_ms
        has_expired = self.sessions.has_expired(key, member, transition, session_ms)
        if has_expired and member is not None:
            self.remove(member)
            self.store(transition)
        return transition.effects

    def replay(self, record: ConsumerGroupRecord, now_ms: int) -> list[Effect]:
        """Begin and end sessions as a durable record says; at a start each has its full timeout."""
        transition = Transition(now_ms)
        self.sessions.replay(record.members, transition, self.times.session_timeout_ms)
        return transition.effects

    def abandon(self, _waiter: int, _now_ms: int) -> list[Effect]:
        """Do nothing: a member outlives its connection, and its next heartbeat repeats all."""
        return []

    # Members, also for `classic_in_consumer_state`.

    def reconcile(
        self,
        member: ConsumerMember,
        *,
        owned: Partitions | None,
        catalog: TopicCatalog,
        transition: Transition,
    ) -> ConsumerMember:
        """Store a member's new value, and bring it one step nearer to its target.

        Args:
            member: as its last request describes it.
            owned: the partitions that the client reports to own; None if it reports none.
            catalog: the topics that exist.
            transition: the event.

        Returns:
            The member after that step.
        """
        self._put(member)
        self.renew_session(member, transition)
        self._update_target_assignment(catalog)
        members = self.record.members
        after = reconciled(
            members.member(member.member_id),
            target_epoch=self.record.assignment_epoch,
            owned=owned,
            is_free=members.is_free,
        )
        self._put(after)
        return after

    def remove(self, member: ConsumerMember) -> None:
        """End a membership; its partitions become free."""
        self.forget(member)
        self.bump_epoch()

    def forget(self, member: ConsumerMember) -> None:
        """Remove a member without a new epoch, because it is added again under another id."""
        self.record = replace(self.record, members=self.members.without(member.member_id))

    def renew_session(self, member: ConsumerMember, transition: Transition) -> None:
        """Restart the member's session timeout."""
        self.sessions.renew(member, transition, self.times.session_timeout_ms)

    def bump_epoch(self) -> None:
        """Mark the target assignment as out of date."""
        self.record = replace(self.record, epoch=self.record.epoch + 1)

    def _put(self, *members: ConsumerMember) -> None:
        """Add members, or replace their values."""
        before = self.record.members
        after = before.with_members(*members)
        if after is not before:
            self.record = replace(self.record, members=after)

    # Target assignment: computed when members, subscriptions or topics have changed, never else.

    def _update_target_assignment(self, catalog: TopicCatalog) -> None:
        """Check whether topics or rights have changed; assign if anything has."""
        record = self.record
        is_assigned = record.epoch == record.assignment_epoch
        if is_assigned and self.sessions.has_checked(record.topics, catalog):
            return
        subscriptions = SubscribedTopics(catalog)
        topics = subscriptions.of_all(record.members)
        has_changed = topics != record.topics
        # Other rules may move a topic from one member to another, so that all stay the same.
        if not self.sessions.has_rights(record.topics, catalog):
            has_changed |= any(member.topic_regex for member in record.members)
        if has_changed:
            self.record = replace(record, topics=topics)
            # A member that joined or left has bumped the epoch already.
            if is_assigned:
                self.bump_epoch()
        if self.record.epoch > self.record.assignment_epoch:
            self._assign(subscriptions)
        self.sessions.checked(self.record.topics, catalog)

    def _assign(self, subscriptions: "SubscribedTopics") -> None:
        wanted = {
            member.member_id: MemberSubscription(
                rank=member.instance_id or member.member_id,
                topic_ids=frozenset(
                    topic_metadata.topic_id for topic_metadata in subscriptions.of(member).values()
                ),
                previous=member.target,
            )
            for member in self.members
        }
        counts = {
            topic_metadata.topic_id: topic_metadata.partition_count
            for topic_metadata in self.record.topics.values()
        }
        assignor, members = self._chosen_assignor(), self.members
        targets = ASSIGNORS[assignor](wanted, counts)
        changed = [
            replace(member, target=targets[member.member_id])
            for member in members
            if member.target != targets[member.member_id]
        ]
        self.record = replace(
            self.record,
            members=members.with_members(*changed),
            assignor=assignor,
            assignment_epoch=self.record.epoch,
        )

    def _chosen_assignor(self) -> str:
        """Return the assignor that most members ask for, else the first one of the settings."""
        votes = Counter(one.server_assignor for one in self.members if one.server_assignor)
        return votes.most_common(1)[0][0] if votes else self.config.consumer_assignors[0]

    # Records.

    def store(self, transition: Transition, *answers: tuple[int, object]) -> None:
        """Store what has changed; answer when that, and every write before it, is durable.

        Args:
            transition: the event.
            answers: waiters and their results.
        """
        transition.persist(None if self.record is self._before else self.record, *answers)


def new_record(group_id: str, config: GroupConfig) -> ConsumerGroupRecord:
    """Return a group without members."""
    return ConsumerGroupRecord(group_id=group_id, assignor=config.consumer_assignors[0])


def _check_epoch(member: ConsumerMember, command: HeartbeatCommand) -> None:
    """Accept the member's epoch, or the one before if its last answer may have been lost."""
    missed_one = (
        command.epoch == member.previous_epoch
        and command.owned is not None
        and command.owned <= member.assigned
    )
    if command.epoch != member.epoch and not missed_one:
        raise _HeartbeatRejected(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has member epoch {command.epoch}, expected {member.epoch}. "
            "The member must abandon all its partitions and rejoin.",
        )


def _check_regex(text: str) -> None:
    try:
        compile_regex(text)
    except InvalidRegex as error:
        raise _HeartbeatRejected(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{text}` is not a valid regular expression: {error}",
        ) from None


class SubscribedTopics:
    """The topics of every subscription, as of one epoch of the catalog.

    Names are looked up as they are; a topic that does not exist is left out. Regular expressions
    match whole names and are RE2's, which take linear time; each is matched once, however many
    members use it, and gives each member the topics that its client may describe.
    """

    __slots__ = ("_catalog", "_matches", "_visible")

    def __init__(self, catalog: TopicCatalog) -> None:
        self._catalog = catalog
        self._matches: dict[str, tuple[TopicMetadata, ...]] = {}
        self._visible: dict[tuple[str, Principal, str], tuple[TopicMetadata, ...]] = {}

    def of(self, member: ConsumerMember) -> dict[str, TopicMetadata]:
        """Return the topics that a member subscribes to, by name."""
        named = (self._catalog.find(name) for name in member.topic_names)
        found = {
            topic_metadata.name: topic_metadata
            for topic_metadata in named
            if topic_metadata is not None
        }
        if member.topic_regex:
            found.update(
                (topic_metadata.name, topic_metadata) for topic_metadata in self._visible_to(member)
            )
        return found

    def of_all(self, members: Iterable[ConsumerMember]) -> dict[str, TopicMetadata]:
        """Return the topics that at least one member subscribes to, by name."""
        found: dict[str, TopicMetadata] = {}
        for member in members:
            found.update(self.of(member))
        return found

    def _visible_to(self, member: ConsumerMember) -> tuple[TopicMetadata, ...]:
        key = member.topic_regex, member.principal, member.client_host
        if key not in self._visible:
            host = member.client_host.removeprefix("/")
            self._visible[key] = tuple(
                topic_metadata
                for topic_metadata in self._matching(member.topic_regex)
                if self._catalog.may_describe(member.principal, host, topic_metadata.name)
            )
        return self._visible[key]

    def _matching(self, text: str) -> tuple[TopicMetadata, ...]:
        if text not in self._matches:
            expression = compile_regex(text)
            names = [name for name in self._catalog.names() if expression.fullmatch(name)]
            matching = (self._catalog.find(name) for name in names)
            self._matches[text] = tuple(
                topic_metadata for topic_metadata in matching if topic_metadata is not None
            )
        return self._matches[text]


class MemberSessions:
    """What a group has beside its record: the sessions and rebalance timeouts of its members.

    They begin and end with the durable records, so that none of them has to be undone. A heartbeat
    only moves the session's deadline; when the timer fires before that, it is set again. So a
    heartbeat costs one assignment.
    """

    __slots__ = ("_checked", "_deadlines", "_durable", "_revocations")

    def __init__(self) -> None:
        self._deadlines: dict[str, tuple[int, int]] = {}
        """By member id: the end of its session, and when its timer fires."""
        self._revocations: dict[str, tuple[int, int]] = {}
        """Of members that revoke: the epoch in which they do, and their rebalance timeout."""
        self._durable = ConsumerRoster()
        """The members that have a session."""
        self._checked: tuple[dict[str, TopicMetadata], int, int] | None = None
        """The topics, and the epoch and rights of the catalog that they were found in."""

    def has_checked(self, topics: dict[str, TopicMetadata], catalog: TopicCatalog) -> bool:
        """Whether these very topics were found in the catalog as it is now."""
        checked = self._checked
        return (
            checked is not None
            and checked[0] is topics
            and checked[1:] == (catalog.epoch, catalog.rights_version)
        )

    def has_rights(self, topics: dict[str, TopicMetadata], catalog: TopicCatalog) -> bool:
        """Whether these very topics were found under the rules in force, or there are none."""
        checked = self._checked
        if checked is None or checked[0] is not topics:
            return catalog.rights_version == 0
        return checked[2] == catalog.rights_version

    def checked(self, topics: dict[str, TopicMetadata], catalog: TopicCatalog) -> None:
        """Remember that these topics are those of the catalog as it is now."""
        self._checked = topics, catalog.epoch, catalog.rights_version

    def renew(
        self, member: ConsumerMember, transition: Transition, session_timeout_ms: int
    ) -> None:
        """Restart a member's session; that of a member that is not durable yet has not begun."""
        if member.member_id in self._deadlines:
            self._begin(member, transition, session_timeout_ms)

    def replay(
        self, members: ConsumerRoster, transition: Transition, session_timeout_ms: int
    ) -> None:
        """Give each of these members a session, and end all other sessions."""
        for member in members.changed_since(self._durable):
            if member.member_id not in self._deadlines:
                self._begin(member, transition, session_timeout_ms)
            if member.state is not MemberState.REVOKING:
                self._stop_rebalance_timeout(member.member_id, transition)
            elif self._revocation_epoch(member.member_id) != member.epoch:
                timeout_ms = member.rebalance_timeout_ms
                self._revocations[member.member_id] = member.epoch, timeout_ms
                transition.schedule(TimerKey(REBALANCE_KIND, member.member_id), timeout_ms)
        if len(self._deadlines) > len(members):
            for member_id in [each for each in self._deadlines if each not in members]:
                del self._deadlines[member_id]
                transition.cancel(TimerKey(SESSION_KIND, member_id))
                self._stop_rebalance_timeout(member_id, transition)
        self._durable = members

    def has_expired(
        self,
        key: TimerKey,
        member: ConsumerMember | None,
        transition: Transition,
        session_timeout_ms: int,
    ) -> bool:
        """Whether a member has to be removed, as one of its timers has fired.

        The timer is set again in any case: the removal, or the change under way that makes it
        needless, may fail. Once that is durable, `replay` cancels the timer.

        Args:
            key: of the timer.
            member: the newest value; None if it is being removed.
            transition: the event.
            session_timeout_ms: of members of the consumer protocol.
        """
        if key.kind == REBALANCE_KIND:
            epoch, timeout_ms = self._revocations[key.subject]
            transition.schedule(key, timeout_ms)
            return (
                member is not None
                and member.state is MemberState.REVOKING
                and member.epoch == epoch
            )
        deadline_ms, _ = self._deadlines[key.subject]
        has_passed = deadline_ms <= transition.now_ms
        if has_passed:
            deadline_ms = transition.now_ms + session_timeout_ms
        self._deadlines[key.subject] = deadline_ms, deadline_ms
        transition.schedule(key, deadline_ms - transition.now_ms)
        return has_passed

    def _begin(
        self, member: ConsumerMember, transition: Transition, session_timeout_ms: int
    ) -> None:
        """Restart a session; members of the classic protocol bring their own timeout."""
        classic = member.classic
        timeout_ms = session_timeout_ms if classic is None else classic.session_timeout_ms
        deadline_ms = transition.now_ms + timeout_ms
        _, timer_ms = self._deadlines.get(member.member_id, (0, 0))
        if timer_ms <= transition.now_ms or timer_ms > deadline_ms:
            timer_ms = deadline_ms
            transition.schedule(TimerKey(SESSION_KIND, member.member_id), timeout_ms)
        self._deadlines[member.member_id] = (deadline_ms, timer_ms)

    def _revocation_epoch(self, member_id: str) -> int | None:
        revocation = self._revocations.get(member_id)
        return None if revocation is None else revocation[0]

    def _stop_rebalance_timeout(self, member_id: str, transition: Transition) -> None:
        if self._revocations.pop(member_id, None) is not None:
            transition.cancel(TimerKey(REBALANCE_KIND, member_id))
