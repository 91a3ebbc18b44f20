"""Hashes of keys depend on the key alone, and on all of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.topics.compaction.key_hashes import PADDING, hash_key_list, hash_keys

keys = st.binary(max_size=70) | st.builds(bytes, st.integers(0, 70))


def hashes_of(some: list[bytes]) -> list[tuple[int, int]]:
    high, low = hash_key_list(some)
    return list(zip(high.tolist(), low.tolist(), strict=True))


@given(st.lists(keys, max_size=20))
def test_equal_keys_and_only_these_have_equal_hashes(some: list[bytes]) -> None:
    found = hashes_of(some)
    assert len(set(some)) == len(set(found))
    assert [hashes_of([key])[0] for key in some] == found


@given(st.lists(keys, min_size=1, max_size=8), st.integers(0, 9), st.binary(max_size=9))
def test_what_lies_around_a_key_changes_nothing(
    some: list[bytes], before: int, between: bytes
) -> None:
    buffer = bytearray(before)
    starts = []
    for key in some:
        starts.append(len(buffer))
        buffer += key + between
    lengths = np.array([len(key) for key in some])
    high, low = hash_keys(bytes(buffer) + PADDING, np.array(starts), lengths)
    assert hashes_of(some) == list(zip(high.tolist(), low.tolist(), strict=True))


@pytest.mark.parametrize("size", [1, 4, 5, 8, 12, 36, 63, 64, 65, 1000])
def test_every_bit_of_a_key_counts_in_both_halves(size: int) -> None:
    key = b"k" * size
    (high, low), *others = hashes_of([
        key, *(bytes(each ^ bit * (at == index) for index, each in enumerate(key))
               for at in range(size) for bit in (1, 128)),
    ])  # fmt: skip
    assert high not in [other for other, _ in others]
    assert low not in [other for _, other in others]


def test_zeros_at_the_end_count() -> None:
    assert 71 == len(set(hashes_of([bytes(size) for size in range(71)])))
