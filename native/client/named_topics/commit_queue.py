"""CommitQueue: sends the commits of a subscriber, those that come together in one call.

Rule: commits are decided in the order in which they were made. One call is in flight; later commits
are in the next one. The result of a commit is known when it is durable.
Must not know: how a call is sent, what a commit means.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeAlias

from kledger.named_topics.model import CommitOutcome
from kledger.native.errors import KledgerError
from kledger.runtime.tasks import Supervisor

COMMITS_PER_CALL_MAX = 10_000


class PendingCommit(NamedTuple):
    """One commit whose result is not known; `offset` as in `ChannelCommit`."""

    channel: int
    offset: int
    outcome: asyncio.Future[CommitOutcome]


Send: TypeAlias = Callable[[Sequence[PendingCommit]], Awaitable[Sequence[CommitOutcome]]]


class CommitQueue:
    """Of one subscriber."""

    def __init__(self, send: Send, supervisor: Supervisor) -> None:
        """Args: send: makes one call; may raise KledgerError."""
        self._send = send
        self._supervisor = supervisor
        self._waiting: deque[PendingCommit] = deque()
        self._task: asyncio.Task[None] | None = None

    def add(self, channel: int, offset: int) -> asyncio.Future[CommitOutcome]:
        """Queue a commit; return the future of its outcome."""
        outcome: asyncio.Future[CommitOutcome] = asyncio.get_running_loop().create_future()
        self._waiting.append(PendingCommit(channel, offset, outcome))
        if self._task is None:
            self._task = self._supervisor.spawn(self._run(), "commits of a subscriber")
        return outcome

    async def finish(self) -> None:
        """Wait for the end of all commits."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        sending: Sequence[PendingCommit] = ()
        try:
            while self._waiting:
                count = min(len(self._waiting), COMMITS_PER_CALL_MAX)
                sending = [self._waiting.popleft() for _ in range(count)]
                try:
                    outcomes = await self._send(sending)
                except KledgerError as error:
                    for each in sending:
                        if not each.outcome.done():
                            each.outcome.set_exception(error)
                else:
                    for each, outcome in zip(sending, outcomes, strict=True):
                        if not each.outcome.done():
                            each.outcome.set_result(outcome)
        finally:
            self._task = None
            for each in [*sending, *self._waiting]:  # the client was closed
                each.outcome.cancel()
            self._waiting.clear()
