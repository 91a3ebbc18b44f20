"""OwnerWatches: which owners of nodes seem to be lost, from what the polls of a server show.

Rule: pure; it decides from observations and the time alone. An owner is fenced as a standby fences
it. Before that it is silent: it leads nothing for clients until its node has the next owner.
Servers poll more often after whatever may move nodes, and a hand-over waits until all of them do.
Owners that this server has itself are not watched.
Must not know: databases, how an owner is fenced.
"""

from collections.abc import Collection, MutableMapping, Sequence
from typing import Final, NamedTuple

from kledger.ledger.cluster import (
    POLL_EVERY_MS,
    DescribedNode,
    NodesObservation,
    OwnerObservation,
    OwnerWatch,
    WatchStep,
)

HURRIED_POLL_MS: Final = 100
"""Between polls when nodes are about to move: others see the end of an owner so much later."""
HURRIED_MS: Final = 10_000
"""How long servers poll so often after the last change."""
OTHERS_COMMIT_WITHIN_MS: Final = 2_000
"""An owner commits at least once a second, and is polled twice."""


class LostOwner(NamedTuple):
    """The owner of a node that is to be fenced."""

    node: int
    owner: OwnerObservation


class OwnerWatches:
    """The owners of all nodes but those of this server."""

    def __init__(self, silent: MutableMapping[int, int]) -> None:
        """Begin without any.

        Args:
            silent: kept up to date: nodes whose owner has not committed for `SILENT_AFTER_MS`, and
                its epoch, until it commits again.
        """
        self._silent = silent
        self._watches: dict[int, OwnerWatch] = {}
        self._owners: dict[int, OwnerObservation | None] = {}
        self._committed_at_ms = 0
        """When a poll last showed that any owner has committed or changed."""
        self._moves: object = None
        """What moves nodes, as the last poll showed it."""
        self._hurried_since_ms = 0
        self._hurried_until_ms = 0

    def observed(
        self,
        observed: NodesObservation,
        own_nodes: Collection[int],
        *,
        asked_at_ms: int,
        answered_at_ms: int,
    ) -> Sequence[LostOwner]:
        """Take the answer to a poll; return the owners that are to be fenced, in each poll anew.

        Args:
            observed: the answer.
            own_nodes: that this server owns, or claims.
            asked_at_ms: when the poll was sent; the answer is not older.
            answered_at_ms: when the answer arrived.
        """
        owners = {each.node: each.owner for each in observed.nodes}
        if owners != self._owners:
            self._owners, self._committed_at_ms = owners, answered_at_ms
        lost = []
        for each in observed.nodes:
            if each.node in own_nodes:
                self.forget(each.node)
                continue
            watch = self._watches.setdefault(each.node, OwnerWatch())
            step = watch.observed(
                each.owner, asked_at_ms=asked_at_ms, answered_at_ms=answered_at_ms
            )
            if each.owner is None:
                continue
            self._note_silence(each, watch, answered_at_ms)
            if step is WatchStep.FENCE:
                lost.append(LostOwner(each.node, each.owner))
        self._note_moves(observed, answered_at_ms)
        return lost

    def missed(self) -> None:
        """Begin anew: the database did not answer, so owners could not commit."""
        self._watches.clear()
        self._silent.clear()

    def forget(self, node: int) -> None:
        """Begin anew with a node."""
        self._watches.pop(node, None)

    def poll_pause_ms(self, now_ms: int) -> int:
        """Return the time until the next poll: short after whatever may move nodes."""
        return HURRIED_POLL_MS if now_ms < self._hurried_until_ms else POLL_EVERY_MS

    def do_others_hurry(self, now_ms: int) -> bool:
        """Return whether all servers have polled since something changed that may move nodes."""
        return now_ms - self._hurried_since_ms >= POLL_EVERY_MS

    def _note_silence(self, node: DescribedNode, watch: OwnerWatch, now_ms: int) -> None:
        """Note whether the owner of a node seems to be lost.

        It is not if nobody commits: then the database takes no commits, and owners can be read.
        """
        others_commit = now_ms - self._committed_at_ms < OTHERS_COMMIT_WITHIN_MS
        if watch.is_silent(now_ms) and others_commit:
            self._silent[node.node] = node.epoch
        elif self._silent.get(node.node) == node.epoch:
            del self._silent[node.node]

    def _note_moves(self, observed: NodesObservation, now_ms: int) -> None:
        """Note a change of what moves nodes: an owner's end, other servers, a preferred server."""
        moves = (
            {
                each.node
                for each in observed.nodes
                if each.owner is None or self._silent.get(each.node) == each.epoch
            },
            [each.preferred for each in observed.nodes],
            [(each.server.broker_id, each.is_live, each.is_draining) for each in observed.servers],
        )
        if moves == self._moves:
            return
        if now_ms >= self._hurried_until_ms:
            self._hurried_since_ms = now_ms
        self._moves, self._hurried_until_ms = moves, now_ms + HURRIED_MS
