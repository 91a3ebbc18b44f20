"""What a server decides from its polls about the owners of other nodes."""

from collections.abc import Collection, Sequence

import pytest

from kledger.ledger.cluster import POLL_EVERY_MS, NodesObservation, OwnerObservation
from kledger.ledger.cluster.database import SessionId
from kledger.ledger.cluster.nodes_database import DescribedNode
from kledger.ledger.cluster.session_state import FENCE_AFTER_MS, SILENT_AFTER_MS
from kledger.nodes.owner_watches import HURRIED_MS, HURRIED_POLL_MS, LostOwner, OwnerWatches

EPOCH = 7


class Polls:
    """Polls that see, of each node, the number of its owner's last commit; None: no owner."""

    def __init__(self) -> None:
        self.silent: dict[int, int] = {}
        self.watches = OwnerWatches(self.silent)
        self.now_ms = 100_000

    def poll(self, *seqs: int | None, own_nodes: Collection[int] = ()) -> Sequence[LostOwner]:
        nodes = [
            DescribedNode(node, EPOCH, None if seq is None else owner(node, seq), node, 0)
            for node, seq in enumerate(seqs, 1)
        ]
        return self.watches.observed(
            NodesObservation(nodes, ()),
            own_nodes,
            asked_at_ms=self.now_ms,
            answered_at_ms=self.now_ms,
        )

    def pass_time(self, ms: int, *seqs: int | None, counting: int) -> Sequence[LostOwner]:
        """Poll for some time, in which the owner of one node commits before each poll."""
        lost: Sequence[LostOwner] = ()
        for _ in range(ms // POLL_EVERY_MS):
            self.now_ms += POLL_EVERY_MS
            seen = [*seqs]
            if counting:
                seen[counting - 1] = self.now_ms
            lost = self.poll(*seen)
        return lost


def owner(node: int, seq: int) -> OwnerObservation:
    return OwnerObservation(SessionId(node), seq)


@pytest.fixture
def polls() -> Polls:
    return Polls()


def test_owner_is_silent_and_then_lost_while_others_commit(polls: Polls) -> None:
    polls.poll(1, 1)
    assert not polls.pass_time(SILENT_AFTER_MS - POLL_EVERY_MS, 1, 1, counting=2)
    assert {} == polls.silent
    assert not polls.pass_time(POLL_EVERY_MS, 1, 1, counting=2)
    assert {1: EPOCH} == polls.silent
    lost = polls.pass_time(FENCE_AFTER_MS - SILENT_AFTER_MS, 1, 1, counting=2)
    assert [LostOwner(1, owner(1, 1))] == lost


def test_owner_is_lost_but_not_silent_if_nobody_commits(polls: Polls) -> None:
    polls.poll(1, 1)
    assert 2 == len(polls.pass_time(FENCE_AFTER_MS, 1, 1, counting=0))
    assert {} == polls.silent


def test_silent_owner_that_commits_is_not_silent(polls: Polls) -> None:
    polls.poll(1, 1)
    polls.pass_time(SILENT_AFTER_MS, 1, 1, counting=2)
    assert {1: EPOCH} == polls.silent
    polls.poll(2, 1)
    assert {} == polls.silent


def test_own_nodes_are_not_watched(polls: Polls) -> None:
    polls.poll(1, 1)
    polls.pass_time(FENCE_AFTER_MS - POLL_EVERY_MS, 1, 1, counting=2)
    polls.now_ms += POLL_EVERY_MS
    assert not polls.poll(1, 1, own_nodes=[1, 2])
    polls.now_ms += POLL_EVERY_MS
    assert not polls.poll(1, 1), "it is watched from the beginning"


def test_missed_poll_begins_anew(polls: Polls) -> None:
    polls.poll(1, 1)
    polls.pass_time(SILENT_AFTER_MS, 1, 1, counting=2)
    polls.watches.missed()
    assert {} == polls.silent
    assert not polls.pass_time(FENCE_AFTER_MS - POLL_EVERY_MS, 1, 1, counting=2)


def test_polls_are_hurried_for_a_while_after_a_node_lost_its_owner(polls: Polls) -> None:
    polls.poll(1, 1)
    assert POLL_EVERY_MS == polls.watches.poll_pause_ms(polls.now_ms)
    polls.poll(None, 1)
    assert HURRIED_POLL_MS == polls.watches.poll_pause_ms(polls.now_ms + HURRIED_MS - 1)
    assert POLL_EVERY_MS == polls.watches.poll_pause_ms(polls.now_ms + HURRIED_MS)
    polls.now_ms += HURRIED_MS
    polls.poll(None, 1)
    assert POLL_EVERY_MS == polls.watches.poll_pause_ms(polls.now_ms), "still the same node"
    polls.poll(None, None)
    assert HURRIED_POLL_MS == polls.watches.poll_pause_ms(polls.now_ms)
