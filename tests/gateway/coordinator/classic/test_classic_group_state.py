"""The classic group: every state against every request, timers, and a machine of random events."""

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kledger.gateway.coordinator.classic.classic_group_state import (
    JOIN_TIMER,
    SYNC_TIMER,
    ClassicGroupState,
    session_timer,
)
from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.group_messages import (
    GroupDescription,
    LeavingMember,
    MemberDescription,
)
from kledger.gateway.wire.error_codes import ErrorCode
from tests.gateway.coordinator.group_words import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    GroupWorld,
)

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
GENERATION = ErrorCode.ILLEGAL_GENERATION
FENCED = ErrorCode.FENCED_INSTANCE_ID
WAITS = None
"""The request is not answered yet."""


def in_state(state: str) -> GroupWorld:
    """Return a group of a (leads, static) and b in that state; a alone is known in Empty."""
    world = GroupWorld()
    if state == "Empty":
        return world
    world.new("a", instance_id="i")
    world.new("b")
    world.advance(2 * DELAY_MS)
    if state != "CompletingRebalance":
        world.finish_sync()
    if state == "PreparingRebalance":
        world.new("c")
    assert world.group.state == state
    return world


STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable")
Request = Callable[[GroupWorld], ErrorCode | None]


def answered(world: GroupWorld, waiter: int) -> ErrorCode | None:
    return None if world.is_waiting(waiter) else world.error(waiter)


TABLE: dict[str, tuple[Request, tuple[ErrorCode | None, ...]]] = {
    "heartbeat": (lambda w: w.heartbeat("b"), (UNKNOWN, REBALANCE, NONE, NONE)),
    "heartbeat of another generation": (
        lambda w: w.heartbeat("b", 99),
        (UNKNOWN, GENERATION, GENERATION, GENERATION),
    ),
    "heartbeat of a stranger": (
        lambda w: w.heartbeat("ghost"),
        (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
    ),
    "heartbeat with another's instance id": (
        lambda w: w.heartbeat("b", instance_id="i"),
        (UNKNOWN, FENCED, FENCED, FENCED),
    ),
    "commit": (lambda w: w.commit("b"), (UNKNOWN, NONE, REBALANCE, NONE)),
    "commit of another generation": (
        lambda w: w.commit("b", 99),
        (UNKNOWN, GENERATION, GENERATION, GENERATION),
    ),
    "commit of a stranger": (
        lambda w: w.commit("ghost"),
        (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
    ),
    "commit with another's instance id": (
        lambda w: w.commit("b", instance_id="i"),
        (UNKNOWN, FENCED, FENCED, FENCED),
    ),
    "commit from outside": (
        lambda w: w.commit("", -1),
        (NONE, UNKNOWN, UNKNOWN, UNKNOWN),
    ),
    "commit of a member without generation": (
        lambda w: w.commit("b", -1),
        (NONE, GENERATION, GENERATION, GENERATION),
    ),
    "sync": (
        lambda w: answered(w, w.sync("b")),
        (UNKNOWN, REBALANCE, WAITS, NONE),
    ),
    "sync of another generation": (
        lambda w: answered(w, w.sync("b", 99)),
        (UNKNOWN, GENERATION, GENERATION, GENERATION),
    ),
    "sync of a stranger": (
        lambda w: answered(w, w.sync("ghost")),
        (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
    ),
    "sync with another's instance id": (
        lambda w: answered(w, w.sync("b", instance_id="i")),
        (UNKNOWN, FENCED, FENCED, FENCED),
    ),
    "join of a new member": (
        lambda w: answered(w, w.new("n")),
        (WAITS, WAITS, WAITS, WAITS),
    ),
    "join of a new member that needs an id": (
        lambda w: answered(w, w.new("n", requires_known_id=True)),
        (ErrorCode.MEMBER_ID_REQUIRED,) * 4,
    ),
    "join of an unchanged follower": (
        lambda w: answered(w, w.join("b")),
        (UNKNOWN, WAITS, NONE, NONE),
    ),
    "join of an unchanged leader": (
        lambda w: answered(w, w.join("a", instance_id="i")),
        (UNKNOWN, WAITS, NONE, WAITS),
    ),
    "join of a changed follower": (
        lambda w: answered(w, w.join("b", protocols=(("range", b"changed"),))),
        (UNKNOWN, WAITS, WAITS, WAITS),
    ),
    "join of a stranger": (
        lambda w: answered(w, w.join("ghost")),
        (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
    ),
    "join with another's instance id": (
        lambda w: answered(w, w.join("b", instance_id="i")),
        (UNKNOWN, FENCED, FENCED, FENCED),
    ),
    "join of another protocol type": (
        lambda w: answered(w, w.new("n", protocol_type="connect")),
        (WAITS, *[ErrorCode.INCONSISTENT_GROUP_PROTOCOL] * 3),
    ),
    "leave": (lambda w: w.leave("b")[0], (UNKNOWN, NONE, NONE, NONE)),
    "leave of a stranger": (
        lambda w: w.leave("ghost")[0],
        (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
    ),
    "leave with another's instance id": (
        lambda w: w.leave(LeavingMember("b", "i"))[0],
        (UNKNOWN, FENCED, FENCED, FENCED),
    ),
    "leave by instance id alone": (
        lambda w: w.leave(LeavingMember("", "i"))[0],
        (UNKNOWN, NONE, NONE, NONE),
    ),
}


@pytest.mark.parametrize(
    ("request_name", "state", "expected"),
    [
        pytest.param(name, state, expected, id=f"{name} in {state}")
        for name, (_, outcomes) in TABLE.items()
        for state, expected in zip(STATES, outcomes, strict=True)
    ],
)
def test_answer_in_each_state(request_name: str, state: str, expected: ErrorCode | None) -> None:
    world = in_state(state)
    if state == "Empty":
        # Generation 0 is that of a group without a first join.
        assert world.group.generation == 0

    assert expected == TABLE[request_name][0](world)


def test_description_shows_metadata_only_while_stable() -> None:
    world = in_state("CompletingRebalance")
    described = world.group.describe()
    assert (described.state, described.protocol_name) == ("CompletingRebalance", "")
    assert {member.metadata for member in described.members} == {b""}

    world.finish_sync()

    assert world.group.describe() == GroupDescription(
        group_id="g",
        state="Stable",
        protocol_type="consumer",
        protocol_name="range",
        members=tuple(
            MemberDescription(
                member_id=name,
                instance_id=instance_id,
                client_id="client",
                client_host="/10.0.0.1",
                metadata=b"r",
                assignment=name.encode(),
            )
            for name, instance_id in (("a", "i"), ("b", None))
        ),
    )


def test_description_shows_the_assignment_until_a_new_generation() -> None:
    world = GroupWorld()
    world.stable("a")
    world.join("a")
    assert world.state == "CompletingRebalance"
    assert [b"a"] == [member.assignment for member in world.group.describe().members]
    world.join("a", protocols=(("range", b"changed"),))
    assert [b""] == [member.assignment for member in world.group.describe().members]


def test_empty_group_remembers_type_and_generation_across_a_restart() -> None:
    world = GroupWorld()
    world.stable("a")
    world.leave("a")
    assert (world.state, world.group.generation) == ("Empty", 2)

    after = world.restart()

    assert (after.state, after.group.generation) == ("Empty", 2)
    assert after.group.protocol_type == "consumer"
    assert after.timers == {}


def test_session_timer_moves_without_effects() -> None:
    """A heartbeat only moves a deadline; the timer checks it when it fires."""
    world = GroupWorld()
    world.stable("a")
    armed_ms = world.timers[session_timer("a")]

    world.advance(4_000)
    heartbeat_ms = world.now_ms
    assert world.heartbeat("a") == NONE
    assert world.timers[session_timer("a")] == armed_ms
    world.advance(armed_ms - world.now_ms)

    assert world.timers[session_timer("a")] == heartbeat_ms + SESSION_MS


def test_leave_of_an_unused_id_does_not_rebalance() -> None:
    world = GroupWorld()
    world.stable("a")
    world.new("b", requires_known_id=True)

    assert world.leave("b") == [NONE]

    assert world.state == "Stable"
    assert session_timer("b") not in world.timers


def test_several_members_leave_in_one_rebalance() -> None:
    world = GroupWorld()
    world.stable("a", "b", "c")

    assert world.leave("a", "b") == [NONE, NONE]

    assert world.group.generation == 1
    assert world.joined(world.join("c")).generation == 2


def test_leave_answers_the_waiting_requests_of_the_members() -> None:
    world = GroupWorld()
    world.completing("a", "b")
    sync = world.sync("b")
    world.leave("b")
    assert world.error(sync) == UNKNOWN

    a = world.join("a")
    joins = [world.new("c"), world.new("d")]
    assert world.joined(a).generation == 2
    world.leave("c", "d")
    assert [world.error(waiter) for waiter in joins] == [UNKNOWN, UNKNOWN]


def test_late_timers_do_nothing() -> None:
    """The table cancels them; a state does not depend on that."""
    world = GroupWorld()
    world.stable("a")

    for key in (JOIN_TIMER, SYNC_TIMER, session_timer("ghost")):
        assert world.group.timer_fired(key, world.now_ms) == []


def test_unknown_abandoned_waiter_does_nothing() -> None:
    world = GroupWorld()
    world.stable("a")

    assert world.group.abandon(12345, world.now_ms) == []


# Random events.

NAMES = [f"m{i}" for i in range(5)]
PROTOCOLS = [
    (("range", b"1"),),
    (("range", b"2"), ("coop", b"1")),
    (("coop", b"1"), ("range", b"1")),
    (("x", b""),),
]
names = st.sampled_from(NAMES)


class GroupMachine(RuleBasedStateMachine):
    """Members that join, leave, crash and repeat requests, over a storage that may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.world = GroupWorld(
            GroupConfig(group_max_size=4, group_initial_rebalance_delay_ms=DELAY_MS),
            stores_at_once=False,
        )
        self.generation = 0
        self.serial = 0
        self.ids: list[str] = []
        self.assigned: dict[int, dict[str, bytes]] = {}

    def known(self, draw: int) -> str:
        return self.ids[draw % len(self.ids)] if self.ids else "ghost"

    @rule(
        name=names,
        protocols=st.sampled_from(PROTOCOLS),
        is_static=st.booleans(),
        requires_known_id=st.booleans(),
        can_skip=st.booleans(),
    )
    def join_new(
        self,
        name: str,
        protocols: tuple[tuple[str, bytes], ...],
        is_static: bool,
        requires_known_id: bool,
        can_skip: bool,
    ) -> None:
        self.serial += 1
        member_id = f"{name}-{self.serial}"
        self.ids.append(member_id)
        self.world.new(
            member_id,
            protocols=protocols,
            instance_id=name if is_static else None,
            requires_known_id=requires_known_id,
            can_skip_assignment=can_skip,
        )

    @rule(draw=st.integers(0, 40), protocols=st.sampled_from(PROTOCOLS))
    def join_again(self, draw: int, protocols: tuple[tuple[str, bytes], ...]) -> None:
        member_id = self.known(draw)
        member = self.world.group.roster.members.get(member_id)
        instance_id = None if member is None else member.instance_id
        self.world.join(member_id, protocols=protocols, instance_id=instance_id)

    @precondition(lambda self: len(self.world.group.roster) > 0)
    @rule(draw=st.integers(0, 40), is_stale=st.booleans())
    def sync(self, draw: int, is_stale: bool) -> None:
        group = self.world.group
        member_id = sorted(group.roster.members)[draw % len(group.roster)]
        generation = group.generation - is_stale
        self.serial += 1
        assignments = dict.fromkeys(group.roster.members, b"%d" % self.serial)
        is_leading = member_id == group.roster.leader_id and not is_stale
        if is_leading and group.state is ClassicGroupState.COMPLETING_REBALANCE:
            # The first assignment of a generation counts; if it cannot be stored, the next
            # generation begins.
            self.assigned.setdefault(generation, assignments)
        self.world.sync(member_id, generation, assignments=assignments)

    @rule(draw=st.integers(0, 40))
    def heartbeat(self, draw: int) -> None:
        self.world.heartbeat(self.known(draw))

    @rule(draw=st.integers(0, 40))
    def leave(self, draw: int) -> None:
        self.world.leave(self.known(draw))

    @rule(draw=st.integers(0, 200))
    def lose_connection(self, draw: int) -> None:
        waiting = [w for w in range(1, self.world.waiter_count + 1) if self.world.is_waiting(w)]
        if waiting:
            waiter = waiting[draw % len(waiting)]
            self.world.abandon(waiter)

    @rule(failed=st.booleans())
    def store(self, failed: bool) -> None:
        self.world.store(failed=failed)

    @rule(ms=st.sampled_from([1, 500, DELAY_MS, SESSION_MS, REBALANCE_MS]))
    def pass_time(self, ms: int) -> None:
        self.world.advance(ms)

    @invariant()
    def exactly_one_member_leads(self) -> None:
        roster = self.world.group.roster
        assert (roster.leader_id is None) == (not roster.members)
        assert roster.leader_id is None or roster.leader_id in roster.members

    @invariant()
    def generation_never_goes_back(self) -> None:
        assert self.world.group.generation >= self.generation
        self.generation = self.world.group.generation

    @invariant()
    def counts_are_true(self) -> None:
        roster = self.world.group.roster
        waiting = [m for m in roster.members.values() if m.join_waiter is not None]
        assert roster.waiting_join_count == len(waiting)
        assert roster.static_ids == {
            m.instance_id: m.member_id for m in roster.members.values() if m.instance_id
        }
        assert roster.pending_sync <= set(roster.members)
        assert not roster.pending & set(roster.members)

    @invariant()
    def every_waiter_will_be_answered(self) -> None:
        """A join waits under its timer or a write, a sync under a timer or a write."""
        world, group = self.world, self.world.group
        for member in group.roster.members.values():
            assert session_timer(member.member_id) in world.timers
            assert member.timer_ms == world.timers[session_timer(member.member_id)]
            if member.join_waiter is not None:
                assert world.is_waiting(member.join_waiter)
                assert JOIN_TIMER in world.timers or world.unstored
            if member.sync_waiter is not None:
                assert world.is_waiting(member.sync_waiter)
                assert SYNC_TIMER in world.timers or world.unstored
        for member_id in group.roster.pending:
            assert session_timer(member_id) in world.timers

    @invariant()
    def states_agree_with_members(self) -> None:
        group = self.world.group
        assert (JOIN_TIMER in self.world.timers) == (
            group.state is ClassicGroupState.PREPARING_REBALANCE
        )
        if group.state in {ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE}:
            assert group.roster.members
            assert group.protocol_name is not None
            assert all(
                group.protocol_name in dict(member.protocols)
                for member in group.roster.members.values()
            )
        if group.state is ClassicGroupState.EMPTY:
            assert not group.roster.members

    @invariant()
    def assignments_come_from_the_leader_of_the_generation(self) -> None:
        group = self.world.group
        if group.state is ClassicGroupState.STABLE:
            expected = self.assigned[group.generation]
            assert {m.assignment for m in group.roster.members.values()} <= set(expected.values())


GroupMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_group_machine = GroupMachine.TestCase
