"""The thread: order, errors, end."""

import threading
import weakref
from queue import SimpleQueue

from kledger.ledger.commits.committer import CommitThread
from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.engine.errors import StorageWriteFailed
from kledger.ledger.engine.faulty import FaultInjectingEngine


def group(entry_id: int) -> CommitGroup:
    return CommitGroup(entries=[(1, entry_id, b"x")])


def test_groups_land_in_order_with_their_tokens() -> None:
    landed: SimpleQueue[tuple[str, Exception | None]] = SimpleQueue()
    engine = FaultInjectingEngine(None)
    engine.fail_next("commit")
    thread: CommitThread[str] = CommitThread(
        engine, sync=True, on_finished=lambda token, error: landed.put((token, error))
    )
    thread.submit(group(0), "first")
    thread.submit(group(0), "second")
    thread.stop()
    first, second = landed.get_nowait(), landed.get_nowait()
    assert ("first", StorageWriteFailed) == (first[0], type(first[1]))
    assert ("second", None) == second
    assert (2, 1) == (engine.calls["commit"], engine.calls["sync"])


def test_commits_are_made_in_another_thread() -> None:
    names: SimpleQueue[str] = SimpleQueue()
    thread: CommitThread[int] = CommitThread(
        FaultInjectingEngine(None),
        sync=False,
        on_finished=lambda token, error: names.put(threading.current_thread().name),
    )
    thread.submit(group(0), 0)
    assert "committer" == names.get(timeout=60)
    thread.stop()


class Token:
    """Can be watched."""


def test_waiting_thread_keeps_nothing_of_the_last_group() -> None:
    """Its rows pinned the memory around them until something else was written."""
    gone = threading.Event()
    thread: CommitThread[Token] = CommitThread(
        FaultInjectingEngine(None), sync=False, on_finished=lambda token, error: None
    )
    token = Token()
    weakref.finalize(token, gone.set)
    thread.submit(group(0), token)
    del token
    assert gone.wait(60)
    thread.stop()


def test_stop_ends_a_thread_that_never_started_and_may_be_repeated() -> None:
    thread: CommitThread[int] = CommitThread(
        FaultInjectingEngine(None), sync=True, on_finished=lambda token, error: None
    )
    thread.stop()
    thread.submit(group(0), 1)
    thread.stop()
    thread.stop()


async def test_abandoned_thread_commits_nothing_that_it_has_not_begun() -> None:
    engine = FaultInjectingEngine(None)
    hold = engine.hold_next("commit")
    landed: SimpleQueue[str] = SimpleQueue()

    class Released(CommitThread[str]):
        """The held commit is released when the thread is stopped."""

        def stop(self) -> None:
            hold.release()
            super().stop()

    thread = Released(engine, sync=True, on_finished=lambda token, error: landed.put(token))
    thread.submit(group(0), "begun")
    await hold.reached()
    thread.submit(group(1), "waiting")
    thread.abandon()
    assert "begun" == landed.get_nowait()
    assert landed.empty()
    assert 1 == engine.calls["commit"]
