"""Whether a store is idle: appends count, background work does not."""

from kledger.ledger.commits.committer import submitted
from kledger.ledger.commits.idle_watch import IDLE_MS, IdleWatch
from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.engine.memory import MemoryEngine
from kledger.runtime.manual_clock import ManualClock
from tests.ledger.committer_bench import Recorder, bench


async def test_a_store_is_idle_a_second_after_the_last_append() -> None:
    async with bench(MemoryEngine()) as on:
        clock = ManualClock()
        watch = IdleWatch(on.committer, clock)
        assert watch.is_idle()
        Recorder(on.committer).append()
        assert not watch.is_idle()
        clock.advance(IDLE_MS - 1)
        assert not watch.is_idle()
        clock.advance(1)
        assert watch.is_idle()
        await on.committer.flush()


async def test_background_work_leaves_a_store_idle() -> None:
    async with bench(MemoryEngine()) as on:
        watch = IdleWatch(on.committer, ManualClock())
        group = CommitGroup(entries=[(7, 0, b"x")])
        await submitted(lambda done: on.committer.submit_group(group, done))
        assert watch.is_idle()
        Recorder(on.committer).append()
        assert not watch.is_idle()
        await on.committer.flush()
