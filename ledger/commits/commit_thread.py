"""Commit thread: the one thread in which groups are written and synced.

Rule: as little Python as can be; every line here takes the interpreter away from the event loop.
Must not know: what is in a group, what happens with the outcome.
"""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Generic, TypeAlias, TypeVar

from kledger.ledger.engine.base import CommitGroup, StorageEngine

Token = TypeVar("Token")
CommitFinished: TypeAlias = Callable[[Token, Exception | None], None]


class CommitThread(Generic[Token]):
    """Commits one group after the other; starts with the first."""

    def __init__(
        self, engine: StorageEngine, *, sync: bool, on_finished: CommitFinished[Token]
    ) -> None:
        """Make an idle one.

        Args:
            engine: where to commit.
            sync: passed on to every commit.
            on_finished: called in the thread with the token of a group and its error, if it has
                one.
        """
        self._engine = engine
        self._sync = sync
        self._on_finished = on_finished
        self._queue: SimpleQueue[tuple[CommitGroup, Token] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._is_abandoned = False

    def submit(self, group: CommitGroup, token: Token) -> None:
        """Commit a group behind those submitted before."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name="committer", daemon=True)
            self._thread.start()
        self._queue.put((group, token))

    def stop(self) -> None:
        """End the thread after what it has in hand; blocks until then. May be repeated."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()

    def abandon(self) -> None:
        """End the thread after what it has begun; what it has not begun is never committed."""
        self._is_abandoned = True
        self.stop()

    def _run(self) -> None:
        get, commit, sync, on_finished = (
            self._queue.get,
            self._engine.commit,
            self._sync,
            self._on_finished,
        )
        while (job := get()) is not None:
            if self._is_abandoned:
                continue
            group, token = job
            try:
                commit(group, sync=sync)
            except Exception as error:  # noqa: BLE001 - whatever it is, the loop decides on it
                on_finished(token, error)
            else:
                on_finished(token, None)
