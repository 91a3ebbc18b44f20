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
from kledger.gateway.coordinator.consumer.consumer_group_state import (
    ConsumerGroup,
    MemberSessions,
    new_record,
)
from kledger.gateway.coordinator.consumer_messages import (
    JOIN_EPOCH,
    HeartbeatCommand,
    HeartbeatResult,
    TopicIdPartition,
    TopicMetadata,
)
from kledger.gateway.coordinator.effects import Effect
from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.group_messages import JoinResult, RequestingMember
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.security.principal import ANONYMOUS, Principal
from tests.gateway.coordinator.state_words import StateWorld

SESSION_MS = 45_000
REBALANCE_MS = 60_000
NOTHING: frozenset[TopicIdPartition] = frozenset()


class CatalogOfTest:
    """Topics that a test makes up; each gets a new id."""

    def __init__(self, **topics: int) -> None:
        self.epoch = 1
        self.rights_version = 0
        self.hidden: set[tuple[str, str]] = set()
        """Names of principals, and of the topics that they may not describe."""
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

    def hide(self, *hidden: tuple[str, str]) -> None:
        """Let the rules be that principals may not describe topics."""
        self.rights_version += 1
        self.hidden = set(hidden)

    def may_describe(self, principal: Principal, host: str, name: str) -> bool:
        assert "10.0.0.1" == host
        return (principal.name, name) not in self.hidden

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


class ConsumerWorld(StateWorld[ConsumerGroupRecord]):
    """One group of the consumer protocol."""

    def __init__(
        self,
        catalog: CatalogOfTest | None = None,
        config: GroupConfig | None = None,
        *,
        stores_at_once: bool = True,
    ) -> None:
        super().__init__(stores_at_once=stores_at_once)
        self.catalog = catalog or CatalogOfTest(t=4)
        self.config = config or GroupConfig()
        self.sessions = MemberSessions()

    @property
    def group(self) -> ConsumerGroup:
        """The group as it is now, for one event."""
        newest = self.unstored[-1][0] if self.unstored else self.durable
        return ConsumerGroup(newest or new_record("g", self.config), self.sessions, self.config)

    @property
    def hosted(self) -> ConsumerGroup:
        return self.group

    def replay(self, record: ConsumerGroupRecord) -> list[Effect]:
        return self.group.replay(record, self.now_ms)

    def write_failed(self, record: ConsumerGroupRecord) -> list[Effect]:
        return []

    def refusal(self, result: object) -> HeartbeatResult | JoinResult:
        assert isinstance(result, HeartbeatResult | JoinResult)
        return type(result)(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def send(self, asked: HeartbeatCommand) -> int:
        """Send a heartbeat; return its waiter."""
        waiter = self.next_waiter()
        asked = replace(asked, waiter=waiter)
        self.perform(self.group.heartbeat(asked, self.catalog, self.now_ms))
        return waiter

    def answer(self, waiter: int) -> HeartbeatResult:
        """Return the answer to a heartbeat."""
        result = self.answers[waiter]
        assert isinstance(result, HeartbeatResult)
        return result

    def ask(self, asked: HeartbeatCommand) -> HeartbeatResult:
        """Send a heartbeat and return its immediate answer."""
        return self.answer(self.send(asked))

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

    def restart(self) -> None:
        """Forget everything but what is durable."""
        self.timers.clear()
        self.unstored.clear()
        self.sessions = MemberSessions()
        if self.durable is not None:
            self.perform(self.replay(self.durable))

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
                principal=self.joining.get("principal", ANONYMOUS),
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
