"""Storage that a test makes answer, without threads, so that every order of steps can be played.

What a store gives to its threads waits at a gate of the event loop instead. While a gate is open
the work is done at once.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from kledger.ledger.commits.committer import CommitFinished
from kledger.ledger.commits.store_threads import StoreThreads
from kledger.ledger.engine.base import CommitGroup, StorageEngine
from kledger.runtime.blocking import Arguments, Result

Token = TypeVar("Token")

TICKS_MAX = 1_000


class Gate:
    """Lets work through at once, or when it is opened again, in order."""

    def __init__(self) -> None:
        self.is_shut = False
        self._waiting: deque[Callable[[], None]] = deque()

    def shut(self) -> None:
        self.is_shut = True

    def open(self) -> None:
        self.is_shut = False
        while self._waiting:
            self._waiting.popleft()()

    def pass_on(self, work: Callable[[], None]) -> None:
        """Do it, now or later."""
        if self.is_shut:
            self._waiting.append(work)
        else:
            work()

    def drop(self) -> None:
        """Forget what waits."""
        self._waiting.clear()

    async def pass_through(self) -> None:
        """Wait while it is shut."""
        if self.is_shut:
            passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(lambda: None if passed.done() else passed.set_result(None))
            await passed


class Steps:
    """The gates of one store: what is read from the storage, and what is written."""

    def __init__(self) -> None:
        self.reads = Gate()
        self.writes = Gate()

    def open(self) -> None:
        self.reads.open()
        self.writes.open()

    def threads(self) -> StoreThreads:
        """Return what a store is opened with."""

        def start_commits(
            engine: StorageEngine, *, sync: bool, on_finished: CommitFinished[Token]
        ) -> _Commits[Token]:
            return _Commits(engine, self.writes, sync=sync, on_finished=on_finished)

        return StoreThreads(pool=lambda: _Pool(self.reads), commits=start_commits)


class _Pool:
    """A `BlockingRunner`."""

    def __init__(self, reads: Gate) -> None:
        self._reads = reads

    async def run(self, call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        await asyncio.sleep(0)
        if getattr(call, "__name__", "") == "read":
            await self._reads.pass_through()
        return call(*arguments)

    def yield_gil(self) -> None:
        """There are no other threads."""

    def close(self) -> None:
        """Nothing runs by itself."""


class _Commits(Generic[Token]):
    """A `CommitRunner`."""

    def __init__(
        self, engine: StorageEngine, writes: Gate, *, sync: bool, on_finished: CommitFinished[Token]
    ) -> None:
        self._engine = engine
        self._writes = writes
        self._sync = sync
        self._land = on_finished

    def submit(self, group: CommitGroup, token: Token) -> None:
        self._writes.pass_on(lambda: self._commit(group, token))

    def stop(self) -> None:
        self._writes.open()

    def abandon(self) -> None:
        self._writes.drop()

    def _commit(self, group: CommitGroup, token: Token) -> None:
        try:
            self._engine.commit(group, sync=self._sync)
        except Exception as error:  # noqa: BLE001 - whatever it is, the store decides on it
            self._land(token, error)
        else:
            self._land(token, None)


class NeverIdle(Exception):
    """The event loop always has something ready."""


async def until_idle() -> None:
    """Run the event loop until nothing is ready.

    Raises:
        NeverIdle: a callback is always ready.
    """
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    for _ in range(TICKS_MAX):
        await asyncio.sleep(0)
        if not ready:
            return
    raise NeverIdle
