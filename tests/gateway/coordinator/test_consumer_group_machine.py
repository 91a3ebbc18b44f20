"""Any order of events of members, topics, storage and time in a group of the consumer protocol.

Compared with the view of the members: a member owns its last assignment until it receives another;
one that was removed without knowing it can still read, but commits nothing.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kledger.gateway.coordinator.consumer.consumer_member_state import MemberState
from kledger.gateway.coordinator.consumer_messages import (
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    HeartbeatResult,
)
from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.wire.error_codes import ErrorCode
from tests.gateway.coordinator.consumer_words import (
    NOTHING,
    REBALANCE_MS,
    SESSION_MS,
    CatalogOfTest,
    Client,
    ConsumerWorld,
    command,
    join_command,
    settle,
)

NAMES = ("t", "u", "v")
members = st.integers(0, 4)
subscriptions = st.sampled_from([("t",), ("t", "u"), ("u", "v"), NAMES])


class ConsumerGroupMachine(RuleBasedStateMachine):
    """Five clients, of which one is static, and three topics."""

    def __init__(self) -> None:
        super().__init__()
        self.world = ConsumerWorld(CatalogOfTest(t=3, u=4), GroupConfig(consumer_max_size=4))
        self.clients = [
            self.world.client(f"m{number}", **({"instance_id": "i"} if number == 4 else {}))
            for number in range(5)
        ]
        self.epoch_max = 0
        self.waiting: list[tuple[Client, int]] = []

    def client(self, number: int) -> Client:
        return self.clients[number]

    # Members.

    @rule(number=members)
    def heartbeat(self, number: int) -> None:
        """A heartbeat; its answer arrives only if its change was stored."""
        one = self.client(number)
        if any(one is other for other, _ in self.waiting):
            return
        if one.epoch == 0:
            asked = join_command(one.member_id, *one.topics, **one.joining)
        else:
            asked = command(
                one.member_id,
                one.epoch,
                owned=one.owned,
                instance_id=one.joining.get("instance_id"),
            )
        self.waiting.append((one, self.world.send(asked)))
        self._deliver()

    @rule(number=members, topics=subscriptions)
    def subscribe(self, number: int, topics: tuple[str, ...]) -> None:
        """Change the subscription; a member sends it with its next heartbeat."""
        one = self.client(number)
        one.topics = topics
        if one.epoch > 0 and not any(one is other for other, _ in self.waiting):
            asked = command(
                one.member_id,
                one.epoch,
                topic_names=topics,
                instance_id=one.joining.get("instance_id"),
            )
            self.waiting.append((one, self.world.send(asked)))
            self._deliver()

    @rule(number=members, assignor=st.sampled_from(["uniform", "range"]))
    def choose_assignor(self, number: int, assignor: str) -> None:
        self.client(number).joining["server_assignor"] = assignor

    @rule(number=members)
    def leave(self, number: int) -> None:
        one = self.client(number)
        if one.epoch <= 0 or any(one is other for other, _ in self.waiting):
            return
        epoch = STATIC_LEAVE_EPOCH if "instance_id" in one.joining else LEAVE_EPOCH
        self.world.send(command(one.member_id, epoch, instance_id=one.joining.get("instance_id")))
        one.epoch, one.owned, one.assigned = 0, NOTHING, NOTHING

    @rule(number=members)
    def lose_answer(self, number: int) -> None:
        """The connection of a waiting member breaks; its next heartbeat is full."""
        one = self.client(number)
        self.waiting = [(other, waiter) for other, waiter in self.waiting if other is not one]

    @rule(number=members)
    def give_up(self, number: int) -> None:
        self.client(number).give_up()

    # Topics, time and storage.

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 5))
    def make_topic(self, name: str, count: int) -> None:
        topic_metadata = self.world.catalog.find(name)
        if topic_metadata is None or topic_metadata.partition_count < count:
            self.world.catalog.make(name, count)

    @rule(name=st.sampled_from(NAMES))
    def drop_topic(self, name: str) -> None:
        if self.world.catalog.find(name) is not None:
            self.world.catalog.drop(name)

    @rule(ms=st.sampled_from([1_000, REBALANCE_MS // 2, SESSION_MS]))
    def pass_time(self, ms: int) -> None:
        self.world.advance(ms)
        self._deliver()

    @rule()
    def stall_storage(self) -> None:
        self.world.stores_at_once = False

    @rule(failed=st.booleans())
    def end_writes(self, failed: bool) -> None:
        self.world.store(failed=failed)
        self._deliver()
        if failed:
            self.epoch_max = 0

    @rule()
    def resume_storage(self) -> None:
        self.world.stores_at_once = True
        self.world.store()
        self._deliver()

    @precondition(lambda self: not self.waiting)
    @rule()
    def restart(self) -> None:
        self.world.restart()
        self.epoch_max = 0

    def _deliver(self) -> None:
        still = []
        for one, waiter in self.waiting:
            if self.world.is_waiting(waiter):
                still.append((one, waiter))
            else:
                result = self.world.answer(waiter)
                self._check_epoch(one, result)
                one.receive(result)
        self.waiting = still

    @staticmethod
    def _check_epoch(one: Client, result: HeartbeatResult) -> None:
        if result.error is ErrorCode.NONE and one.epoch > 0:
            assert one.epoch <= result.epoch, f"{one.member_id} goes back"

    # Invariants.

    @invariant()
    def nothing_is_owned_twice(self) -> None:
        """Checked among members that may commit: fenced ones do not know it yet."""
        owned = [
            one.owned
            for one in self.clients
            if one.epoch > 0 and self.world.commit(one.member_id, one.epoch) is ErrorCode.NONE
        ]
        assert sum(map(len, owned)) == len(NOTHING.union(*owned))

    @invariant()
    def epochs_grow_one_behind_the_other(self) -> None:
        group = self.world.group
        assert self.epoch_max <= group.record.epoch
        self.epoch_max = group.record.epoch
        assert group.record.assignment_epoch <= group.record.epoch
        for member in group.members:
            assert member.epoch <= group.record.assignment_epoch
            assert member.assigned.isdisjoint(member.revoking)

    @invariant()
    def targets_share_nothing(self) -> None:
        targets = [member.target for member in self.world.group.members]
        assert sum(map(len, targets)) == len(NOTHING.union(*targets))

    @invariant()
    def every_durable_member_has_a_session(self) -> None:
        sessions = {key.subject for key in self.world.timers if key.kind == "session"}
        durable = self.world.durable
        assert {each.member_id for each in (durable.members if durable else ())} == sessions

    @invariant()
    def every_durable_member_that_revokes_has_a_timeout(self) -> None:
        timeouts = {key.subject for key in self.world.timers if key.kind == "rebalance"}
        durable = self.world.durable
        assert timeouts == {
            each.member_id
            for each in (durable.members if durable else ())
            if each.state is MemberState.REVOKING
        }

    def teardown(self) -> None:
        """Without further events the group settles and every partition has an owner."""
        self.resume_storage()
        self.world.advance(2 * SESSION_MS)
        clients = self.clients[:4]
        for one in clients:
            one.epoch, one.owned, one.assigned = 0, NOTHING, NOTHING
        settle(*clients)
        wanted = {name for one in clients for name in one.topics}
        found = [self.world.catalog.find(name) for name in wanted]
        count = sum(
            topic_metadata.partition_count for topic_metadata in found if topic_metadata is not None
        )
        assert count == sum(len(one.owned) for one in clients)
        assert "Stable" == self.world.group.state


def test_any_order_of_events_keeps_the_invariants() -> None:
    run_state_machine_as_test(
        ConsumerGroupMachine,
        settings=settings(max_examples=60, stateful_step_count=40, deadline=None),
    )
