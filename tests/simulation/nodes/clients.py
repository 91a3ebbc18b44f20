"""Clients of a simulated cluster of nodes: they append, commit offsets, drop ledgers, and read.

Rule: a client asks any owner that serves a node, also one that was fenced and does not know it yet:
clients know old addresses. What has no answer within a while has an unknown outcome for ever.
Must not know: servers, faults.
"""

import asyncio
from contextlib import suppress
from functools import partial
from random import Random

from kledger.ledger.engine.errors import StorageError
from tests.simulation.nodes.node_history import LedgerHistory, LedgerState, NodeHistory
from tests.simulation.nodes.servers import (
    NodeCluster,
    NodeOwner,
    NodeRequest,
    NotAcknowledged,
    RequestRefused,
)

TIMEOUT_S = 30.0
LEDGERS = 3


class NodeClients:
    """All clients."""

    def __init__(self, cluster: NodeCluster, random: Random, *, asks_newest: bool) -> None:
        """Args: asks_newest: owners are fenced only as their rules say, so newest means newest."""
        self.requests = self.acknowledged = self.reads = 0
        self._cluster = cluster
        self._random = random
        self._asks_newest = asks_newest
        for history in cluster.histories.values():
            for _ in range(LEDGERS):
                history.new_ledger()

    async def work(self) -> None:
        """Make one request."""
        random, serving = self._random, self._cluster.serving
        if not serving:
            return
        owner = random.choice(serving)
        history = self._cluster.histories[owner.node]
        ledger = random.choice(history.live())
        dice = random.random()
        if dice < 0.6:
            await self._append(owner, history, ledger)
        elif dice < 0.7 and not history.ledgers[ledger].is_committing:
            await self._commit_offset(owner, history, ledger)
        elif dice < 0.75 and not history.ledgers[ledger].requests:
            await self._drop(owner, history, ledger)
        else:
            await self._read(owner, history, ledger)

    def ask_newest(self) -> None:
        """Ask all owners what is newest; one that stands still answers before anything else."""
        for owner in self._cluster.serving if self._asks_newest else ():
            history = self._cluster.histories[owner.node]
            for ledger in history.live():
                owner.process.go_on(partial(self._ask_newest, owner, history, ledger))

    async def _append(self, owner: NodeOwner, history: NodeHistory, ledger: int) -> None:
        value = b"%d." % self.requests * self._random.choice((1, 1, 10))
        known = history.ledgers[ledger]
        try:
            answer = await self._ask(owner, known, NodeRequest(ledger, value=value))
        except RequestRefused:
            history.refuse(ledger, value)
            return
        if answer is not None:
            epoch, entry_id = answer
            history.acknowledge(epoch, ledger, entry_id, value)

    async def _commit_offset(self, owner: NodeOwner, history: NodeHistory, ledger: int) -> None:
        known = history.ledgers[ledger]
        known.sent_offset = offset = known.sent_offset + 1
        known.is_committing = True  # requests overtake each other
        answer = None
        with suppress(RequestRefused):
            answer = await self._ask(owner, known, NodeRequest(ledger, offset=offset))
        known.is_committing = False
        if answer is not None:
            history.acknowledge_offset(answer[0], ledger, offset)

    async def _drop(self, owner: NodeOwner, history: NodeHistory, ledger: int) -> None:
        known = history.ledgers[ledger]
        known.state = LedgerState.DROPPING
        history.new_ledger()
        with suppress(RequestRefused):
            if await self._ask(owner, known, NodeRequest(ledger, is_drop=True)) is not None:
                known.state = LedgerState.DROPPED

    async def _read(self, owner: NodeOwner, history: NodeHistory, ledger: int) -> None:
        answer: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()
        ask = partial(owner.read, ledger, answer)
        self._cluster.schedule.work(partial(owner.process.go_on, ask))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                values = await answer
        except (StorageError, TimeoutError):
            return
        self.reads += 1
        for entry_id, value in enumerate(values):
            history.see(ledger, entry_id, value)

    def _ask_newest(self, owner: NodeOwner, history: NodeHistory, ledger: int) -> None:
        known = history.ledgers[ledger]
        if known.state is LedgerState.LIVE and owner.opened.is_current():
            last_entry, offset = owner.opened.last_entry(ledger), owner.offset_of(ledger)
            history.newest(ledger, last_entry, offset)

    async def _ask(
        self, owner: NodeOwner, known: LedgerHistory, request: NodeRequest
    ) -> tuple[int, int] | None:
        """Return the answer; None: the outcome is unknown. Raises RequestRefused."""
        self.requests += 1
        known.requests += 1
        ask = partial(owner.request, request)
        self._cluster.schedule.work(partial(owner.process.go_on, ask))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                answer = await request.answer
        except NotAcknowledged as error:
            known.requests -= 1
            if isinstance(error, RequestRefused):
                raise
            return None
        except TimeoutError:
            return None  # it counts as under way for ever
        known.requests -= 1
        self.acknowledged += 1
        return answer
