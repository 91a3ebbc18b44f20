"""A group of the consumer protocol with a hand-moved clock, and clients that follow it.

`ConsumerWorld` performs the effects of the pure state; `ConsumerWorld.client` returns a member that
behaves as real ones do: it reports what it owns, revokes what it must, and rejoins when fenced.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

from kledger.gateway.coordinator.consumer.consumer_group_record import ConsumerGroupRecord
from kledger.gateway.coordinator.consumer.consumer_group_state import ConsumerGroup
from kledger.gateway.coordinator.consumer_messages import (
    JOIN_EPOCH,
    HeartbeatCommand,
    HeartbeatResult,
    TopicIdPartition,
    TopicMetadata,
)
from kledger.gateway.coordinator.effects import Cancel, Effect, Persist, Respond, Schedule, TimerKey
from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.group_messages import RequestingMember
from kledger.gateway.wire.error_codes import ErrorCode

SESSION_MS = 45_000
REBALANCE_MS = 60_000
NOTHING: frozenset[TopicIdPartition] = frozenset()


class CatalogOfTest:
    """Topics that a test makes up; each gets a new id."""

    def __init__(self, **topics: int) -> None:
        self.epoch = 1
        self._facts: dict[str, TopicMetadata] = {}
        self._made = 0
        for name, count in topics.items():
            self.make(name, count)

    def make(self, name: str, count: int) -> None:
        """Create a topic, or let it grow."""
        self.epoch += 1
        old = self._facts.get(name)
        self._made += 1
        topic_id = UUID(int=self._made) if old is None else old.topic_id
        self._facts[name] = TopicMetadata(name, topic_id, count)

    def drop(self, name: str) -> None:
        """Delete a topic."""
        self.epoch += 1
        del self._facts[name]

    def find(self, name: str) -> TopicMetadata | None:
        return self._facts.get(name)

    def names(self) -> Iterator[str]:
        return iter(self._facts)

    def partitions(self) -> set[TopicIdPartition]:
        """Return every partition of every topic."""
        return {part for name in self._facts for part in self.parts(name)}

    def parts(self, name: str, *numbers: int) -> frozenset[TopicIdPartition]:
        """Return partitions of a topic; all of them if no numbers are given."""
        topic_metadata = self._facts[name]
        wanted: Iterable[int] = numbers or range(topic_metadata.partition_count)
        return frozenset(TopicIdPartition(topic_metadata.topic_id, number) for number in wanted)


def subscribed(topic: str, *, owned: str = "", version: int = 1) -> bytes:
    """Write the metadata of a classic member; `owned` is partitions as digits."""
    parts = _by_topic(topic, owned) if version >= 1 else b""
    return struct.pack(">hi", version, 1) + _name(topic) + struct.pack(">i", -1) + parts


def assignment_of(topic: str, numbers: str, version: int = 1) -> bytes:
    """Write the assignment of a classic member; partitions as digits."""
    return struct.pack(">h", version) + _by_topic(topic, numbers) + struct.pack(">i", -1)


def _by_topic(topic: str, numbers: str) -> bytes:
    if not numbers:
        return struct.pack(">i", 0)
    listed = b"".join(struct.pack(">i", int(number)) for number in numbers)
    return struct.pack(">i", 1) + _name(topic) + struct.pack(">i", len(numbers)) + listed


def _name(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def command(member_id: str, epoch: int, **changes: Any) -> HeartbeatCommand:
    """Return a heartbeat without any optional field."""
    plain = HeartbeatCommand(
        group_id="g", member_id=member_id, epoch=epoch, client_id="client", client_host="/10.0.0.1"
    )
    return replace(plain, **changes)


def join_command(member_id: str, *topics: str, **changes: Any) -> HeartbeatCommand:
    """Return the heartbeat with which a member joins."""
    first = command(
        member_id,
        JOIN_EPOCH,
        rebalance_timeout_ms=REBALANCE_MS,
        topic_names=topics,
        owned=NOTHING,
    )
    return replace(first, **changes)


class ConsumerWorld:
    """One group, its timers, its waiters and its storage."""

    def __init__(
        self,
        catalog: CatalogOfTest | None = None,
        config: GroupConfig | None = None,
        *,
        stores_at_once: bool = True,
    ) -> None:
        self.catalog = catalog or CatalogOfTest(t=4)
        self.config = config or GroupConfig()
        self.group = ConsumerGroup("g", self.config)
        self.stores_at_once = stores_at_once
        self.now_ms = 1_000
        self.timers: dict[TimerKey, int] = {}
        self.answers: dict[int, HeartbeatResult] = {}
        self.unstored: list[Persist] = []
        self.durable: ConsumerGroupRecord | None = None
        self._waiters = 0

    def send(self, asked: HeartbeatCommand) -> int:
        """Send a heartbeat; return its waiter."""
        self._waiters += 1
        asked = replace(asked, waiter=self._waiters)
        effects = self.group.heartbeat(asked, self.catalog, self.now_ms)
        self.perform(effects)
        return self._waiters

    def ask(self, asked: HeartbeatCommand) -> HeartbeatResult:
        """Send a heartbeat and return its immediate answer."""
        return self.answers[self.send(asked)]

    def join(self, member_id: str, *topics: str, **changes: Any) -> HeartbeatResult:
        """Join; topic `t` if none is named."""
        return self.ask(join_command(member_id, *(topics or ("t",)), **changes))

    def heartbeat(self, member_id: str, epoch: int, **changes: Any) -> HeartbeatResult:
        """Send a heartbeat."""
        return self.ask(command(member_id, epoch, **changes))

    def commit(self, member_id: str, epoch: int, **changes: Any) -> ErrorCode:
        """Return the error of a commit."""
        sender = replace(RequestingMember(member_id, epoch, uses_member_epoch=True), **changes)
        return self.group.check_commit(sender, self.now_ms)

    def perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Respond(waiter, result):
                    assert waiter not in self.answers, "answered twice"
                    assert isinstance(result, HeartbeatResult)
                    self.answers[waiter] = result
                case Schedule(key, delay_ms):
                    self.timers[key] = self.now_ms + delay_ms
                case Cancel(key):
                    self.timers.pop(key, None)
                case Persist():
                    self.unstored.append(effect)
        if self.stores_at_once:
            self.store()

    def store(self, *, failed: bool = False) -> None:
        """Complete the writes under way."""
        pending, self.unstored = self.unstored, []
        for write in pending:
            assert isinstance(write.record, ConsumerGroupRecord)
            if not failed:
                self.durable = write.record
            self.perform(self.group.persisted(write.revision, failed=failed, now_ms=self.now_ms))

    def advance(self, ms: int) -> None:
        """Let time pass; timers fire at their time, in order."""
        end_ms = self.now_ms + ms
        while self.timers:
            key = min(self.timers, key=lambda one: self.timers[one])
            if self.timers[key] > end_ms:
                break
            self.now_ms = max(self.now_ms, self.timers.pop(key))
            self.perform(self.group.timer_fired(key, self.now_ms))
        self.now_ms = end_ms

    def restart(self) -> None:
        """Forget everything but what is durable."""
        self.timers.clear()
        self.unstored.clear()
        record = self.durable or ConsumerGroupRecord(group_id="g")
        self.group, effects = ConsumerGroup.from_record(record, self.config, self.now_ms)
        self.perform(effects)

    def client(self, member_id: str, *topics: str, **joining: Any) -> "Client":
        """Return a member that is not in the group yet."""
        return Client(self, member_id, topics or ("t",), joining)


class Client:
    """A client with its epoch and partitions."""

    def __init__(
        self, world: ConsumerWorld, member_id: str, topics: tuple[str, ...], joining: dict[str, Any]
    ) -> None:
        self.world = world
        self.member_id = member_id
        self.topics = topics
        self.joining = joining
        self.epoch = JOIN_EPOCH
        self.owned = NOTHING
        self.assigned = NOTHING

    def heartbeat(self) -> HeartbeatResult:
        """Send the next heartbeat, and follow its answer."""
        if self.epoch == JOIN_EPOCH:
            asked = join_command(self.member_id, *self.topics, **self.joining)
        else:
            asked = command(
                self.member_id,
                self.epoch,
                owned=self.owned,
                instance_id=self.joining.get("instance_id"),
            )
        result = self.world.ask(asked)
        self.receive(result)
        self.give_up()
        return result

    def receive(self, result: HeartbeatResult) -> None:
        """Apply an answer; partitions to revoke are kept until `give_up`."""
        if result.error is not ErrorCode.NONE:
            if result.error is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
                self.epoch, self.owned, self.assigned = JOIN_EPOCH, NOTHING, NOTHING
            return
        self.epoch = result.epoch
        if result.assignment is not None:
            self.assigned = result.assignment
            self.owned = max(self.assigned, self.owned)

    def give_up(self) -> None:
        """Revoke the partitions that are no longer assigned; only then own the new ones."""
        self.owned = self.assigned


def settle(*clients: Client) -> None:
    """Let all clients send heartbeats until nothing changes any more."""
    for _ in range(20):
        before = [(one.epoch, one.owned) for one in clients]
        for one in clients:
            one.heartbeat()
        if before == [(one.epoch, one.owned) for one in clients]:
            return
    raise AssertionError("the group does not settle")
