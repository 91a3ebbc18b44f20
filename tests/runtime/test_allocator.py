"""Freed memory goes back."""

import sys

import pytest

from kledger.runtime.allocator import release_free_memory

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
