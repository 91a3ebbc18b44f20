"""What is read for many records at once is what is read record by record."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kledger.batches.buffers import Buffer
from kledger.batches.errors import CorruptBatch
from kledger.batches.record import append_record, locate_fields, write_varint
from kledger.topics.compaction.key_hashes import PADDING
from kledger.topics.compaction.record_heads import (
    RecordHeads,
    is_regular,
    read_heads,
    read_time_deltas,
    walk_records,
)
from kledger.topics.compaction.record_index import read_keys

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
Groups = list[tuple[int, bytes | None, bytes | None, int]]
sizes = st.sampled_from([0, 1, 5, 63, 64, 200])
keys = st.none() | st.builds(lambda size: b"k" * size, sizes | st.just(8191))
values = st.none() | st.builds(lambda size: b"v" * size, sizes | st.just(9000))
some_records = st.tuples(
    st.integers(-70, 70) | INT64, keys, values, st.sampled_from([1, 2, 17, 40, 700])
)
"""Timestamp delta, key, value, and how often it is repeated."""


def body_of(groups: Groups) -> tuple[bytes, int]:
    """Return records and their number; offset deltas count up, so they get longer."""
    pieces: list[Buffer] = []
    count = 0
    for time, key, value, repeated in groups:
        for _ in range(repeated):
            append_record(pieces, key, value, (), time, count, 0)
            count += 1
    return b"".join(pieces), count


def heads_of(body: bytes, count: int) -> tuple[RecordHeads, int] | None:
    """Return the heads, and where the last record ends."""
    padded = body + PADDING
    octets = np.frombuffer(padded, np.uint8)
    bounds = walk_records(body, octets, 0, count)
    if bounds is None:
        return None
    heads = read_heads(octets, bounds)
    return None if heads is None else (heads, int(bounds[-1]))


def check_same(body: bytes, count: int) -> None:
    """Compare with `read_keys`, which has the last word on what is damaged."""
    found = heads_of(body, count)
    if found is None:
        return
    heads, end = found
    starts, lengths = heads.key_starts.tolist(), heads.key_sizes.tolist()
    read = [body[start : start + size] for start, size in zip(starts, lengths, strict=True)]
    expected = read_keys(body, 0, count)
    assert expected == (read, heads.keyless.tolist(), heads.tombstones.tolist(), end)


@given(st.lists(some_records, min_size=1, max_size=6))
@example([(0, b"k" * 12, b"v", 700), (63, b"k" * 12, b"v", 700), (64, None, None, 700)])
def test_all_records_are_read_as_one_by_one(
    groups: Groups,
) -> None:
    body, count = body_of(groups)
    assert heads_of(body, count) is not None
    check_same(body, count)


@given(
    st.lists(some_records, min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 1 << 20), st.binary(min_size=1, max_size=4)), max_size=3),
    st.integers(0, 3),
)
def test_damaged_records_are_left_or_read_as_one_by_one(
    groups: Groups,
    damages: list[tuple[int, bytes]],
    cut: int,
) -> None:
    whole, count = body_of(groups)
    body = bytearray(whole[: len(whole) - cut])
    for where, bytes_there in damages:
        at = where % len(body)
        body[at : at + len(bytes_there)] = bytes_there
    check_same(bytes(body), count)


@given(st.binary(max_size=80), st.integers(1, 20))
def test_anything_is_left_or_read_as_one_by_one(body: bytes, count: int) -> None:
    check_same(body, count)


def test_a_key_with_a_size_of_three_bytes_is_left() -> None:
    assert heads_of(*body_of([(0, b"k" * 8192, b"", 1)])) is None


@pytest.mark.parametrize("field", ["time", "offset"])
def test_a_varint_of_eleven_bytes_is_left(field: str) -> None:
    """`read_keys` passes over it, as it does not read times and offsets."""
    times, offsets = (b"\x80" * 10, b"") if field == "time" else (b"", b"\x80" * 10)
    content = b"\0" + times + b"\0" + offsets + b"\0" + b"\x02k\x02v\0"
    body = bytearray()
    write_varint(body, len(content))
    body += content
    assert [b"k"] == read_keys(bytes(body), 0, 1)[0]
    assert heads_of(bytes(body), 1) is None


def test_records_whose_lengths_change_all_the_time() -> None:
    """The search for records of the same length finds few again and again."""
    groups: Groups = [(0, b"k", b"v" * (number // 2 % 3), 1) for number in range(5000)]
    check_same(*body_of(groups))
    assert heads_of(*body_of(groups)) is not None


def test_a_walk_that_runs_past_the_end_has_no_result() -> None:
    body, count = body_of([(0, b"k", b"v", 100)])
    octets = np.frombuffer(body, np.uint8)
    assert walk_records(body, octets, 0, count + 1) is None
    with pytest.raises(CorruptBatch):
        read_keys(body, 0, count + 1)


@given(st.lists(some_records, min_size=1, max_size=6))
def test_timestamp_deltas_are_those_of_the_records(
    groups: Groups,
) -> None:
    body, count = body_of(groups)
    octets = np.frombuffer(body, np.uint8)
    bounds = walk_records(body, octets, 0, count)
    assert bounds is not None
    expected = [locate_fields(body, begin).timestamp_delta for begin in bounds[:-1].tolist()]
    assert expected == read_time_deltas(octets, bounds[:-1]).tolist()


def test_a_batch_is_regular_if_most_of_its_first_records_are_as_long_as_the_first() -> None:
    def is_so(*value_sizes: int) -> bool:
        body, _ = body_of([(0, b"k", b"v" * size, 1) for size in value_sizes])
        return is_regular(np.frombuffer(body, np.uint8), len(value_sizes))

    assert is_so(5, 5, 5)
    assert is_so(200, 200, 200, 5)
    assert not is_so(5, 5, 6, 6)
    assert not is_so(5, 6, 5, 6)
