"""Freed memory is returned to the operating system, at most once in a period."""

import asyncio
import sys

import pytest

from kledger.runtime.free_memory import PERIOD_MS, FreeMemory, release_free_memory
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


MIB = 1024 * 1024


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="glibc keeps memory, others are not known")
def test_free_memory_between_buffers_that_are_in_use_goes_back() -> None:
    """Every block has a neighbour that stays, so nothing goes back by itself."""
    mapped = bytes(2 * MIB)  # once freed, buffers of a megabyte are not mapped one by one
    del mapped
    buffers = [bytearray(MIB) for _ in range(200)]
    kept = buffers[::20]
    buffers.clear()
    before = resident_bytes()
    assert release_free_memory()
    assert resident_bytes() < before - 100 * MIB
    assert 10 == len(kept)


def test_calling_it_again_does_no_harm() -> None:
    for _ in range(2):
        release_free_memory()
