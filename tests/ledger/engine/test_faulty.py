"""Faults happen once, at their operation, and leave the inner engine as real ones would."""

import asyncio
import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from kledger.ledger.engine.errors import StorageError, StorageWriteFailed, SyncFailed
from kledger.ledger.engine.faulty import FaultInjectingEngine
from kledger.ledger.engine.memory import MemoryEngine
from tests.ledger.engine.words import entry_count, group_of, payload, store


@pytest.fixture(params=["memory", "disk"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FaultInjectingEngine]:
    made = FaultInjectingEngine(None if request.param == "memory" else tmp_path)
    yield made
    made.close()


class Attempt:
    """A call in a thread of its own, and how it ended."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self.error: BaseException | None = None
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except (RuntimeError, StorageError) as error:
            self.error = error

    def end(self) -> BaseException | None:
        """Wait; returns what it raised."""
        self._thread.join()
        return self.error


def test_given_engine_is_used() -> None:
    inner = MemoryEngine(keeps_groups=True)
    store(FaultInjectingEngine(inner), group_of(0))
    assert 1 == entry_count(inner)


def test_operations_are_counted_when_they_begin(engine: FaultInjectingEngine) -> None:
    store(engine, group_of(0), group_of(1))
    store(engine, group_of(2), sync=False)
    engine.read(7, 0, 2, 100)
    engine.get(b"count")
    engine.checkpoint()
    assert {"commit": 3, "sync": 2, "read": 1} == engine.calls
    engine.fail_next("commit")
    with pytest.raises(StorageWriteFailed):
        engine.commit(group_of(3), sync=True)
    assert {"commit": 4, "sync": 2, "read": 1} == engine.calls


def test_failed_commit_leaves_nothing_and_is_used_up(engine: FaultInjectingEngine) -> None:
    engine.fail_next("commit")
    with pytest.raises(StorageWriteFailed, match="injected into commit") as failed:
        engine.commit(group_of(0), sync=True)
    assert not failed.value.full
    store(engine, group_of(0))
    assert 1 == entry_count(engine)


def test_injected_os_error_is_translated_as_an_engine_does(engine: FaultInjectingEngine) -> None:
    engine.fail_next("commit", OSError(errno.ENOSPC, "full"))
    with pytest.raises(StorageWriteFailed) as failed:
        engine.commit(group_of(0), sync=True)
    assert failed.value.full
    engine.fail_next("read", OSError(errno.EIO, "broken"))
    with pytest.raises(StorageError, match="broken"):
        engine.read(7, 0, 0, 1)


def test_other_injected_error_is_raised_unchanged(engine: FaultInjectingEngine) -> None:
    error = ValueError("a bug in the engine")
    engine.fail_next("read", error)
    with pytest.raises(ValueError, match="a bug") as failed:
        engine.read(7, 0, 0, 1)
    assert error is failed.value


def test_failed_sync_ends_everything_until_the_unsynced_is_dropped(
    engine: FaultInjectingEngine,
) -> None:
    store(engine, group_of(0))
    engine.fail_next("sync")
    with pytest.raises(SyncFailed):
        engine.commit(group_of(1), sync=True)
    for call in (
        lambda: engine.commit(group_of(1), sync=True),
        lambda: engine.read(7, 0, 0, 1),
        engine.checkpoint,
    ):
        with pytest.raises(SyncFailed):
            call()
    engine.drop_unsynced()
    assert 1 == entry_count(engine)
    store(engine, group_of(1))
    assert 2 == entry_count(engine)


def test_any_error_injected_into_a_sync_is_a_failed_sync(engine: FaultInjectingEngine) -> None:
    engine.fail_next("sync", ValueError("odd"))
    with pytest.raises(SyncFailed, match="odd"):
        engine.commit(group_of(0), sync=True)


def test_faults_of_one_kind_are_used_in_order(engine: FaultInjectingEngine) -> None:
    engine.fail_next("commit", OSError(errno.EIO, "first"))
    engine.fail_next("commit", OSError(errno.EIO, "second"))
    for text in ("first", "second"):
        with pytest.raises(StorageWriteFailed, match=text):
            engine.commit(group_of(0), sync=False)
    store(engine, group_of(0))


def test_delay_passes(engine: FaultInjectingEngine) -> None:
    engine.delay_next("commit", 1)
    store(engine, group_of(0))
    assert 1 == entry_count(engine)


def test_unknown_operation_is_refused(engine: FaultInjectingEngine) -> None:
    with pytest.raises(AssertionError):
        engine.fail_next("index")  # type: ignore[arg-type]


@pytest.mark.parametrize("op", ["commit", "sync"])
async def test_held_commit_does_not_block_reads(engine: FaultInjectingEngine, op: str) -> None:
    store(engine, group_of(0))
    hold = engine.hold_next(op)  # type: ignore[arg-type]
    group = group_of(1)
    attempt = Attempt(lambda: engine.commit(group, sync=True))
    await hold.reached()
    await hold.reached()

    assert [payload(0)] == engine.read(7, 0, 0, 100)
    hold.release()
    assert attempt.end() is None
    engine.index(group)
    assert 2 == entry_count(engine)


async def test_held_read_does_not_block_commits(engine: FaultInjectingEngine) -> None:
    store(engine, group_of(0))
    hold = engine.hold_next("read")
    attempt = Attempt(lambda: engine.read(7, 0, 0, 100))
    await hold.reached()
    store(engine, group_of(1))
    hold.release()
    assert attempt.end() is None
    assert 2 == entry_count(engine)


async def test_held_commit_can_fail(engine: FaultInjectingEngine) -> None:
    hold = engine.hold_next("commit")
    attempt = Attempt(lambda: engine.commit(group_of(0), sync=True))
    await hold.reached()
    hold.fail(OSError(errno.ENOSPC, "full"))
    hold.fail()
    hold.release()
    error = attempt.end()
    assert isinstance(error, StorageWriteFailed)
    assert error.full


async def test_several_tasks_wait_for_one_hold(engine: FaultInjectingEngine) -> None:
    hold = engine.hold_next("commit")
    waiting = asyncio.gather(hold.reached(), hold.reached())
    await asyncio.sleep(0)
    attempt = Attempt(lambda: engine.commit(group_of(0), sync=False))
    await waiting
    hold.release()
    assert attempt.end() is None


async def test_hold_released_before_it_is_reached_is_passed(engine: FaultInjectingEngine) -> None:
    hold = engine.hold_next("commit")
    hold.release()
    store(engine, group_of(0))
    await hold.reached()


def test_program_without_a_loop_waits_for_a_held_operation(engine: FaultInjectingEngine) -> None:
    hold = engine.hold_next("commit")
    with pytest.raises(TimeoutError, match="no commit began within 1 ms"):
        hold.wait_reached(timeout_ms=1)
    attempt = Attempt(lambda: engine.commit(group_of(0), sync=False))
    hold.wait_reached()
    assert hold.is_waiting
    hold.release()
    assert attempt.end() is None


def test_disarmed_engine_has_no_fault_left(engine: FaultInjectingEngine) -> None:
    hold = engine.hold_next("commit")
    engine.fail_next("commit")
    engine.fail_next("sync")
    attempt = Attempt(lambda: engine.commit(group_of(0), sync=True))
    hold.wait_reached()
    engine.disarm()
    assert attempt.end() is None
    engine.commit(group_of(1), sync=True)


async def test_hold_on_the_event_loop_raises_instead_of_hanging(
    engine: FaultInjectingEngine,
) -> None:
    engine.hold_next("commit")
    with pytest.raises(RuntimeError, match="helper thread"):
        engine.commit(group_of(0), sync=False)
    assert engine.needs_thread


@pytest.mark.parametrize("op", ["commit", "sync", "read"])
async def test_held_operation_ends_with_the_life_of_its_store(
    engine: FaultInjectingEngine, op: str
) -> None:
    store(engine, group_of(0))
    hold = engine.hold_next(op)  # type: ignore[arg-type]
    attempt = Attempt(
        lambda: engine.read(7, 0, 0, 1) if op == "read" else engine.commit(group_of(1), sync=True)
    )
    await hold.reached()
    engine.drop_unsynced()

    assert isinstance(attempt.end(), StorageError)
    assert 1 == entry_count(engine)
    store(engine, group_of(1))
    assert 2 == entry_count(engine)


async def test_close_fails_held_operations(engine: FaultInjectingEngine) -> None:
    hold = engine.hold_next("commit")
    attempt = Attempt(lambda: engine.commit(group_of(0), sync=True))
    await hold.reached()
    engine.close()
    assert isinstance(attempt.end(), StorageError)


def test_drop_of_unsynced_takes_exactly_that(engine: FaultInjectingEngine) -> None:
    store(engine, group_of(0), group_of(1))
    store(engine, group_of(2), group_of(3), sync=False)
    assert 4 == entry_count(engine)
    engine.drop_unsynced()
    assert 2 == entry_count(engine)
    engine.drop_unsynced()
    assert 2 == entry_count(engine)


def test_checkpoint_is_a_sync(engine: FaultInjectingEngine) -> None:
    store(engine, group_of(0), group_of(1), sync=False)
    engine.checkpoint()
    store(engine, group_of(2), sync=False)
    engine.drop_unsynced()
    assert 2 == entry_count(engine)
