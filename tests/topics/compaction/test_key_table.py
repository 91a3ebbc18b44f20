"""The key table finds what a dict finds, with as little memory as it is given."""

import errno
import os
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from kledger.batches.pacing import no_pause
from kledger.topics.compaction.key_hashes import hash_key_list
from kledger.topics.compaction.key_table import KeyTable

PLENTY = 64 << 20
MANY = [b"%d" % number for number in range(100)]
"""More keys than a table has without memory."""


def superseded(
    groups: list[list[bytes]], memory_bytes_max: int, folder: Path | str = "/tmp"
) -> tuple[list[int], int]:
    """Return what the table finds in keys that are numbered in order, and how many it spilled."""
    found = BitMap()
    table = KeyTable(found, str(folder), memory_bytes_max)
    number = 0
    for keys in groups:
        numbers = np.arange(number, number + len(keys), dtype=np.uint32)
        table.add(hash_key_list(keys), numbers)
        number += len(keys)
    table.finish(no_pause)
    return list(found), table.spilled_count


def expected_of(groups: list[list[bytes]]) -> list[int]:
    keys = [key for group in groups for key in group]
    newest = {key: number for number, key in enumerate(keys)}
    return [number for number, key in enumerate(keys) if newest[key] != number]


keys = st.integers(0, 30).map(b"%d".__mod__) | st.sampled_from([b"", b"x" * 64, b"x" * 65])


@given(st.lists(st.lists(keys, max_size=20), max_size=12), st.sampled_from([0, 1000, PLENTY]))
def test_any_keys_with_any_memory(groups: list[list[bytes]], memory_bytes_max: int) -> None:
    assert expected_of(groups) == superseded(groups, memory_bytes_max)[0]


def test_a_table_with_room_writes_no_file() -> None:
    groups = [[b"a", b"b"], [b"a"]]
    assert ([0], 0) == superseded(groups, PLENTY, "/nonexistent")


@pytest.mark.parametrize("memory_bytes_max", [100_000, 8_000])
def test_divisions_that_are_too_large_are_divided_again(memory_bytes_max: int) -> None:
    """10,000 keys take 1 MB; one of 256 divisions 10 KB, more than the smaller limit."""
    numbers = [number * 7919 % 10_000 for number in range(20_000)]
    groups = [[b"%d" % each for each in numbers[at : at + 500]] for at in range(0, 20_000, 500)]
    found, spilled = superseded(groups, memory_bytes_max)
    assert expected_of(groups) == found
    assert spilled >= 10_000


def test_keys_that_repeat_soon_are_not_spilled_each_time() -> None:
    groups = [[b"%d" % (number % 100)] for number in range(20_000)]
    found, spilled = superseded(groups, 30_000)
    assert (expected_of(groups), 0) == (found, spilled)


@pytest.mark.parametrize("size", [63, 64, 65, 10_000])
def test_no_key_is_taken_for_another(size: int) -> None:
    """A key may be the digest that stands for another one."""
    key = b"k" * size
    groups = [[key], [blake2b(key).digest()], [key[:-1]], [key + b"k"]]
    assert [] == superseded(groups, PLENTY)[0]
    assert [0] == superseded([*groups, [key]], PLENTY)[0]


def test_a_folder_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        superseded([MANY], 0, "/nonexistent")


def test_file_systems_without_nameless_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened = os.open

    def refusing(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "planted")
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", refusing)
    found, spilled = superseded([MANY, MANY], 0, tmp_path)
    assert list(range(len(MANY))) == found
    assert spilled
    assert [] == list(tmp_path.iterdir())
