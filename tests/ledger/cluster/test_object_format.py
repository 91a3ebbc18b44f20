"""Objects round trip; what is cut, damaged or foreign is an error that says where."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.ledger.cluster.object_format import (
    BLOCK_OVERHEAD,
    HEADER_SIZE,
    CopiedBlock,
    EncodedObject,
    NewBlock,
    ObjectDamaged,
    ObjectFooter,
    ObjectName,
    WalBlock,
    blocks_of,
    decode_block,
    decode_footer,
    encode_object,
)

NAME = ObjectName(UUID(int=7), 3, 41)
KEY = NAME.key(0)

ids = st.integers(0, 2**63 - 1)
sources = st.lists(st.builds(CopiedBlock, ids, st.integers(0, 2**32 - 1)), max_size=3)
entry_lists = st.lists(st.binary(max_size=50), min_size=1, max_size=5)
new_blocks = st.lists(st.builds(NewBlock, ids, ids, entry_lists, sources), max_size=6)


def footer_of(encoded: EncodedObject, *, name: ObjectName = NAME) -> ObjectFooter:
    data = memoryview(encoded.data)[encoded.footer_at :]
    return decode_footer(data, KEY, name, encoded.footer_at)


def entries_of(encoded: EncodedObject, block: WalBlock) -> list[bytes]:
    data = memoryview(encoded.data)[block.position : block.position + block.size]
    return [*map(bytes, decode_block(data, KEY, block))]


def all_of(encoded: EncodedObject) -> list[list[bytes]]:
    return [entries_of(encoded, block) for block in footer_of(encoded).blocks]


@given(new_blocks, st.lists(ids, max_size=4))
def test_object_is_read_as_written(blocks: list[NewBlock], drops: list[int]) -> None:
    encoded = encode_object(NAME, blocks, drops)
    footer = footer_of(encoded)

    assert [*encoded.footer.blocks] == [*footer.blocks]
    assert drops == [*footer.drops]
    assert [each.sources for each in blocks] == [
        footer.sources.get(number, []) for number in range(len(blocks))
    ]
    for block, read in zip(blocks, footer.blocks, strict=True):
        assert (block.ledger_id, block.first, len(block.entries)) == read[:3]
        assert [*block.entries] == entries_of(encoded, read)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.binary(max_size=9)), max_size=30),
    st.integers(1, 40),
)
def test_entries_of_a_group_are_in_blocks_by_ledger(
    entries: list[tuple[int, int, bytes]], bytes_max: int
) -> None:
    entries = [*{each[:2]: each for each in sorted(entries)}.values()]
    blocks = blocks_of(entries, bytes_max=bytes_max)

    assert sorted(entries) == [
        (each.ledger_id, each.first + number, data)
        for each in blocks
        for number, data in enumerate(each.entries)
    ]
    assert all(sum(map(len, b.entries)) <= bytes_max or len(b.entries) == 1 for b in blocks)


def test_neighbours_share_a_block() -> None:
    entries = [(1, 4, b"a"), (2, 0, b"b"), (1, 5, b"c"), (1, 7, b"d")]
    expected = [NewBlock(1, 4, [b"a", b"c"]), NewBlock(1, 7, [b"d"]), NewBlock(2, 0, [b"b"])]
    assert expected == blocks_of(entries)


EXAMPLE = encode_object(
    NAME, [NewBlock(1, 4, [b"first", b""]), NewBlock(2, 0, [b"x" * 30], [CopiedBlock(9, 42)])], [8]
)


@pytest.mark.parametrize("at", range(HEADER_SIZE, len(EXAMPLE.data)))
def test_every_changed_byte_is_found(at: int) -> None:
    damaged = bytearray(EXAMPLE.data)
    damaged[at] ^= 0x10
    copy = EXAMPLE._replace(data=damaged)
    with pytest.raises(ObjectDamaged, match=f"{KEY}, position"):
        all_of(copy)


@pytest.mark.parametrize("size", range(EXAMPLE.footer_at, len(EXAMPLE.data)))
def test_truncated_footer_is_found(size: int) -> None:
    with pytest.raises(ObjectDamaged, match=f"position {EXAMPLE.footer_at}: "):
        footer_of(EXAMPLE._replace(data=EXAMPLE.data[:size]))


@pytest.mark.parametrize("size", range(BLOCK_OVERHEAD + 13))
def test_truncated_block_is_found(size: int) -> None:
    block = EXAMPLE.footer.blocks[0]
    with pytest.raises(ObjectDamaged, match=f"a block of {block.size} bytes, got {size}"):
        decode_block(EXAMPLE.data[block.position :][:size], KEY, block)


@pytest.mark.parametrize(
    "name",
    [NAME._replace(incarnation=UUID(int=8)), NAME._replace(epoch=4), NAME._replace(number=1)],
)
def test_object_of_another_name_is_refused(name: ObjectName) -> None:
    with pytest.raises(ObjectDamaged, match="checksum"):
        footer_of(EXAMPLE, name=name)


@pytest.mark.parametrize("expected", [(2, 4, 2), (1, 3, 2), (1, 4, 1)])
def test_block_of_other_entries_is_refused(expected: tuple[int, int, int]) -> None:
    block = EXAMPLE.footer.blocks[0]
    with pytest.raises(ObjectDamaged, match=r"got 2 from 1:4"):
        entries_of(EXAMPLE, WalBlock(*expected, block.position, block.size))


def test_footer_of_another_position_is_refused() -> None:
    with pytest.raises(ObjectDamaged, match="does not begin where its blocks end"):
        decode_footer(EXAMPLE.data[EXAMPLE.footer_at :], KEY, NAME, EXAMPLE.footer_at + 1)


@given(ids, st.integers(0, 2**40), st.integers(0, 9))
def test_key_names_its_object(epoch: int, number: int, attempt: int) -> None:
    name = ObjectName(NAME.incarnation, epoch, number)
    assert name == ObjectName.of_key(name.key(attempt))


@pytest.mark.parametrize("key", ["", "wal/1/2/3-4", KEY + "x", "tier/" + KEY[4:], KEY[:-2]])
def test_other_keys_are_refused(key: str) -> None:
    with pytest.raises(ObjectDamaged, match="expected wal/UUID/epoch/number-attempt"):
        ObjectName.of_key(key)
