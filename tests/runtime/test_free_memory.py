"""Freed memory goes back at most once in a period."""

import asyncio

from kledger.runtime.free_memory import PERIOD_MS, FreeMemory
from kledger.runtime.manual_clock import ManualClock
from kledger.runtime.tasks import Supervisor


async def test_it_is_given_back_once_in_a_period() -> None:
    clock, supervisor, calls = ManualClock(), Supervisor(), list[int]()
    memory = FreeMemory(clock, supervisor, give_back=lambda: calls.append(clock.monotonic_ms()))
    for _ in range(2):
        for wait_ms in (0, PERIOD_MS - 1, 1):
            clock.advance(wait_ms)
            memory.give_back_soon()
            await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
    assert [0, PERIOD_MS, 2 * PERIOD_MS] == calls
    memory.close()
    await supervisor.close()
