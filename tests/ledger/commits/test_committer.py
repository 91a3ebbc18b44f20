"""The committer: groups, order, where they are committed, and what becomes of failures."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from itertools import count
from queue import SimpleQueue

import pytest

from kledger.ledger.commits.committer import LAZY_ROWS_MAX, UNSYNCED_BYTES_MAX, Committer, submitted
from kledger.ledger.engine.base import CommitGroup, Move
from kledger.ledger.engine.errors import StorageWriteFailed, SyncFailed
from kledger.ledger.engine.memory import MemoryEngine
from kledger.ledger.errors import Fenced, LedgerError, StorageFailed
from kledger.ledger.storage_health import StorageHealth
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.runtime.blocking import BlockingPool
from kledger.runtime.metrics import Metrics
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from tests.ledger.committer_bench import IN_MEMORY, Bench, Recorder, WatchedEngine, bench
from tests.ledger.words import settled


async def test_operations_of_one_tick_are_one_group() -> None:
    engine = FaultyEngine(None)
    async with bench(engine) as on:
        recorder = Recorder(on.committer)
        for _ in range(50):
            recorder.append()
        await on.committer.flush()
        assert [f"confirm {n}" for n in range(50)] + ["group_confirmed"] == recorder.calls
        assert (1, 1) == (engine.calls["commit"], engine.calls["sync"])


@asynccontextmanager
async def waiting_group(
    engine: WatchedEngine, clock: ManualClock
) -> AsyncIterator[tuple[Bench, Recorder]]:
    """A committer, and the submitter of its first entry, which waits for 100 ms."""
    engine.delay_ms = 100
    async with bench(engine, clock=clock) as on:
        recorder = Recorder(on.committer)
        recorder.append()
        await settled(clock)
        yield on, recorder


async def test_group_waits_for_more_as_long_as_the_engine_says() -> None:
    engine, clock = WatchedEngine(), ManualClock()
    async with waiting_group(engine, clock) as (on, recorder):
        await settled(clock, 99)
        recorder.append()
        on.committer.submit_rows([(b"a", b"1")], lambda error: None)
        await settled(clock)
        assert [] == engine.threads
        await settled(clock, 1)
        await on.committer.flush()
        assert ["confirm 0", "confirm 1", "group_confirmed"] == recorder.calls
        assert 1 == len(engine.threads)


async def test_group_of_rows_does_not_wait() -> None:
    engine = WatchedEngine()
    engine.delay_ms = 100
    async with bench(engine) as on:
        on.committer.submit_rows([(b"a", b"1")], lambda error: None)
        await on.committer.flush()
        assert b"1" == engine.get(b"a")


async def test_group_that_waits_when_the_committer_stops_is_not_committed() -> None:
    engine, clock = WatchedEngine(), ManualClock()
    async with waiting_group(engine, clock) as (on, recorder):
        on.committer.stop(Fenced("a test"))
        await settled(clock, 1_000)
        assert ["revert", "fail 0 Fenced", "resume"] == recorder.calls
        assert [] == engine.threads


async def test_lazy_rows_wait_for_the_next_needed_group() -> None:
    """They begin none, neither when idle nor after a group, and are confirmed in order."""
    engine = FaultyEngine(None)
    async with bench(engine) as on:
        recorder = Recorder(on.committer)

        def lazily(error: LedgerError | None) -> None:
            recorder.calls.append(f"lazy {error}")

        on.committer.submit_rows_lazily([(b"a", b"1")], lazily)
        await settled(ManualClock())
        assert 0 == engine.calls["commit"]
        hold = engine.hold_next("commit")
        recorder.append()
        await hold.reached()
        on.committer.submit_rows_lazily([(b"a", b"2")], lazily)
        confirmed = asyncio.Event()
        recorder.on_confirm = lambda _: confirmed.set()
        hold.release()
        await confirmed.wait()
        await settled(ManualClock())
        assert ["lazy None", "confirm 0", "group_confirmed"] == recorder.calls
        assert (1, b"1") == (engine.calls["commit"], engine.get(b"a"))
        await on.committer.flush()
        assert (2, b"2") == (engine.calls["commit"], engine.get(b"a"))


async def test_many_lazy_rows_are_need_enough() -> None:
    engine = WatchedEngine()
    async with bench(engine, on_loop_bytes_max=IN_MEMORY) as on:
        for number in range(LAZY_ROWS_MAX + 1):
            assert [] == engine.threads
            on.committer.submit_rows_lazily([(b"%d" % number, b"")], lambda error: None)
        await asyncio.sleep(0)
        assert ["loop"] == engine.threads


async def test_lazy_rows_do_not_block_on_drained() -> None:
    """A waiter for room in the queue is called although lazy rows wait in it."""
    async with bench(MemoryEngine(), on_loop_bytes_max=IN_MEMORY) as on:
        drained: list[int] = []
        on.committer.submit_rows_lazily([(b"a", b"")], lambda error: None)
        on.committer.on_drained(lambda: drained.append(1))
        await asyncio.sleep(0)
        assert [1] == drained


@pytest.mark.parametrize("is_busy", [False, True])
async def test_lazy_rows_that_fill_the_queue_are_committed_when_a_producer_waits(
    is_busy: bool,
) -> None:
    """A queue that is smaller than a few lazy rows held its producers for ever."""
    engine = FaultyEngine(None)
    hold = engine.hold_next("commit")
    async with bench(engine, queue_bytes_max=80) as on:
        drained = asyncio.Event()
        if is_busy:
            Recorder(on.committer).append()
            await hold.reached()
        else:
            hold.release()
        on.committer.submit_rows_lazily([(b"a", b"x" * 60)], lambda error: None)
        on.committer.submit_rows_lazily([(b"b", b"x" * 60)], lambda error: None)
        assert on.committer.is_saturated
        on.committer.on_drained(drained.set)
        hold.release()
        async with asyncio.timeout(60):
            await drained.wait()
        assert not on.committer.is_saturated


async def test_the_next_group_collects_while_one_is_in_flight() -> None:
    engine = FaultyEngine(None)
    hold = engine.hold_next("commit")
    async with bench(engine) as on:
        recorder = Recorder(on.committer)
        recorder.append()
        await hold.reached()
        for _ in range(3):
            recorder.append()
            await asyncio.sleep(0)
        assert ([], 40, 4) == (
            recorder.calls,
            on.committer.queued_bytes,
            on.committer.queued_count,
        )
        hold.release()
        await on.committer.flush()
        assert [
            "confirm 0",
            "group_confirmed",
            *("confirm 1", "confirm 2", "confirm 3"),
            "group_confirmed",
        ] == recorder.calls
        assert (2, 0, 0) == (
            engine.calls["commit"],
            on.committer.queued_bytes,
            on.committer.queued_count,
        )


async def test_order_holds_across_submitters() -> None:
    async with bench(MemoryEngine(), on_loop_bytes_max=IN_MEMORY) as on:
        order: list[object] = []
        one, other = Recorder(on.committer, "one", 1), Recorder(on.committer, "other", 2)
        one.on_confirm = lambda entry_id: order.append(("one", entry_id))
        other.on_confirm = lambda entry_id: order.append(("other", entry_id))
        one.append()
        on.committer.submit_rows([(b"k", b"v")], order.append)
        other.append()
        one.append()
        await on.committer.flush()
        assert [("one", 0), None, ("other", 0), ("one", 1)] == order


async def test_a_barrier_does_not_overtake_the_group_before_it() -> None:
    engine = FaultyEngine(None)
    hold = engine.hold_next("commit")
    async with bench(engine) as on:
        order: list[object] = []
        recorder = Recorder(on.committer)
        recorder.on_confirm = order.append
        recorder.append()
        await hold.reached()
        on.committer.submit_rows([], lambda error: order.append("barrier"))
        await asyncio.sleep(0)
        hold.release()
        await on.committer.flush()
        assert [0, "barrier"] == order


async def test_an_unwritten_group_fails_with_all_later_ones_in_three_rounds() -> None:
    """All submitters are reverted, then all operations fail in order, then all are resumed."""
    engine = FaultyEngine(None)
    hold = engine.hold_next("commit")
    async with bench(engine) as on:
        recorder = Recorder(on.committer)
        rows: list[LedgerError | None] = []
        recorder.append()
        await hold.reached()
        recorder.append()
        on.committer.submit_rows([(b"k", b"v")], rows.append)
        recorder.append()
        hold.fail()
        await on.committer.flush()
        assert [
            "revert",
            "fail 0 StorageFailed",
            "fail 1 StorageFailed",
            "fail 2 StorageFailed",
            "resume",
        ] == recorder.calls
        assert [StorageFailed] == [type(error) for error in rows]
        recorder.calls.clear()
        recorder.append()
        await on.committer.flush()
        assert ["confirm 3", "group_confirmed"] == recorder.calls
        assert [] == on.fatal


async def test_operations_submitted_by_a_failure_callback_are_committed_later() -> None:
    engine = FaultyEngine(None)
    engine.fail_next("commit")
    async with bench(engine) as on:
        order: list[object] = []

        def again(error: LedgerError | None) -> None:
            order.append("failed")
            on.committer.submit_rows([], lambda error: order.append("again"))

        on.committer.submit_rows([(b"a", b"")], again)
        on.committer.submit_rows([(b"b", b"")], lambda error: order.append("also failed"))
        await on.committer.flush()
        await on.committer.flush()
        assert ["failed", "also failed", "again"] == order


async def test_a_failed_sync_stops_for_good() -> None:
    engine = FaultyEngine(None)
    hold = engine.hold_next("sync")
    async with bench(engine) as on:
        recorder = Recorder(on.committer)
        recorder.append()
        await hold.reached()
        recorder.append()
        hold.fail()
        await on.committer.flush()
        assert ["revert", "fail 0 Fenced", "fail 1 Fenced", "resume"] == recorder.calls
        assert [Fenced] == [type(error) for error in on.fatal]
        assert on.committer.fatal is on.fatal[0]
        with pytest.raises(Fenced):
            on.committer.submit_rows([(b"k", b"v")], lambda error: None)
        assert 1 == engine.calls["commit"]


async def test_a_group_written_after_the_stop_is_not_reported_twice() -> None:
    engine = FaultyEngine(None)
    hold = engine.hold_next("commit")
    async with bench(engine) as on:
        recorder = Recorder(on.committer)
        recorder.append()
        await hold.reached()
        recorder.append()
        on.committer.stop(Fenced("another store"))
        assert ["revert", "fail 0 Fenced", "fail 1 Fenced", "resume"] == recorder.calls
        hold.release()
        await on.committer.close()
        await asyncio.sleep(0)
        on.committer.stop(Fenced("once more"))
        assert 4 == len(recorder.calls)
        assert ["another store"] == [str(error) for error in on.fatal]


async def test_a_group_that_cannot_be_indexed_stops_for_good() -> None:
    engine = WatchedEngine()
    async with bench(engine, on_loop_bytes_max=IN_MEMORY) as on:
        recorder = Recorder(on.committer)
        engine.index_error = RuntimeError("the index is broken")
        recorder.append()
        await on.committer.flush()
        assert ["revert", "fail 0 Fenced", "resume"] == recorder.calls
        assert 1 == len(on.fatal)


async def test_an_unknown_error_of_a_commit_stops_for_good() -> None:
    engine = WatchedEngine()

    def broken() -> None:
        raise RuntimeError("a bug")

    engine.on_commit = broken
    async with bench(engine, on_loop_bytes_max=IN_MEMORY) as on:
        Recorder(on.committer).append()
        await on.committer.flush()
        assert "a bug" in str(on.committer.fatal)


@pytest.mark.parametrize(
    ("sync", "on_loop_bytes_max", "size", "expected"),
    [
        (False, 1000, 999, "loop"),
        (False, 1000, 1000, "thread"),
        (True, 0, 1, "thread"),
        (True, IN_MEMORY, 1 << 20, "loop"),
    ],
)
async def test_small_groups_are_committed_on_the_loop(
    *, sync: bool, on_loop_bytes_max: int, size: int, expected: str
) -> None:
    engine = WatchedEngine()
    async with bench(engine, sync=sync, on_loop_bytes_max=on_loop_bytes_max) as on:
        Recorder(on.committer).append(size)
        await on.committer.flush()
        assert [expected] == engine.threads


async def test_the_group_after_a_slow_one_is_committed_in_the_thread() -> None:
    engine, clock = WatchedEngine(), ManualClock()
    async with bench(engine, sync=False, on_loop_bytes_max=1000, clock=clock) as on:
        recorder = Recorder(on.committer)
        engine.on_commit = lambda: clock.advance(3)
        recorder.append()
        await on.committer.flush()
        engine.on_commit = lambda: None
        for _ in range(2):
            recorder.append()
            await on.committer.flush()
        assert ["loop", "thread", "loop"] == engine.threads


async def test_groups_are_committed_in_the_thread_while_the_engine_is_behind() -> None:
    """The engine then syncs in `commit`, which would hold up the loop."""
    engine = WatchedEngine()
    async with bench(engine, sync=False, on_loop_bytes_max=1000) as on:
        recorder = Recorder(on.committer)
        for engine.is_behind in (False, True, False):
            recorder.append()
            await on.committer.flush()
        assert ["loop", "thread", "loop"] == engine.threads


async def test_a_group_with_moves_is_committed_in_the_thread() -> None:
    """The engine looks up the old locations of the entries, which may need a disk."""
    engine = WatchedEngine()
    async with bench(engine, sync=False, on_loop_bytes_max=1000) as on:
        moved = CommitGroup(entries=[(7, 0, b"x")], moves=[Move(7, 0, 1, 0)])
        on.committer.submit_group(moved, lambda _error: None)
        await on.committer.flush()
        assert ["thread"] == engine.threads


@pytest.mark.parametrize("on_loop_bytes_max", [0, IN_MEMORY])
async def test_groups_that_need_no_sync_wait_for_the_next_one(on_loop_bytes_max: int) -> None:
    """A sync covers what was written before it; it must not have to write very much."""
    syncs: list[bool] = []

    class Watched(MemoryEngine):
        def commit(self, group: CommitGroup, *, sync: bool) -> None:
            syncs.append(sync)
            super().commit(group, sync=sync)

    async with bench(Watched(), on_loop_bytes_max=on_loop_bytes_max) as on:
        recorder, entry_ids = Recorder(on.committer, ledger_id=2), count()

        def submit(size: int) -> Awaitable[None]:
            entry = (1, next(entry_ids), bytes(size))
            group = CommitGroup(entries=[entry], needs_sync=False)
            return asyncio.ensure_future(
                submitted(lambda done: on.committer.submit_group(group, done))
            )

        for expected, sizes, appends in (
            (False, [100], 0),
            (True, [100], 1),
            (True, [], 1),
            (False, [UNSYNCED_BYTES_MAX - 100], 0),
            (False, [50, 50], 0),
            (True, [1], 0),
            (False, [UNSYNCED_BYTES_MAX], 0),
            (True, [], 1),
            (False, [UNSYNCED_BYTES_MAX], 0),
        ):
            waiting = [submit(size) for size in sizes]
            await asyncio.sleep(0)  # both are submitted in the next tick
            for _ in range(appends):
                recorder.append()
            await asyncio.gather(*waiting)
            if appends:
                await on.committer.flush()
            assert [expected] == syncs, (sizes, appends)
            syncs.clear()


async def test_what_came_while_the_thread_was_busy_is_committed_without_a_sync_too() -> None:
    engine = FaultyEngine(None)
    hold = engine.hold_next("commit")
    async with bench(engine, sync=False) as on:
        recorder = Recorder(on.committer)
        recorder.append()
        await hold.reached()
        recorder.append()
        await asyncio.sleep(0)
        hold.release()
        await on.committer.flush()
        assert ["confirm 0", "group_confirmed", "confirm 1", "group_confirmed"] == recorder.calls
        assert 0 == engine.calls["sync"]


@pytest.mark.parametrize(
    ("limits", "count"), [({"queue_bytes_max": 100}, 11), ({"queue_count_max": 4}, 5)]
)
async def test_back_pressure(limits: dict[str, int], count: int) -> None:
    engine = FaultyEngine(None)
    hold = engine.hold_next("commit")
    async with bench(engine, **limits) as on:  # type: ignore[arg-type]
        recorder = Recorder(on.committer)
        drained: list[bool] = []
        recorder.append()
        await hold.reached()
        for _ in range(count - 2):
            recorder.append()
        assert not on.committer.is_saturated
        recorder.append()
        assert on.committer.is_saturated
        on.committer.on_drained(lambda: drained.append(on.committer.is_saturated))
        await asyncio.sleep(0)
        assert [] == drained
        hold.release()
        await on.committer.flush()
        assert [False] == drained


async def test_drained_is_called_although_nothing_is_queued() -> None:
    async with bench(MemoryEngine()) as on:
        drained: list[int] = []
        on.committer.on_drained(lambda: drained.append(1))
        assert [] == drained
        await asyncio.sleep(0)
        assert [1] == drained


async def test_drained_is_called_after_a_stop() -> None:
    """A connection that waits for room must learn that the store has stopped."""
    engine = FaultyEngine(None)
    hold = engine.hold_next("sync")
    async with bench(engine, queue_count_max=1) as on:
        recorder = Recorder(on.committer)
        drained: list[int] = []
        recorder.append()
        await hold.reached()
        recorder.append()
        on.committer.on_drained(lambda: drained.append(1))
        hold.fail()
        await on.committer.flush()
        await asyncio.sleep(0)
        assert [1] == drained


async def test_flush_of_an_idle_committer_makes_no_group() -> None:
    engine = WatchedEngine()
    async with bench(engine, on_loop_bytes_max=IN_MEMORY) as on:
        await on.committer.flush()
        on.committer.submit_rows([], lambda error: None)
        await on.committer.flush()
        assert ([], []) == (engine.threads, on.fatal)


async def test_a_checkpoint_runs_beside_the_groups() -> None:
    engine = WatchedEngine()
    threads: list[bool] = []
    engine.on_checkpoint = lambda: threads.append(
        threading.current_thread() is threading.main_thread()
    )
    async with bench(engine, on_loop_bytes_max=IN_MEMORY) as on:
        recorder = Recorder(on.committer)
        engine.wants_checkpoint = True
        recorder.append()
        await on.committer.flush()
        await on.committer.close()
        assert [False] == threads


@pytest.mark.parametrize(
    ("error", "stops"), [(StorageWriteFailed("full", full=True), False), (SyncFailed("no"), True)]
)
async def test_a_checkpoint_that_fails(error: Exception, *, stops: bool) -> None:
    engine = WatchedEngine()

    def fail() -> None:
        raise error

    engine.on_checkpoint = fail
    async with bench(engine, on_loop_bytes_max=IN_MEMORY) as on:
        engine.wants_checkpoint = True
        Recorder(on.committer).append()
        await on.committer.flush()
        await on.committer.close()
        assert stops == bool(on.fatal)


async def test_a_checkpoint_that_is_requested_follows_the_one_that_runs() -> None:
    """The running one may have begun before groups that the caller wants to have in the index."""
    engine = WatchedEngine()
    count, begun, go_on = SimpleQueue[None](), threading.Event(), threading.Event()

    def checkpoint() -> None:
        count.put(None)
        begun.set()
        assert go_on.wait(60)

    engine.on_checkpoint = checkpoint
    async with bench(engine, on_loop_bytes_max=IN_MEMORY) as on:
        engine.wants_checkpoint = True
        Recorder(on.committer).append()
        await on.committer.flush()
        await asyncio.to_thread(begun.wait, 60)
        requested = asyncio.ensure_future(on.committer.checkpoint())
        await asyncio.sleep(0)
        assert 1 == count.qsize()
        go_on.set()
        await requested
        assert 2 == count.qsize()


async def test_a_group_finished_after_the_loop_closed_is_only_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = FaultyEngine(None)

    def lose_a_loop() -> None:
        async def detach() -> None:
            hold = engine.hold_next("commit")
            supervisor = Supervisor()
            committer = Committer(
                engine,
                sync=True,
                on_loop_bytes_max=0,
                queue_bytes_max=1,
                queue_count_max=1,
                clock=ManualClock(),
                pool=BlockingPool(1),
                supervisor=supervisor,
                timers=Timers(ManualClock(), supervisor),
                on_fatal=lambda error: None,
                health=StorageHealth(ManualClock(), Metrics()),
            )
            left.append((committer, hold))
            Recorder(committer).append()
            await hold.reached()

        asyncio.run(detach())

    left: list[tuple[Committer, object]] = []
    pool = BlockingPool(1)
    await pool.run(lose_a_loop)
    committer, hold = left[0]
    hold.release()  # type: ignore[attr-defined]
    await pool.run(committer._thread.stop)
    pool.close()
    assert "the event loop closed" in caplog.text
