"""Plans of servers that see the same, and servers that come, drain and die."""

from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from operator import eq

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kledger.nodes.node_plan import NodePlan, plan_nodes

IDS = range(1, 6)


@pytest.mark.parametrize(
    ("owners", "takers", "expected"),
    [
        ([None, None, None], [1], {1: NodePlan(claims=(1, 2, 3))}),
        ([None, None, None], [1, 2], {1: NodePlan(claims=(1, 3)), 2: NodePlan(claims=(2,))}),
        ([1, None, 2], [1, 2], {1: NodePlan(claims=(2,)), 2: NodePlan()}),
        ([1, 1, 1], [1, 2, 3], {1: NodePlan(hand_over=3), 2: NodePlan(), 3: NodePlan()}),
        ([1, 1, None], [1, 2, 3], {1: NodePlan(), 2: NodePlan(), 3: NodePlan(claims=(3,))}),
        ([1, 1, 2], [1, 2], {1: NodePlan(), 2: NodePlan()}),
        ([2, 2, 1], [1, 2], {1: NodePlan(), 2: NodePlan()}),
        ([1, 1, 2, 2], [1, 2, 3], {1: NodePlan(), 2: NodePlan(hand_over=3), 3: NodePlan()}),
        ([1, 1, 2], [2], {1: NodePlan(hand_over=1), 2: NodePlan()}),
        ([1, None, 2], [2], {1: NodePlan(hand_over=1), 2: NodePlan(claims=(2,))}),
        ([1, 1], [], {1: NodePlan()}),
        ([9, 9, 1], [1, 2], {1: NodePlan(), 2: NodePlan()}),
        ([1, 2], [1, 2, 3, 4], {1: NodePlan(), 3: NodePlan()}),
    ],
)
def test_server_does_its_part(
    owners: list[int | None], takers: list[int], expected: dict[int, NodePlan]
) -> None:
    of_nodes = dict(enumerate(owners, 1))
    assert expected == {each: plan_nodes(each, of_nodes, takers) for each in expected}


@pytest.mark.parametrize("count", [3, 6, 12])
def test_division_of_nodes_without_owners_depends_on_the_servers_alone(count: int) -> None:
    owners: dict[int, int | None] = dict.fromkeys(range(1, count + 1))
    settle(owners, [8, 5, 3])
    assert [3, 5, 8] * (count // 3) == list(owners.values())


@pytest.mark.parametrize("order", [*permutations([3, 5, 8])], ids=str)
def test_most_nodes_are_where_they_were_in_whatever_order_servers_come(order: list[int]) -> None:
    """Clients that never go back to their bootstrap servers need one node at its address."""
    owners: dict[int, int | None] = dict.fromkeys(range(1, 7))
    for come in range(1, len(order) + 1):
        settle(owners, order[:come])
    assert sum(map(eq, [3, 5, 8] * 2, owners.values())) >= 4


def test_server_that_comes_back_gets_the_nodes_that_it_had() -> None:
    owners: dict[int, int | None] = dict.fromkeys(range(1, 7))
    settle(owners, [1, 2, 3])
    before = dict(owners)
    for lost in (2, 1, 3):
        owners = {node: None if owner == lost else owner for node, owner in owners.items()}
        settle(owners, sorted({1, 2, 3} - {lost}), known=[1, 2, 3])
        settle(owners, [1, 2, 3])
        assert before == owners


def settle(owners: dict[int, int | None], takers: Sequence[int], known: Sequence[int] = ()) -> None:
    """Let the servers act until nothing moves any more."""
    while True:
        before = dict(owners)
        plans = {each: plan_nodes(each, before, takers, known=known) for each in takers}
        for each, plan in plans.items():
            owners.update(dict.fromkeys(plan.claims, each))
            if plan.hand_over is not None:
                owners[plan.hand_over] = None
        if before == owners:
            return


@pytest.mark.parametrize(
    ("owners", "takers", "preferred", "expected"),
    [
        ([1, 1, 2, 2], [1, 2], {1: 2}, {1: NodePlan(hand_over=1), 2: NodePlan()}),
        ([2, 1, 2, 2], [1, 2], {1: 2}, {1: NodePlan(), 2: NodePlan(hand_over=3)}),
        ([2, 1, 2, 1], [1, 2], {1: 2}, {1: NodePlan(), 2: NodePlan()}),
        ([2, 2, 2, 1], [1, 2], {1: 2, 2: 2, 3: 2}, {1: NodePlan(), 2: NodePlan()}),
        ([2, 2, 2, 2], [1, 2], {1: 2, 2: 2, 3: 2}, {1: NodePlan(), 2: NodePlan(hand_over=4)}),
        ([1, 1, 1], [1, 2], {1: 2, 2: 2, 3: 2}, {1: NodePlan(hand_over=1), 2: NodePlan()}),
        ([None, 1, 1], [1, 2], {1: 2, 2: 2}, {1: NodePlan(), 2: NodePlan(claims=(1,))}),
        ([None, None], [1, 2], {1: 2, 2: 2}, {1: NodePlan(), 2: NodePlan(claims=(1, 2))}),
        ([1, 1, 2, 2], [1, 2], {1: 9, 7: 2}, {1: NodePlan(), 2: NodePlan()}),
        ([2, 2, 1], [1], {1: 2}, {1: NodePlan(), 2: NodePlan(hand_over=1)}),
    ],
)
def test_preferred_server_owns_its_nodes_while_it_lives(
    owners: list[int | None],
    takers: list[int],
    preferred: dict[int, int],
    expected: dict[int, NodePlan],
) -> None:
    of_nodes = dict(enumerate(owners, 1))
    assert expected == {each: plan_nodes(each, of_nodes, takers, preferred) for each in expected}


class Servers(RuleBasedStateMachine):
    """Servers act on what they see, which is the same for all, one after the other."""

    @initialize(count=st.integers(2, 12))
    def begin(self, count: int) -> None:
        self.owners: dict[int, int | None] = dict.fromkeys(range(1, count + 1))
        self.live: set[int] = set()
        self.draining: set[int] = set()
        self.preferred: dict[int, int] = {}

    @property
    def takers(self) -> set[int]:
        return self.live - self.draining

    @rule(server=st.sampled_from(IDS))
    def start(self, server: int) -> None:
        self.live.add(server)
        self.draining.discard(server)

    @rule(node=st.integers(1, 12), server=st.none() | st.sampled_from(IDS))
    def prefer(self, node: int, server: int | None) -> None:
        if server is None:
            self.preferred.pop(node, None)
        elif node in self.owners:
            self.preferred[node] = server

    @rule(server=st.sampled_from(IDS))
    def drain(self, server: int) -> None:
        self.draining |= self.live & {server}

    @rule(server=st.sampled_from(IDS))
    def die(self, server: int) -> None:
        self.live.discard(server)
        self.draining.discard(server)

    @rule(server=st.sampled_from(IDS))
    def lose_nodes_of_a_dead_server(self, server: int) -> None:
        if server not in self.live:
            self.owners = {n: None if o == server else o for n, o in self.owners.items()}

    def plan(self, server: int, owners: dict[int, int | None]) -> NodePlan:
        return plan_nodes(server, owners, self.takers, self.preferred)

    @rule()
    def act(self) -> None:
        """Make the plans of all at the same moment, and then do what they say."""
        before = dict(self.owners)
        plans = {each: self.plan(each, before) for each in sorted(self.live)}
        handed_over = [
            (each, plan.hand_over) for each, plan in plans.items() if plan.hand_over is not None
        ]
        assert len([each for each, _ in handed_over if each in self.takers]) <= 1
        for each, node in handed_over:
            assert each == before[node]
            if each in self.takers:
                assert None not in before.values()
            self.owners[node] = None
        for each, plan in plans.items():
            for node in plan.claims:
                assert (None, None) == (before[node], self.owners[node]), "claimed twice"
                self.owners[node] = each

    @rule()
    def come_to_rest(self) -> None:
        """Without further changes every node gets an owner, evenly, and then nothing moves."""
        for server in set(self.owners.values()) - self.live:
            self.owners = {n: None if o == server else o for n, o in self.owners.items()}
        if not self.takers:
            return
        fixed = {n: each for n, each in self.preferred.items() if each in self.takers}
        owned = Counter(self.owners.values())
        share = -(-len(self.owners) // len(self.takers))
        kept = sum(min(owned[each], share) for each in self.takers)
        before = dict(self.owners)
        for _ in range(4 * len(self.owners) + 2):
            self.act()
        counts = Counter(self.owners.values())
        assert set(counts) <= self.takers
        assert fixed.items() <= self.owners.items()
        least = min(counts[each] for each in self.takers)
        free = Counter(each for n, each in self.owners.items() if n not in fixed)
        assert all(counts[each] <= least + 1 for each in free), "not divided evenly"
        moved = sum(before[n] in self.takers and before[n] != o for n, o in self.owners.items())
        fewest = max(0, sum(owned[each] for each in self.takers) - kept)
        if not fixed:
            assert moved <= fewest + len(self.takers), "a node moved without need"
        rest = dict(self.owners)
        self.act()
        assert rest == self.owners

    @invariant()
    def no_node_is_lost(self) -> None:
        if hasattr(self, "owners"):
            assert all(o is None or o in IDS for o in self.owners.values())


TestServers = Servers.TestCase
