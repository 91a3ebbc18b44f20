"""Consumer group state: one group of the consumer protocol (KIP-848), its members and its timers.

Rule: pure. Every entry point takes the monotonic time and returns effects. A change holds in memory
at once and is answered when it is durable; when it cannot be stored, the group goes back to what
is, and everybody who waits is told to ask again.
Must not know: API versions, rows, committed offsets.

`heartbeat_state` (a heartbeat) and `target_assignment_state` (who is to own what) work on the
group through its transitions; `consumer_roster` knows who has which partition.

Three epochs grow one behind the other: the group's, whenever members, subscriptions or topics
change; the assignment's, when the assignor has taken that in; and each member's, when it has given
up what it must for it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kledger.gateway.coordinator.classic.subscription_plan import CONSUMER_PROTOCOL
from kledger.gateway.coordinator.consumer.consumer_group_record import ConsumerGroupRecord
from kledger.gateway.coordinator.consumer.consumer_member_state import (
    ConsumerMember,
    MemberState,
)
from kledger.gateway.coordinator.consumer.consumer_roster import ConsumerRoster
from kledger.gateway.coordinator.consumer.member_timers import MemberTimers
from kledger.gateway.coordinator.consumer_messages import (
    ConsumerGroupDescription,
    HeartbeatResult,
    TopicMetadata,
)
from kledger.gateway.coordinator.effects import Effect, TimerKey, Transition
from kledger.gateway.coordinator.group_config import ConsumerTimes, GroupConfig
from kledger.gateway.coordinator.group_messages import JoinResult, RequestingMember, SyncResult
from kledger.gateway.wire.error_codes import ErrorCode


class ConsumerGroupState(StrEnum):
    """Where a group stands, as tools are told; the values are Kafka's names.

    EMPTY: no members, at most offsets. The first heartbeat that joins leads on.
    ASSIGNING: something has changed that the target assignment does not know yet; the next
        heartbeat works it out.
    RECONCILING: members are on their way to it.
    STABLE: everybody has what it should have.
    DEAD: deleted; everything gets COORDINATOR_NOT_AVAILABLE, so that the sender asks again.
    """

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True)
class _UnconfirmedRecord:
    """A record being stored, and who is told of it."""

    record: ConsumerGroupRecord
    answers: list[tuple[int, object]]


class ConsumerGroup:
    """One group of the protocol of ConsumerGroupHeartbeat."""

    kind: Final = "consumer"
    protocol_type: Final = CONSUMER_PROTOCOL

    __slots__ = (
        "_is_dead",
        "_revision",
        "_writes",
        "assignment_epoch",
        "assignor",
        "catalog_epoch",
        "config",
        "durable",
        "epoch",
        "group_id",
        "is_changed",
        "roster",
        "timers",
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
        self.timers = MemberTimers()
        self.catalog_epoch: int | None = None
        self.durable = ConsumerGroupRecord(group_id=group_id, assignor=self.assignor)
        self.is_changed = False
        self._is_dead = False
        self._revision = 0
        self._writes: dict[int, _UnconfirmedRecord] = {}

    @classmethod
    def from_record(
        cls, record: ConsumerGroupRecord, config: GroupConfig, now_ms: int
    ) -> tuple["ConsumerGroup", list[Effect]]:
        """Bring a group back after a restart; its members get a whole session to say hello."""
        group = cls(record.group_id, config)
        group.durable = record
        transition = Transition(now_ms)
        group._roll_back(transition)
        return group, transition.effects

    @property
    def is_empty(self) -> bool:
        """Whether it may be deleted; a static member that is away counts as a member."""
        return not len(self.roster) and not self._is_dead

    @property
    def is_unused(self) -> bool:
        """Whether nobody is a member, or about to be."""
        return self.is_empty

    @property
    def is_all_classic(self) -> bool:
        """Whether there are members, but none of the consumer protocol any more."""
        return len(self.roster) > 0 and all(one.classic is not None for one in self.roster)

    @property
    def is_dead(self) -> bool:
        """Whether it was deleted."""
        return self._is_dead

    @property
    def state(self) -> ConsumerGroupState:
        """Where the group stands."""
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
        """Return the topics that members read."""
        return self.topics if len(self.roster) else ()

    @property
    def times(self) -> ConsumerTimes:
        """The times in force for its members."""
        return self.config.times_of(self.group_id)

    # Requests.

    def check_commit(
        self, sender: RequestingMember, _now_ms: int, *, is_transactional: bool = False
    ) -> ErrorCode:
        """Say whether the sender may commit offsets. Signs of life are heartbeats alone.

        Four cases: 1. nobody is in the group and the sender claims no epoch: a tool. 2. a
        transaction of somebody who need not be a member (KIP-447). 3. a member in its epoch.
        4. anybody else: it may have lost the partitions that it commits for.
        """
        if self._is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if sender.generation < 0 and self.is_empty:
            return ErrorCode.NONE
        is_nobody = not sender.member_id and sender.instance_id is None
        if is_transactional and sender.generation < 0 and is_nobody:
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
        """Say whether who asks for offsets is who it claims to be; tools claim nothing."""
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

    # Events that no request brings.

    def timer_fired(self, key: TimerKey, now_ms: int) -> list[Effect]:
        """End a membership if its time is really up."""
        transition = Transition(now_ms)
        member = self.roster.get(key.subject)
        if member is None or self._is_dead or not self.timers.has_expired(key, member, transition):
            return transition.effects
        self.remove(member, transition)
        self.store(transition)
        return transition.effects

    def persisted(self, revision: int, *, failed: bool, now_ms: int) -> list[Effect]:
        """Answer who waited for the write, or go back to what was durable before it.

        Whatever was handed out behind a write that failed fails too, before anything else happens.
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
        """Do nothing: a member is not its connection, and its next heartbeat tells it all."""
        return []

    def kill(self, _now_ms: int) -> list[Effect]:
        """End the group after its deletion; only an empty one can be deleted."""
        assert self.is_empty, f"{self.group_id} is {self.state}"
        self.end()
        return []

    def end(self) -> None:
        """Do nothing any more: the group was deleted, or goes on as another one."""
        self._is_dead = True

    # Transitions, also used by `heartbeat_state` and `target_assignment_state`.

    def remove(self, member: ConsumerMember, transition: Transition) -> None:
        """End a membership; what it had is free."""
        self.forget(member, transition)
        self.bump_epoch()

    def forget(self, member: ConsumerMember, transition: Transition) -> None:
        """Take a member out, to be put in again under another id."""
        self.roster.remove(member.member_id)
        self.timers.forget(member, transition)
        self.is_changed = True

    def replace_member(self, member: ConsumerMember) -> None:
        """Take a member in, or its new value."""
        self.is_changed |= self.roster.put(member)

    def renew_session(self, member: ConsumerMember, transition: Transition) -> None:
        """Note a sign of life."""
        self.timers.renew_session(member, transition, self.times.session_timeout_ms)

    def bump_epoch(self) -> None:
        """Note that the target assignment is out of date."""
        self.epoch += 1
        self.catalog_epoch = None
        self.is_changed = True

    # What is durable.

    def store(self, transition: Transition, *answers: tuple[int, object]) -> None:
        """Have a change stored and answer behind it; nobody hears of what is not durable yet."""
        if self.is_changed:
            self.is_changed = False
            self._revision += 1
            record = self._snapshot()
            self._writes[self._revision] = _UnconfirmedRecord(record, list(answers))
            transition.persist(self._revision, record)
        elif self._writes:
            self._writes[max(self._writes)].answers += answers
        else:
            for waiter, result in answers:
                transition.answer(waiter, result)

    def _snapshot(self) -> ConsumerGroupRecord:
        return ConsumerGroupRecord(
            group_id=self.group_id,
            epoch=self.epoch,
            assignment_epoch=self.assignment_epoch,
            assignor=self.assignor,
            topics=self.topics,
            members=tuple(self.roster),
        )

    def _roll_back(self, transition: Transition) -> None:
        """Be what is durable; members that are back get a whole session."""
        record = self.durable
        self.epoch, self.assignment_epoch = record.epoch, record.assignment_epoch
        self.assignor, self.topics = record.assignor, record.topics
        self.catalog_epoch = None
        self.timers.restart(self.roster, record.members, transition, self.times.session_timeout_ms)
        self.roster = ConsumerRoster(record.members)


def _retriable(result: object) -> object:
    """Return the answer that sends whoever waits for such a result back to ask again."""
    assert isinstance(result, HeartbeatResult | JoinResult | SyncResult), f"unknown {result!r}"
    return type(result)(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
