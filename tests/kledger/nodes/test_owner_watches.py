"""What a server decides from its polls about the owners of other nodes."""

from collections.abc import Callable, Collection, Sequence

import pytest

from kledger.ledger.cluster import (
    POLL_EVERY_MS,
    NodesObservation,
    OwnerObservation,
    SessionBroker,
)
from kledger.ledger.cluster.database import SessionId
from kledger.ledger.cluster.nodes_database import (
    SERVER_LIVE_MS,
    DescribedNode,
    DescribedServer,
)
from kledger.ledger.cluster.session_state import FENCE_AFTER_MS, SILENT_AFTER_MS
from kledger.nodes.owner_watches import HURRIED_MS, HURRIED_POLL_MS, LostOwner, OwnerWatches

EPOCH = 7


class Polls:
    """Polls that see, of each node, the number of its owner's last commit; None: no owner."""

    def __init__(self) -> None:
        self.silent: dict[int, int] = {}
        self.watches = OwnerWatches(self.silent)
        self.now_ms = 100_000

    def poll(
        self,
        *seqs: int | None,
        own_nodes: Collection[int] = (),
        preferred: int | None = None,
        servers: Sequence[DescribedServer] | None = None,
    ) -> Sequence[LostOwner]:
        nodes = [
            DescribedNode(
                node, EPOCH, None if seq is None else owner(node, seq), node, 0, preferred
            )
            for node, seq in enumerate(seqs, 1)
        ]
        return self.watches.observed(
            NodesObservation(nodes, [server(1)] if servers is None else servers),
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


def server(server_id: int, silent_ms: int = 0, *, is_draining: bool = False) -> DescribedServer:
    return DescribedServer(SessionBroker(server_id), is_draining, silent_ms)


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


CHANGES: dict[str, Callable[[Polls], object]] = {
    "a node lost its owner": lambda polls: polls.poll(None, 1),
    "another server prefers a node": lambda polls: polls.poll(1, 1, preferred=2),
    "a server has come": lambda polls: polls.poll(1, 1, servers=[server(1), server(2)]),
    "a server is draining": lambda polls: polls.poll(1, 1, servers=[server(1, is_draining=True)]),
    "a server is dead": lambda polls: polls.poll(1, 1, servers=[server(1, SERVER_LIVE_MS)]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_polls_are_hurried_for_a_while_after_what_may_move_nodes(
    polls: Polls, change: Callable[[Polls], object]
) -> None:
    polls.poll(1, 1)
    polls.now_ms += HURRIED_MS
    polls.poll(1, 1)
    assert POLL_EVERY_MS == polls.watches.poll_pause_ms(polls.now_ms)
    change(polls)
    assert HURRIED_POLL_MS == polls.watches.poll_pause_ms(polls.now_ms + HURRIED_MS - 1)
    assert POLL_EVERY_MS == polls.watches.poll_pause_ms(polls.now_ms + HURRIED_MS)


def test_others_hurry_when_each_has_polled_since_the_first_change(polls: Polls) -> None:
    polls.poll(1, 1)
    polls.now_ms += POLL_EVERY_MS - 1
    polls.poll(None, 1)
    assert not polls.watches.do_others_hurry(polls.now_ms)
    polls.now_ms += 1
    assert polls.watches.do_others_hurry(polls.now_ms), "they hurry since the first change"
    polls.now_ms += HURRIED_MS
    polls.poll(1, 1)
    assert not polls.watches.do_others_hurry(polls.now_ms)
