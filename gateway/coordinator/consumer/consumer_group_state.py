"""Consumer group state: one group of the consumer protocol, its members, target and timers.

Rule: pure. Every entry point takes the monotonic time and returns effects. A change holds in memory
at once and is answered when it is durable; if it cannot be stored, the group rolls back to its
durable record, and all waiting requests are answered with an error that makes clients retry.
Must not know: API versions, rows, committed offsets.

Three epochs follow each other: the group's, bumped whenever members, subscriptions or topics
change; the assignment's, once the assignor has computed a target for that; and each member's, once
the member has revoked what the target takes from it.

Source: KIP-848 (the protocol), KIP-345 (static members), KIP-447 (transactional commits).
"""

from collections import Counter
from collections.abc import Collection, Iterable
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
from kledger.gateway.coordinator.group_messages import JoinResult, RequestingMember, SyncResult
from kledger.gateway.regex import InvalidRegex, compile_regex
from kledger.gateway.wire.error_codes import ErrorCode

SESSION_KIND: Final = "session"
REBALANCE_KIND: Final = "rebalance"


class ConsumerGroupState(StrEnum):
    """The phase of a group, as tools see it; the values are Kafka's names.

    EMPTY: no members, at most offsets. The first heartbeat that joins leads on.
    ASSIGNING: something has changed that the target assignment does not reflect yet; the next
        heartbeat computes it.
    RECONCILING: some members have not reached their target yet.
    STABLE: every member owns its target.
    DEAD: deleted; every request gets COORDINATOR_NOT_AVAILABLE, so that the client retries.
    """

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescription:
    """A group of the consumer protocol as tools see it."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ConsumerMember, ...] = ()


@dataclass(slots=True)
class _UnconfirmedRecord:
    """A record being stored, and the answers that wait for it."""

    record: ConsumerGroupRecord
    answers: list[tuple[int, object]]


class _HeartbeatRejected(Exception):
    """A heartbeat gets an error, and nothing has changed."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        self.result = HeartbeatResult(error=error, message=message)
        super().__init__(message)


class ConsumerGroup:
    """One group of the protocol of ConsumerGroupHeartbeat."""

    kind: Final = "consumer"
    protocol_type: Final = CONSUMER_PROTOCOL

    __slots__ = (
        "_catalog_epoch",
        "_is_changed",
        "_is_dead",
        "_revision",
        "_timers",
        "_writes",
        "assignment_epoch",
        "assignor",
        "config",
        "durable",
        "epoch",
        "group_id",
        "roster",
        "topics",
    )

    def __init__(self, group_id: str, config: GroupConfig) -> None:
        self.group_id = group_id
        self.config = config
        self.epoch = 0
        self.assignment_epoch = 0
        self.assignor = config.consumer_assignors[0]
        self.topics: dict[str, TopicMetadata] = {}
        self.roster = ConsumerRoster()
        self.durable = ConsumerGroupRecord(group_id=group_id, assignor=self.assignor)
        self._timers = MemberTimers()
        self._catalog_epoch: int | None = None
        self._is_changed = False
        self._is_dead = False
        self._revision = 0
        self._writes: dict[int, _UnconfirmedRecord] = {}

    @classmethod
    def from_record(
        cls, record: ConsumerGroupRecord, config: GroupConfig, now_ms: int
    ) -> tuple["ConsumerGroup", list[Effect]]:
        """Load a group after a restart; each member starts with a full session timeout."""
        group = cls(record.group_id, config)
        group.durable = record
        transition = Transition(now_ms)
        group._roll_back(transition)
        return group, transition.effects

    @property
    def is_empty(self) -> bool:
        """Whether it may be deleted; a static member that left for a while is still a member."""
        return not len(self.roster) and not self._is_dead

    @property
    def is_unused(self) -> bool:
        """Whether it has no members; ids are not assigned before a member joins."""
        return self.is_empty

    @property
    def is_all_classic(self) -> bool:
        """Whether there are members, but none of the consumer protocol any more."""
        return len(self.roster) > 0 and all(one.classic is not None for one in self.roster)

    @property
    def state(self) -> ConsumerGroupState:
        """The phase of the group."""
        if self._is_dead:
            return ConsumerGroupState.DEAD
        if not len(self.roster):
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        is_done = all(
            member.state is MemberState.STABLE and member.epoch == self.assignment_epoch
            for member in self.roster
        )
        return ConsumerGroupState.STABLE if is_done else ConsumerGroupState.RECONCILING

    @property
    def topics_in_use(self) -> Iterable[str]:
        """The names of the topics that members read."""
        return self.topics if len(self.roster) else ()

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
        if self._is_dead:
            transition.answer(
                command.waiter, HeartbeatResult(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
            )
            return transition.effects
        try:
            if command.epoch in {LEAVE_EPOCH, STATIC_LEAVE_EPOCH}:
                result = self._leave(command, transition)
            else:
                result = self._stay(command, catalog, transition)
        except _HeartbeatRejected as rejected:
            assert not self._is_changed, f"{self.group_id} changed and rejected"
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
        before = self._with_request(known, command, transition)
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
        if command.member_id not in self.roster and len(self.roster) >= size_max:
            raise _HeartbeatRejected(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"the group has {len(self.roster)} members, which is as many as it may have",
            )
        if command.instance_id is not None:
            return self._admit_static(command, command.instance_id)
        if command.epoch == JOIN_EPOCH:
            return self.roster.get(command.member_id)
        member = self._known(command.member_id)
        _check_epoch(member, command)
        return member

    def _admit_static(self, command: HeartbeatCommand, instance_id: str) -> ConsumerMember | None:
        if command.epoch != JOIN_EPOCH:
            member = self._static_member_of(command, instance_id)
            _check_epoch(member, command)
            return member
        holder = self.roster.holder_of(instance_id)
        if holder is None:
            return self.roster.get(command.member_id)
        # A static member of the classic protocol sends no LeaveGroup when it restarts.
        if holder.epoch != STATIC_LEAVE_EPOCH and holder.classic is None:
            raise _HeartbeatRejected(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member with instance id {instance_id} cannot join the group because the "
                f"instance id is owned by {holder.member_id} member.",
            )
        return holder

    def _with_request(
        self, known: ConsumerMember | None, command: HeartbeatCommand, transition: Transition
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
            self.forget(known, transition)
            member = replace(
                known,
                member_id=command.member_id,
                epoch=JOIN_EPOCH,
                previous_epoch=JOIN_EPOCH,
                classic=None,
            )
        else:
            instance_id = command.instance_id or known.instance_id
            member = replace(known, instance_id=instance_id, classic=None)
        member = updated(member, command)
        if known is None or not member.has_same_subscription(known):
            self.bump_epoch()
        return member

    def _leave(self, command: HeartbeatCommand, transition: Transition) -> HeartbeatResult:
        """Remove a member, or keep the partitions of a static one for a session timeout."""
        if command.instance_id is not None:
            member = self._static_member_of(command, command.instance_id)
        else:
            member = self._known(command.member_id)
        if command.epoch == LEAVE_EPOCH:
            self.remove(member, transition)
        else:
            self._timers.stop_watching(member, transition)
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
        member = self.roster.get(member_id)
        if member is None:
            raise _HeartbeatRejected(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def _static_member_of(self, command: HeartbeatCommand, instance_id: str) -> ConsumerMember:
        """Return the static member that the sender claims to be."""
        holder = self.roster.holder_of(instance_id)
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
        if self._is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if sender.generation < 0 and self.is_empty:
            return ErrorCode.NONE
        is_anonymous = not sender.member_id and sender.instance_id is None
        if is_transactional and sender.generation < 0 and is_anonymous:
            return ErrorCode.NONE
        member = self.roster.get(sender.member_id)
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
        member = self.roster.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if epoch == member.epoch else ErrorCode.STALE_MEMBER_EPOCH

    def describe(self) -> ConsumerGroupDescription:
        """Return what tools may see."""
        return ConsumerGroupDescription(
            group_id=self.group_id,
            state=self.state.value,
            epoch=self.epoch,
            assignment_epoch=self.assignment_epoch,
            assignor=self.assignor,
            members=tuple(self.roster),
        )

    # Events other than requests.

    def timer_fired(self, key: TimerKey, now_ms: int) -> list[Effect]:
        """End a membership if its deadline has passed."""
        transition = Transition(now_ms)
        member = self.roster.get(key.subject)
        if member is None or self._is_dead or not self._timers.has_expired(key, member, transition):
            return transition.effects
        self.remove(member, transition)
        self.store(transition)
        return transition.effects

    def persisted(self, revision: int, *, failed: bool, now_ms: int) -> list[Effect]:
        """Answer the requests that waited for a write, or roll back to the durable record.

        All writes behind a failed one fail too, before any other event.
        """
        transition = Transition(now_ms)
        write = self._writes.pop(revision)
        if failed:
            self._roll_back(transition)
        else:
            self.durable = write.record
        for waiter, result in write.answers:
            transition.answer(waiter, _retriable(result) if failed else result)
        return transition.effects

    def abandon(self, _waiter: int, _now_ms: int) -> list[Effect]:
        """Do nothing: a member outlives its connection, and its next heartbeat repeats all."""
        return []

    def kill(self, _now_ms: int) -> list[Effect]:
        """End the group after its deletion; only an empty one can be deleted."""
        assert self.is_empty, f"{self.group_id} is {self.state}"
        self.end()
        return []

    def end(self) -> None:
        """Reject everything from now on: the group was deleted, or another object replaces it."""
        self._is_dead = True

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
        before = self.roster.member(member.member_id)
        after = reconciled(
            before,
            target_epoch=self.assignment_epoch,
            owned=owned,
            is_free=self.roster.is_free,
        )
        self._put(after)
        self._timers.watch(before, after, transition)
        return after

    def remove(self, member: ConsumerMember, transition: Transition) -> None:
        """End a membership; its partitions become free."""
        self.forget(member, transition)
        self.bump_epoch()

    def forget(self, member: ConsumerMember, transition: Transition) -> None:
        """Remove a member without a new epoch, because it is added again under another id."""
        self.roster.remove(member.member_id)
        self._timers.forget(member, transition)
        self._is_changed = True

    def renew_session(self, member: ConsumerMember, transition: Transition) -> None:
        """Restart the member's session timeout."""
        self._timers.renew_session(member, transition, self.times.session_timeout_ms)

    def bump_epoch(self) -> None:
        """Mark the target assignment as out of date."""
        self.epoch += 1
        self._catalog_epoch = None
        self._is_changed = True

    def _put(self, member: ConsumerMember) -> None:
        """Add a member, or replace its value."""
        self._is_changed |= self.roster.put(member)

    # Target assignment: computed when members, subscriptions or topics have changed, never else.

    def _update_target_assignment(self, catalog: TopicCatalog) -> None:
        """Check whether topics appeared, vanished or grew; assign if anything has changed."""
        if self._catalog_epoch == catalog.epoch:
            return
        subscriptions = SubscribedTopics(catalog)
        topics = subscriptions.of_all(self.roster)
        if topics != self.topics:
            self.topics = topics
            # A member that joined or left has bumped the epoch already.
            if self.epoch == self.assignment_epoch:
                self.bump_epoch()
        if self.epoch > self.assignment_epoch:
            self._assign(subscriptions)
        self._catalog_epoch = catalog.epoch

    def _assign(self, subscriptions: "SubscribedTopics") -> None:
        wanted = {
            member.member_id: MemberSubscription(
                rank=member.instance_id or member.member_id,
                topic_ids=frozenset(
                    topic_metadata.topic_id for topic_metadata in subscriptions.of(member).values()
                ),
                previous=member.target,
            )
            for member in self.roster
        }
        counts = {
            topic_metadata.topic_id: topic_metadata.partition_count
            for topic_metadata in self.topics.values()
        }
        self.assignor = self._chosen_assignor()
        for member_id, target in ASSIGNORS[self.assignor](wanted, counts).items():
            self._put(replace(self.roster.member(member_id), target=target))
        self.assignment_epoch = self.epoch

    def _chosen_assignor(self) -> str:
        """Return the assignor that most members ask for, else the first one of the settings."""
        votes = Counter(one.server_assignor for one in self.roster if one.server_assignor)
        return votes.most_common(1)[0][0] if votes else self.config.consumer_assignors[0]

    # Records.

    def store(self, transition: Transition, *answers: tuple[int, object]) -> None:
        """Store what has changed; answer when that, and every write before it, is durable.

        Args:
            transition: the event.
            answers: waiters and their results.
        """
        if self._is_changed:
            self._is_changed = False
            self._revision += 1
            record = self._record()
            self._writes[self._revision] = _UnconfirmedRecord(record, list(answers))
            transition.persist(self._revision, record)
        elif self._writes:
            self._writes[max(self._writes)].answers += answers
        else:
            for waiter, result in answers:
                transition.answer(waiter, result)

    def _record(self) -> ConsumerGroupRecord:
        return ConsumerGroupRecord(
            group_id=self.group_id,
            epoch=self.epoch,
            assignment_epoch=self.assignment_epoch,
            assignor=self.assignor,
            topics=self.topics,
            members=tuple(self.roster),
        )

    def _roll_back(self, transition: Transition) -> None:
        """Return to the durable record; restored members start with a full session timeout."""
        record = self.durable
        self.epoch, self.assignment_epoch = record.epoch, record.assignment_epoch
        self.assignor, self.topics = record.assignor, record.topics
        self._catalog_epoch = None
        self._timers.restart(self.roster, record.members, transition, self.times.session_timeout_ms)
        self.roster = ConsumerRoster(record.members)


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


def _retriable(result: object) -> object:
    """Return a result of the same type with an error that makes the client retry."""
    assert isinstance(result, HeartbeatResult | JoinResult | SyncResult), f"unknown {result!r}"
    return type(result)(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)


class SubscribedTopics:
    """The topics of every subscription, as of one epoch of the catalog.

    Names are looked up as they are; a topic that does not exist is left out. Regular expressions
    match whole names and are RE2's, which take linear time; each is matched once, however many
    members use it.
    """

    __slots__ = ("_catalog", "_matches")

    def __init__(self, catalog: TopicCatalog) -> None:
        self._catalog = catalog
        self._matches: dict[str, tuple[TopicMetadata, ...]] = {}

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
                (topic_metadata.name, topic_metadata)
                for topic_metadata in self._matching(member.topic_regex)
            )
        return found

    def of_all(self, members: Iterable[ConsumerMember]) -> dict[str, TopicMetadata]:
        """Return the topics that at least one member subscribes to, by name."""
        found: dict[str, TopicMetadata] = {}
        for member in members:
            found.update(self.of(member))
        return found

    def _matching(self, text: str) -> tuple[TopicMetadata, ...]:
        if text not in self._matches:
            expression = compile_regex(text)
            names = [name for name in self._catalog.names() if expression.fullmatch(name)]
            matching = (self._catalog.find(name) for name in names)
            self._matches[text] = tuple(
                topic_metadata for topic_metadata in matching if topic_metadata is not None
            )
        return self._matches[text]


class MemberTimers:
    """The session and rebalance timers of all members of one group.

    A heartbeat only moves the session's deadline; when the timer fires before that, it is set
    again. So a heartbeat costs one assignment.
    """

    __slots__ = ("_deadlines",)

    def __init__(self) -> None:
        self._deadlines: dict[str, tuple[int, int]] = {}

    def renew_session(
        self, member: ConsumerMember, transition: Transition, session_timeout_ms: int
    ) -> None:
        """Restart a member's session; members of the classic protocol bring their own timeout."""
        classic = member.classic
        timeout_ms = session_timeout_ms if classic is None else classic.session_timeout_ms
        deadline_ms = transition.now_ms + timeout_ms
        _, timer_ms = self._deadlines.get(member.member_id, (0, 0))
        if timer_ms <= transition.now_ms or timer_ms > deadline_ms:
            timer_ms = deadline_ms
            transition.schedule(_session_timer(member.member_id), timeout_ms)
        self._deadlines[member.member_id] = (deadline_ms, timer_ms)

    def has_expired(self, key: TimerKey, member: ConsumerMember, transition: Transition) -> bool:
        """Whether the deadline of a timer that fired has passed; sets the timer again if not."""
        if key.kind == REBALANCE_KIND:
            return member.state is MemberState.REVOKING
        deadline_ms, _ = self._deadlines[member.member_id]
        if deadline_ms <= transition.now_ms:
            return True
        self._deadlines[member.member_id] = (deadline_ms, deadline_ms)
        transition.schedule(key, deadline_ms - transition.now_ms)
        return False

    def watch(self, before: ConsumerMember, after: ConsumerMember, transition: Transition) -> None:
        """Start the rebalance timeout of a member that begins to revoke; stop it when it ends."""
        if after.state is not MemberState.REVOKING:
            if before.state is MemberState.REVOKING:
                self.stop_watching(after, transition)
        elif before.state is not MemberState.REVOKING or before.epoch != after.epoch:
            transition.schedule(_rebalance_timer(after), after.rebalance_timeout_ms)

    def stop_watching(self, member: ConsumerMember, transition: Transition) -> None:
        """Stop a member's rebalance timeout."""
        transition.cancel(_rebalance_timer(member))

    def forget(self, member: ConsumerMember, transition: Transition) -> None:
        """Stop all timers of a removed member."""
        del self._deadlines[member.member_id]
        transition.cancel(_session_timer(member.member_id))
        self.stop_watching(member, transition)

    def restart(
        self,
        before: Iterable[ConsumerMember],
        members: Collection[ConsumerMember],
        transition: Transition,
        session_timeout_ms: int,
    ) -> None:
        """Replace the members; those without a running session start with a full timeout."""
        kept = {member.member_id for member in members}
        for member in before:
            if member.member_id in kept:
                self.stop_watching(member, transition)
            else:
                self.forget(member, transition)
        for member in members:
            if member.member_id not in self._deadlines:
                self.renew_session(member, transition, session_timeout_ms)
            if member.state is MemberState.REVOKING:
                transition.schedule(_rebalance_timer(member), member.rebalance_timeout_ms)


def _session_timer(member_id: str) -> TimerKey:
    return TimerKey(SESSION_KIND, member_id)


def _rebalance_timer(member: ConsumerMember) -> TimerKey:
    return TimerKey(REBALANCE_KIND, member.member_id)
