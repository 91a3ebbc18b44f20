"""The timer between appends: due, not due any more, stopped, and after a failure."""

import pytest

from kledger.ledger.config import ManagedLedgerConfig
from kledger.ledger.handle.rollover_timer import RolloverTimer
from kledger.ledger.handle.write_tail_state import WriteTailState
from kledger.ledger.testing import ManualClock
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from tests.ledger.words import pos, settled

CONFIG = ManagedLedgerConfig(max_rollover_ms=1_000_000, inactive_rollover_ms=100)


class Bench:
    """A tail with one entry, and how often the timer rolled it over."""

    def __init__(self, clock: ManualClock, config: ManagedLedgerConfig = CONFIG) -> None:
        self.clock = clock
        self.rolled = 0
        self.tail = WriteTailState(config)
        self.tail.open_ledger(5, before=pos("4:9"), now_ms=clock.monotonic_ms())
        self.tail.next_entry = 1
        timers = Timers(clock, Supervisor())
        self.timer = RolloverTimer(self.tail, timers=timers, clock=clock, roll=self.roll)

    def roll(self) -> None:
        self.rolled += 1

    async def after(self, ms: int) -> int:
        await settled(self.clock, ms)
        return self.rolled


@pytest.fixture
def bench(clock: ManualClock) -> Bench:
    return Bench(clock)


async def test_it_waits_for_the_deadline(bench: Bench) -> None:
    bench.timer.restart()
    assert [0, 1, 1] == [await bench.after(ms) for ms in (99, 1, 500)]


async def test_it_waits_on_after_an_append(bench: Bench) -> None:
    bench.timer.restart()
    await bench.after(60)
    bench.tail.active_ms = 60
    assert [0, 0, 1] == [await bench.after(ms) for ms in (40, 59, 1)]


async def test_an_empty_ledger_has_no_timer(bench: Bench) -> None:
    bench.tail.next_entry = 0
    bench.timer.restart()
    assert 0 == await bench.after(5_000_000)


async def test_without_limits_there_is_no_timer(clock: ManualClock) -> None:
    bench = Bench(clock, ManagedLedgerConfig(max_rollover_ms=-1))
    bench.timer.restart()
    assert (0, 0) == (await bench.after(1 << 40), clock.sleeper_count)


async def test_a_stopped_timer_is_silent(bench: Bench) -> None:
    bench.timer.restart()
    bench.timer.stop()
    bench.timer.stop()
    assert 0 == await bench.after(500)


async def test_a_delay_is_for_deadlines_that_have_passed(bench: Bench) -> None:
    await bench.after(700)
    bench.timer.restart(delay_ms=1000)
    assert [0, 1] == [await bench.after(ms) for ms in (999, 1)]
    bench.tail.active_ms = 1700 + 5000
    bench.timer.restart(delay_ms=1000)
    assert [1, 2] == [await bench.after(ms) for ms in (5099, 1)]
