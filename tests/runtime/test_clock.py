"""The machine's clock keeps the Clock protocol."""

from kledger.runtime.clock import Clock, SystemClock


async def test_system_clock_sleep_lets_monotonic_time_pass() -> None:
    clock: Clock = SystemClock()
    before = clock.monotonic_ms()
    await clock.sleep(5)
    assert clock.monotonic_ms() - before >= 4


async def test_system_clock_sleep_of_nothing_returns() -> None:
    await SystemClock().sleep(-3)


def test_system_clock_now_is_in_milliseconds() -> None:
    assert 1_600_000_000_000 < SystemClock().now_ms() < 10_000_000_000_000
