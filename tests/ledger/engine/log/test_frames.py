"""Frames round trip, and a flipped bit is always detected."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.ledger.engine.base import CommitGroup, Move
from kledger.ledger.engine.log import frames
from kledger.ledger.engine.log.frames import (
    COMMIT_SIZE,
    HEADER_SIZE,
    INLINE_BYTES_MAX,
    FrameDamaged,
    GroupEncoder,
    check_entry,
    data_of_entry,
    decode_commit,
    decode_drops,
    decode_header,
    decode_moves,
    decode_rows,
    encode_drops,
    encode_moves,
    encode_rows,
)

ids = st.integers(0, 2**63 - 1)
data = st.one_of(st.binary(max_size=200), st.just(bytes(INLINE_BYTES_MAX + 1)))
row = st.tuples(st.binary(max_size=40), st.none() | st.binary(max_size=60))
groups = st.builds(
    CommitGroup,
    entries=st.lists(st.tuples(ids, ids, data), max_size=6),
    rows=st.lists(row, max_size=6),
    drops=st.lists(ids, max_size=6),
)


def encoded(group: CommitGroup, *, file: int = 3, position: int = 0, number: int = 9) -> bytes:
    return b"".join(GroupEncoder().encode(group, file, position, number, number - 1))


def decoded(raw: bytes, *, file: int = 3, position: int = 0) -> CommitGroup:
    """Read the frames of a group one by one, and check its commit frame against them."""
    group, crcs, at = CommitGroup(), [], 0
    while frames.frame_kind(raw[at : at + 4]) != frames.COMMIT:
        header = decode_header(raw[at : at + HEADER_SIZE], file=file, position=position + at)
        body = raw[at + HEADER_SIZE : at + HEADER_SIZE + header.body_length]
        if header.kind == frames.ENTRY:
            group.entries.append((header.ledger_id, header.entry_id, body))
        elif header.kind == frames.ROWS:
            group.rows += decode_rows(body)
        elif header.kind == frames.DROP:
            group.drops += decode_drops(body)
        else:
            group.moves = decode_moves(body, group.entries)
        crcs.append(header.header_crc)
        at += HEADER_SIZE + header.body_length
    commit = decode_commit(raw[at:], file=file, position=position + at)
    assert (len(crcs), 9, 8, at, frames.sum_checksums(crcs)) == commit
    assert len(raw) == at + COMMIT_SIZE
    return group


@given(groups, st.integers(0, 2**32 - 1), st.integers(0, 2**28))
def test_group_round_trips(group: CommitGroup, file: int, position: int) -> None:
    raw = encoded(group, file=file, position=position)
    assert group == decoded(raw, file=file, position=position)


@given(st.lists(groups, max_size=5))
def test_one_encoder_serves_many_groups(many: list[CommitGroup]) -> None:
    """The scratch is used again, and grows and shrinks between groups of any size."""
    encoder = GroupEncoder()
    for group in many:
        raw = b"".join(encoder.encode(group, 3, 0, 9, 8))
        assert len(raw) == encoder.size
        assert encoder.frame_count == len(group.entries) + bool(group.rows) + bool(group.drops)
        assert group == decoded(raw)


@given(st.lists(row))
def test_rows_round_trip(rows: list[tuple[bytes, bytes | None]]) -> None:
    assert rows == decode_rows(encode_rows(rows))


@given(st.lists(ids))
def test_drops_round_trip(drops: list[int]) -> None:
    assert drops == decode_drops(encode_drops(drops))


@given(st.binary(max_size=80))
def test_garbage_rows_end_in_one_error(raw: bytes) -> None:
    try:
        rows = decode_rows(raw)
    except FrameDamaged:
        return
    assert raw == encode_rows(rows) or any(value is None for _, value in rows)


def test_rows_cut_anywhere_are_damaged_or_fewer() -> None:
    raw = encode_rows([(b"key", b"value"), (b"deleted", None)])
    whole = {0: [], 16: [(b"key", b"value")]}
    for end in range(len(raw)):
        if end in whole:
            assert whole[end] == decode_rows(raw[:end])
        else:
            with pytest.raises(FrameDamaged, match="cut"):
                decode_rows(raw[:end])


def test_drops_of_odd_length_are_damaged() -> None:
    with pytest.raises(FrameDamaged, match="9 bytes"):
        decode_drops(bytes(9))


locations = st.tuples(st.integers(1, 3), st.integers(0, 2**32 - 1))


@given(st.lists(st.tuples(st.booleans(), locations), max_size=12))
def test_group_with_moves_round_trips(chosen: list[tuple[bool, tuple[int, int]]]) -> None:
    """New entries are mixed with moved ones from any files."""
    group = CommitGroup(entries=[(7, number, b"data") for number in range(len(chosen))])
    group.moves = [
        Move(7, number, *location) for number, (is_old, location) in enumerate(chosen) if is_old
    ]
    found = decoded(encoded(group))
    assert (group.entries, [*group.moves]) == (found.entries, [*found.moves])


def test_moves_of_neighbours_take_four_bytes_each() -> None:
    """What a move costs must not make up a share of the log that is worth another move."""
    entries = [(7, number, b"") for number in range(256)]
    moves = [Move(7, number, 3, 40 * number) for number in range(256)]
    assert 12 + 4 * 256 == len(encode_moves(moves, entries))


def test_moves_cut_anywhere_or_of_other_entries_are_damaged() -> None:
    entries = [(7, number, b"") for number in range(4)]
    moves = [Move(7, 0, 3, 5), Move(7, 1, 3, 6), Move(7, 3, 2, 5)]
    raw = encode_moves(moves, entries)
    assert moves == decode_moves(raw, entries)
    whole = {0: [], 20: moves[:2]}
    for end in range(len(raw)):
        if end in whole:
            assert whole[end] == decode_moves(raw[:end], entries)
        else:
            with pytest.raises(FrameDamaged, match="cut"):
                decode_moves(raw[:end], entries)
    with pytest.raises(FrameDamaged, match="1 moves from entry 3"):
        decode_moves(raw, entries[:3])


def test_large_data_is_not_copied() -> None:
    large = bytearray(INLINE_BYTES_MAX + 1)
    buffers = GroupEncoder().encode(CommitGroup(entries=[(1, 2, large)]), 1, 0, 1, 0)
    assert [HEADER_SIZE, len(large), COMMIT_SIZE] == [len(each) for each in buffers]
    assert buffers[1] is large


def test_small_groups_are_one_buffer() -> None:
    entries = [(1, number, b"x" * INLINE_BYTES_MAX) for number in range(20)]
    assert 1 == len(GroupEncoder().encode(CommitGroup(entries=[*entries]), 1, 0, 1, 0))


def test_very_large_scratch_is_freed() -> None:
    encoder = GroupEncoder()
    entries = [(1, number, b"x" * INLINE_BYTES_MAX) for number in range(400)]
    encoder.encode(CommitGroup(entries=[*entries]), 1, 0, 1, 0)
    assert len(encoder._scratch) > frames.SCRATCH_KEPT_BYTES_MAX
    encoder.encode(CommitGroup(entries=[*entries[:8]]), 1, 0, 1, 0)
    assert len(encoder._scratch) < frames.SCRATCH_KEPT_BYTES_MAX


def checked(raw: bytes | bytearray, **elsewhere: int) -> memoryview:
    """Check a frame as that of entry 5:6 with four bytes at the beginning of file 3."""
    at = {"file": 3, "position": 0, "length": 4, "ledger_id": 5, "entry_id": 6} | elsewhere
    location, ids = (at["position"], at["length"]), (at["ledger_id"], at["entry_id"])
    among_others = memoryview(b"before" + raw)
    data = data_of_entry(among_others, 6, at["file"], location, ids)
    try:
        found = check_entry(memoryview(raw), at["file"], location, ids)
    except FrameDamaged:
        assert data is None
        raise
    assert found == data
    return found


def test_any_flipped_bit_of_an_entry_frame_is_noticed() -> None:
    raw = encoded(CommitGroup(entries=[(5, 6, b"data")]))[:-COMMIT_SIZE]
    assert b"data" == bytes(checked(raw))
    for bit in range(len(raw) * 8):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FrameDamaged):
            checked(flipped)


def test_entry_frame_that_is_cut_is_damaged() -> None:
    raw = encoded(CommitGroup(entries=[(5, 6, b"data")]))[:-COMMIT_SIZE]
    for end in range(len(raw)):
        with pytest.raises(FrameDamaged, match="ends inside"):
            checked(raw[:end])


def test_any_flipped_bit_of_a_commit_frame_is_noticed() -> None:
    raw = encoded(CommitGroup())
    for bit in range(len(raw) * 8):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FrameDamaged):
            decode_commit(flipped, file=3, position=0)


@pytest.mark.parametrize("name", ["file", "position", "length", "ledger_id", "entry_id"])
def test_frame_of_another_position_or_entry_is_refused(name: str) -> None:
    raw = encoded(CommitGroup(entries=[(5, 6, b"data")]))[:-COMMIT_SIZE]
    elsewhere = {name: 3 if name == "length" else 40}
    with pytest.raises(FrameDamaged):
        checked(raw, **elsewhere)


def test_frame_of_another_kind_is_refused() -> None:
    raw = encoded(CommitGroup(rows=[(b"k", b"v")]))[:-COMMIT_SIZE]
    with pytest.raises(FrameDamaged, match="holds 0:0"):
        checked(raw, length=len(raw) - HEADER_SIZE)
    with pytest.raises(FrameDamaged):
        decode_header(encoded(CommitGroup()) + bytes(8), file=3, position=0)


def test_commit_mark_begins_every_commit_frame() -> None:
    assert encoded(CommitGroup(), file=77).startswith(frames.commit_mark(77))
    marks = [frames.commit_mark(file) for file in range(5)]
    assert all(left != right for left, right in pairwise(marks))
