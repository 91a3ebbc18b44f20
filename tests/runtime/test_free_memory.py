"""Freed memory is returned to the operating system, at most once in a period."""

import asyncio
import subprocess
import sys
from queue import SimpleQueue

import pytest

from kledger.runtime.free_memory import (
    PERIOD_MS,
    FreeMemory,
    release_free_memory,
    release_object_memory,
)
from kledger.runtime.manual_clock import ManualClock
from kledger.runtime.tasks import Supervisor

BUFFERS = """
import resource
from kledger.runtime.free_memory import keep_freed_buffers

assert keep_freed_buffers()
faults = []
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    buffers = [bytes(2 << 20) + b"x" for _ in range(4)]
    del buffers
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(*faults)
"""
"""Prints how many pages it got for the buffers, each time."""


async def settle() -> None:
    """Run the tasks until they sleep or end; a trim runs in a thread."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_requests_within_a_period_are_served_together_at_its_end() -> None:
    clock, supervisor, calls = ManualClock(), Supervisor(), SimpleQueue[int]()
    memory = FreeMemory(clock, supervisor, give_back=lambda: calls.put(clock.monotonic_ms()))
    memory.give_back_soon()
    await settle()
    assert 0 == calls.get(timeout=60)
    for wait_ms in (1, PERIOD_MS - 2):
        clock.advance(wait_ms)
        memory.give_back_soon()
        await settle()
    assert calls.empty()
    clock.advance(1)
    await settle()
    assert PERIOD_MS == calls.get(timeout=60)
    clock.advance(2 * PERIOD_MS)
    await settle()
    assert calls.empty()
    memory.give_back_soon()
    await settle()
    assert 3 * PERIOD_MS == calls.get(timeout=60)
    memory.close()
    await supervisor.close()


async def test_a_request_that_waits_ends_with_the_close() -> None:
    clock, supervisor, calls = ManualClock(), Supervisor(), SimpleQueue[int]()
    memory = FreeMemory(clock, supervisor, give_back=lambda: calls.put(clock.monotonic_ms()))
    memory.give_back_soon()
    await settle()
    assert 0 == calls.get(timeout=60)
    memory.give_back_soon()
    await settle()
    memory.close()
    clock.advance(PERIOD_MS)
    await settle()
    assert (True, 0) == (calls.empty(), supervisor.task_count)


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


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_small_objects_go_back_although_attributes_were_looked_up_among_them() -> None:
    """CPython keeps names that it looked up: a few in each MiB kept all of it."""
    holders = [type("Holder", (), {})() for _ in range(1_000)]
    objects: list[object] = []
    for number in range(10_000):
        objects += [bytes(400) for _ in range(20)]
        name = f"{number:090}"
        objects.append(name)
        getattr(holders[number % 1_000], name, None)
    before = resident_bytes()
    objects.clear()
    release_object_memory()
    assert resident_bytes() < before - 60 * MIB


def test_calling_it_again_does_no_harm() -> None:
    for _ in range(2):
        release_free_memory()
        release_object_memory()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc")
def test_buffers_of_megabytes_keep_their_pages() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", BUFFERS], capture_output=True, text=True, check=True
    ).stdout
    _, second, third = map(int, printed.split())
    assert (True, True) == (second < 500, third < 500), printed
