"""The objects of a ledger: read back what was written, or Corrupt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.ledger.errors import Corrupt, InvalidArgument
from kledger.ledger.offload.object_layout import (
    BLOCK_OVERHEAD,
    DATA_HEADER_BYTES,
    LayoutWriter,
    LedgerIndex,
    data_name,
    decode_index,
    index_name,
)
from tests.ledger.offload.object_words import FIRST, LEDGER, SECOND, entries_of, numbered, written

ENTRIES = st.lists(st.binary(max_size=60), min_size=1, max_size=30)
BLOCK_BYTES = st.integers(BLOCK_OVERHEAD + 1, 300)


def test_names_have_the_attempt_and_the_ledger() -> None:
    assert data_name(7, FIRST) == "00000000-0000-0000-0000-000000000001-ledger-7"
    assert index_name(7, FIRST) == "00000000-0000-0000-0000-000000000001-ledger-7-index"


@given(
    entries=ENTRIES, block_bytes=BLOCK_BYTES, extra=st.binary(max_size=20), step=st.integers(1, 9)
)
def test_entries_are_read_back(
    entries: list[bytes], block_bytes: int, extra: bytes, step: int
) -> None:
    """However many entries are added at once, the objects are the same."""
    writer = LayoutWriter(LEDGER, FIRST, block_bytes=block_bytes)
    parts = [writer.header()]
    for first in range(0, len(entries), step):
        parts += map(bytes, writer.add(entries[first : first + step]))
    data = b"".join([*parts, *writer.finish()])
    index = decode_index(writer.index(extra).encode(), LEDGER, FIRST)
    assert entries == entries_of(data, index)
    assert (len(entries), sum(map(len, entries))) == (index.entries, index.size)
    assert (len(data), extra) == (index.data_size, index.extra)
    assert written(entries, block_bytes=block_bytes, extra=extra) == (data, writer.index(extra))
    for block in range(index.blocks):
        count = index.end_entry(block) - index.first_entries[block]
        assert count == 1 or index.end_offset(block) - index.offsets[block] <= block_bytes


@given(entries=ENTRIES, block_bytes=BLOCK_BYTES)
def test_block_of_an_entry_has_it(entries: list[bytes], block_bytes: int) -> None:
    _, index = written(entries, block_bytes=block_bytes)
    for entry_id in range(len(entries)):
        block = index.block_of(entry_id)
        assert index.first_entries[block] <= entry_id < index.end_entry(block)


def test_blocks_are_as_full_as_they_may_be() -> None:
    """Three entries of 10 bytes fill a block to the last byte; a larger one has its own block."""
    sizes = [10, 10, 10, 10, 10, 10, 43, 10, 42, 10]
    _, index = written(numbered_sizes(sizes), block_bytes=BLOCK_OVERHEAD + 3 * 14)
    assert [0, 3, 6, 7, 8, 9] == list(index.first_entries)
    assert DATA_HEADER_BYTES == index.offsets[0]


def numbered_sizes(sizes: list[int]) -> list[bytes]:
    return [bytes([number]) * size for number, size in enumerate(sizes)]


def test_empty_entries_are_entries() -> None:
    data, index = written([b"", b"", b"x", b""])
    assert [b"", b"", b"x", b""] == entries_of(data, index)


@given(data=st.data(), entries=ENTRIES, block_bytes=BLOCK_BYTES)
def test_flipped_bits_are_found(
    data: st.DataObject, entries: list[bytes], block_bytes: int
) -> None:
    whole, index = written(entries, block_bytes=block_bytes)
    damaged = flipped(data, whole, DATA_HEADER_BYTES)
    with pytest.raises(Corrupt):
        entries_of(damaged, index)
    with pytest.raises(Corrupt):
        decode_index(flipped(data, index.encode(), 0), LEDGER, FIRST)


def flipped(data: st.DataObject, content: bytes, start: int) -> bytes:
    at = data.draw(st.integers(start, len(content) - 1))
    bit = data.draw(st.integers(0, 7))
    return content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]


@given(data=st.data(), entries=ENTRIES, block_bytes=BLOCK_BYTES)
def test_truncated_objects_are_found(
    data: st.DataObject, entries: list[bytes], block_bytes: int
) -> None:
    whole, index = written(entries, block_bytes=block_bytes)
    with pytest.raises(Corrupt):
        entries_of(whole[: data.draw(st.integers(0, len(whole) - 1))], index)
    encoded = index.encode()
    with pytest.raises(Corrupt):
        decode_index(encoded[: data.draw(st.integers(0, len(encoded) - 1))], LEDGER, FIRST)
    with pytest.raises(Corrupt):
        decode_index(encoded + data.draw(st.binary(min_size=1, max_size=9)), LEDGER, FIRST)


@given(content=st.binary(max_size=200))
def test_foreign_objects_are_found(content: bytes) -> None:
    _, index = written([b"entry"])
    with pytest.raises(Corrupt):
        decode_index(content, LEDGER, FIRST)
    with pytest.raises(Corrupt):
        index.decode_block(0, content)


def test_swapped_objects_are_found() -> None:
    """Both have blocks of the same size at the same offsets, and whole checksums."""
    ours, index = written([b"ours" * 20] * 30)
    others, other_index = written([b"them" * 20] * 30, ledger_id=8, attempt=SECOND)
    assert list(index.offsets) == list(other_index.offsets)
    with pytest.raises(Corrupt, match="block 0 at 34: expected checksum"):
        entries_of(others, index)
    with pytest.raises(Corrupt, match=r"belongs to .*0002-ledger-8"):
        decode_index(other_index.encode(), LEDGER, FIRST)
    assert len(ours) == len(others)


def test_swapped_blocks_are_found() -> None:
    """Two blocks of one object change places."""
    data, index = written(numbered(30))
    view = memoryview(data)
    second = view[index.offsets[1] : index.end_offset(1)]
    with pytest.raises(Corrupt):
        index.decode_block(2, second)


@pytest.mark.parametrize(("at", "value", "message"), [(5, 2, "expected version 1, got 2")])
def test_other_versions_are_refused(at: int, value: int, message: str) -> None:
    encoded = bytearray(written([b"entry"])[1].encode())
    encoded[at] = value
    with pytest.raises(Corrupt, match=message):
        decode_index(bytes(encoded), LEDGER, FIRST)


@pytest.mark.parametrize(
    ("first_entries", "offsets"),
    [
        ((), ()),
        ((1,), (34,)),
        ((0, 5, 5), (34, 50, 60)),
        ((0, 5, 10), (34, 50, 60)),
        ((0, 5), (34, 34)),
        ((0, 5), (34, 900)),
        ((0,), (33,)),
    ],
)
def test_index_of_a_faulty_writer_is_refused(
    first_entries: tuple[int, ...], offsets: tuple[int, ...]
) -> None:
    """Its checksum is whole, but its blocks would be read from wrong places."""
    index = LedgerIndex(
        ledger_id=LEDGER,
        attempt=FIRST,
        entries=10,
        size=100,
        data_size=900,
        first_entries=first_entries,
        offsets=offsets,
        checksums=(0,) * len(offsets),
    )
    with pytest.raises(Corrupt, match="not in order"):
        decode_index(index.encode(), LEDGER, FIRST)


@pytest.mark.parametrize("block_bytes", [0, BLOCK_OVERHEAD, (64 << 20) + 1])
def test_size_of_blocks_is_limited(block_bytes: int) -> None:
    with pytest.raises(
        InvalidArgument, match=f"block_bytes: expected 17 to 67108864, got {block_bytes}"
    ):
        LayoutWriter(LEDGER, FIRST, block_bytes=block_bytes)


def test_format_does_not_change() -> None:
    """Objects of version 1 stay readable: these are their bytes."""
    data, index = written([b"a", b"bc"], block_bytes=21, extra=b"more")
    attempt = "00000000000000000000000000000001"
    header = f"4b4c5444 0001 0000000000000007 {attempt} 3b0c489a"
    first_block = "0ee57eb9 00000001 0000000000000000 00000001 61"
    second_block = "5c883b9e 00000001 0000000000000001 00000002 6263"
    assert bytes.fromhex(header + first_block + second_block) == data
    head = f"4b4c5449 0001 0000000000000007 {attempt}"
    counts = "0000000000000002 0000000000000003 000000000000004d 00000002 00000004"
    columns = "0000000000000000 0000000000000001 0000000000000022 0000000000000037"
    end = "0ee57eb9 5c883b9e 6d6f7265 d265d5c0"
    assert bytes.fromhex(head + counts + columns + end) == index.encode()
