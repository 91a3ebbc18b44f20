"""The index against a plain model of it; stored at any time, and completed by later groups."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from kledger.ledger.cluster.database import BEFORE_ALL, GroupId, WalGroup
from kledger.ledger.cluster.object_format import (
    BLOCK_OVERHEAD,
    CopiedBlock,
    ObjectFooter,
    WalBlock,
)
from kledger.ledger.cluster.wal_index import (
    ROW_BLOCKS,
    IndexRowDamaged,
    WalIndex,
    file_of,
    floor_row,
    group_of,
)
from kledger.ledger.engine.base import Row

WAL = WalGroup("wal/x", 1000, 900)


def block(ledger: int, first: int, count: int, position: int = 42) -> WalBlock:
    """A block with entries of ten bytes."""
    return WalBlock(ledger, first, count, position, BLOCK_OVERHEAD + 14 * count)


@dataclass
class Model:
    """Where every entry is, by its ledger; and the rows that were stored."""

    index: WalIndex = field(default_factory=WalIndex)
    groups: list[tuple[GroupId, ObjectFooter]] = field(default_factory=list)
    entries: dict[int, dict[int, tuple[int, WalBlock]]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    rows: dict[bytes, bytes] = field(default_factory=dict)

    def add(self, footer: ObjectFooter) -> None:
        group_id = GroupId(1, len(self.groups) + 1)
        self.groups.append((group_id, footer))
        self.index.add_file(group_id, WAL, 0)
        self.index.add(group_id, footer)
        for number, each in enumerate(footer.blocks):
            known = self.entries.setdefault(each.ledger_id, {})
            ids = range(each.first, each.first + each.entry_count)
            left = {known[n] for n in ids if n in known}
            sources = {(s.file, s.position) for s in footer.sources.get(number, ())}
            if sources == {(file, old.position) for file, old in left}:
                known |= dict.fromkeys(ids, (file_of(group_id), each))
        for ledger in footer.drops:
            self.entries.pop(ledger, None)

    def store(self, *, bytes_max: int, is_whole: bool) -> None:
        """Store the index, or only its first rows."""
        upto = self.index.newest
        while rows := self.index.take_rows(bytes_max=bytes_max):
            self.write(rows)
            if not is_whole:
                return
        self.write([floor_row(upto)])
        self.index.stored_upto = upto

    def write(self, rows: list[Row]) -> None:
        for key, value in rows:
            if value is None:
                del self.rows[key]
            else:
                self.rows[key] = value

    def reloaded(self) -> WalIndex:
        """What a takeover makes of stored rows and groups."""
        index = WalIndex()
        for group_id, _ in self.groups:
            index.add_file(group_id, WAL, 0)
        for key in sorted(self.rows):
            index.load_row(key, self.rows[key])
        for group_id, footer in self.groups:
            if group_id > index.stored_upto:
                index.add(group_id, footer)
        return index

    def check(self, index: WalIndex) -> None:
        found = {
            ledger: {
                n: (location.file, location.block)
                for location in index.locations(ledger, 0, 10**6, 10**6)
                for n in range(
                    location.block.first, location.block.first + location.block.entry_count
                )
            }
            for ledger in index.ledger_ids()
        }
        assert {ledger: known for ledger, known in self.entries.items() if known} == found
        blocks = {each for known in self.entries.values() for each in known.values()}
        assert len(blocks) == index.block_count
        for file, use in index.files.items():
            here = [each for at, each in blocks if at == file]
            assert (len(here), sum(each.size for each in here)) == (use.live_blocks, use.live_bytes)
        for ledger in range(5):
            assert max(self.entries.get(ledger, {}), default=-1) == index.last_entry(ledger)


def drawn_footer(data: DataObject, model: Model) -> ObjectFooter:
    blocks: list[WalBlock] = []
    sources: dict[int, list[CopiedBlock]] = {}
    for ledger in data.draw(st.sets(st.integers(0, 4))) - model.ended:
        known = model.entries.get(ledger, {})
        stored = [*dict.fromkeys(known.values())]
        is_move: bool = data.draw(st.booleans())
        if stored and is_move:
            begin = data.draw(st.integers(0, len(stored) - 1))
            end = data.draw(st.integers(begin + 1, len(stored)))
            left = stored[begin:end]
            sources[len(blocks)] = [CopiedBlock(file, each.position) for file, each in left]
            count = sum(each.entry_count for _, each in left)
            blocks.append(block(ledger, left[0][1].first, count, 1000 * len(blocks)))
        else:
            count = data.draw(st.integers(1, 3))
            blocks.append(block(ledger, len(known), count, 1000 * len(blocks)))
    drops = [*(data.draw(st.sets(st.integers(0, 4), max_size=1)) - model.ended)]
    model.ended |= set(drops)
    return ObjectFooter(blocks, drops, sources)


@given(st.data())
def test_index_stored_at_any_time_is_completed_by_later_groups(data: DataObject) -> None:
    model = Model()
    for _ in range(data.draw(st.integers(1, 12))):
        if data.draw(st.integers(0, 3)):
            model.add(drawn_footer(data, model))
        else:
            is_whole = data.draw(st.booleans())
            model.store(bytes_max=data.draw(st.sampled_from((1, 200, 10**6))), is_whole=is_whole)
        model.check(model.index)
        model.check(model.reloaded())


def test_long_ledger_is_stored_in_rows_of_which_the_last_one_changes() -> None:
    model = Model()
    for number in range(2 * ROW_BLOCKS + 10):
        model.add(ObjectFooter([block(1, number, 1)]))
    model.store(bytes_max=10**6, is_whole=True)
    assert 4 == len(model.rows)
    model.add(ObjectFooter([block(1, 2 * ROW_BLOCKS + 10, 1)]))
    assert 1 == len(model.index.take_rows())
    model.check(model.reloaded())


def test_move_whose_sources_have_changed_is_ignored() -> None:
    model = Model()
    model.add(ObjectFooter([block(1, 0, 2)]))
    model.add(ObjectFooter([block(1, 2, 2)]))
    first, second = (CopiedBlock(file_of(each), 42) for each, _ in model.groups)
    for sources in ([second], [first, first], [first, second, second], [CopiedBlock(9, 42)]):
        model.index.add_file(GroupId(2, 1), WAL, 0)
        model.index.add(GroupId(2, 1), ObjectFooter([block(1, 0, 4)], (), {0: sources}))
        assert 2 == model.index.block_count
    model.index.add(GroupId(2, 1), ObjectFooter([block(1, 0, 4)], (), {0: [first, second]}))
    assert 1 == model.index.block_count


@pytest.mark.parametrize(
    ("first", "last", "bytes_max", "expected"),
    [
        (0, 99, 1000, [0, 2, 4, 5]),
        (0, 99, 20, [0]),
        (0, 99, 21, [0, 2]),
        (1, 99, 1, [0, 2]),
        (3, 4, 1000, [2, 4]),
        (5, 5, 0, [5]),
        (6, 9, 1000, []),
        (7, 9, 1000, [7]),
    ],
)
def test_locations_have_what_is_wanted(
    first: int, last: int, bytes_max: int, expected: list[int]
) -> None:
    """Entries 0 to 5 and 7; how large the wanted part of a block is, is not known."""
    model = Model()
    for start, count in ((0, 2), (2, 2), (4, 1), (5, 1), (7, 1)):
        model.add(ObjectFooter([block(1, start, count)]))
    found = model.index.locations(1, first, last, bytes_max)
    assert expected == [each.block.first for each in found]
    assert [] == model.index.locations(2, 0, 9, 100)


def test_forgotten_groups_are_gone() -> None:
    index = WalIndex()
    for seq, wal in ((1, WAL), (2, WalGroup(None, 70, 50, b"x" * 70))):
        index.add_file(GroupId(1, seq), wal, 0)
    assert 70 == index.inline_bytes
    index.forget([*index.files])
    assert ({}, 0) == (index.files, index.inline_bytes)


def test_group_with_live_blocks_is_not_forgotten() -> None:
    model = Model()
    model.add(ObjectFooter([block(1, 0, 1)]))
    with pytest.raises(AssertionError, match="1 live blocks"):
        model.index.forget([*model.index.files])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"x" + bytes(12), b"\x01" + bytes(32)),
        (b"b" + bytes(11), b"\x01" + bytes(32)),
        (b"b" + bytes(12), b"\x02" + bytes(32)),
        (b"b" + bytes(12), b"\x01" + bytes(31)),
        (b"b" + bytes(12), b"\x01" + bytes(32)),  # of a group that is not there
        (b"f", b"\x01" + bytes(15)),
        (b"f", b"\x02" + bytes(16)),
    ],
)
def test_row_that_cannot_be_read_is_an_error(key: bytes, value: bytes) -> None:
    with pytest.raises(IndexRowDamaged):
        WalIndex().load_row(key, value)


@given(st.integers(0, 2**24 - 1), st.integers(0, 2**40 - 1))
def test_file_is_a_group_id_in_one_number(epoch: int, seq: int) -> None:
    assert GroupId(epoch, seq) == group_of(file_of(GroupId(epoch, seq)))
    assert BEFORE_ALL == group_of(0)
