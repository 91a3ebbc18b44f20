"""The shelf of pieces against a model, and the order in which pieces go."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kledger.ledger.piece_shelf import Piece, PieceShelf


def piece(first: int, *sizes: int, ledger_id: int = 1) -> Piece:
    return Piece(ledger_id, first, [bytes(size) for size in sizes])


def held(shelf: PieceShelf, *entries: int) -> list[bool]:
    return [shelf.find(1, entry) is not None for entry in entries]


def test_a_piece_is_found_by_any_of_its_entries() -> None:
    shelf = PieceShelf(100)
    shelf.put(piece(4, 1, 2, 3), is_used=True)
    assert [False, True, True, True, False] == held(shelf, 3, 4, 5, 6, 7)
    assert shelf.find(2, 4) is None
    assert 4 == shelf.next_first(1, 3) == shelf.next_first(1, -1)
    assert shelf.next_first(1, 4) > 1 << 40


def test_used_pieces_go_first_and_the_longest_untouched_of_them() -> None:
    shelf = PieceShelf(50)
    shelf.put(piece(0, 10), is_used=False)
    for first in (1, 2, 3):
        shelf.put(piece(first, 10), is_used=True)
    found = shelf.find(1, 1)
    assert found is not None
    shelf.touch(found, 2)
    shelf.put(piece(4, 20), is_used=True)
    assert [True, True, False, True, True] == held(shelf, 0, 1, 2, 3, 4)
    assert shelf.reserve(40)
    assert [True, False, False, False, False] == held(shelf, 0, 1, 2, 3, 4)
    assert (50, 0) == (shelf.expected_bytes, shelf.used_bytes)
    assert shelf.reserve(10)
    assert [False] == held(shelf, 0)
    assert not shelf.reserve(10), "what is on its way is not thrown out"
    shelf.put(piece(9, 10), is_used=True)
    assert [False] == held(shelf, 9)
    assert not PieceShelf(5).reserve(6)


def test_a_piece_is_used_when_its_last_entry_was_taken() -> None:
    shelf = PieceShelf(50)
    shelf.put(expected := piece(0, 10, 10), is_used=False)
    shelf.touch(expected, 1)
    assert (20, 0) == (shelf.expected_bytes, shelf.used_bytes)
    shelf.touch(expected, 2)
    assert (0, 20) == (shelf.expected_bytes, shelf.used_bytes)
    shelf.put(alone := piece(4, 10, 10), is_used=False)
    shelf.touch(alone, 5, is_kept=False)
    assert [True] == held(shelf, 4)
    shelf.touch(alone, 6, is_kept=False)
    assert [True, False] == held(shelf, 0, 4)
    assert (0, 20) == (shelf.expected_bytes, shelf.used_bytes)


def test_pieces_do_not_overlap() -> None:
    shelf = PieceShelf(100)
    shelf.put(piece(2, 1, 1, 1), is_used=True)
    for first, count in ((0, 3), (2, 1), (4, 3)):
        shelf.put(piece(first, *[1] * count), is_used=True)
    assert 3 == shelf.used_bytes


class ShelfAgainstModel(RuleBasedStateMachine):
    """The model remembers every entry ever put; the shelf may have fewer, never others."""

    def __init__(self) -> None:
        super().__init__()
        self.shelf = PieceShelf(60)
        self.reserved: list[int] = []

    @rule(
        ledger_id=st.integers(1, 2),
        first=st.integers(0, 20),
        sizes=st.lists(st.integers(1, 20), min_size=1, max_size=4),
        is_used=st.booleans(),
    )
    def put(self, ledger_id: int, first: int, sizes: list[int], is_used: bool) -> None:
        buffers = [b"%d:%d" % (ledger_id, first + n) + bytes(s) for n, s in enumerate(sizes)]
        self.shelf.put(Piece(ledger_id, first, buffers), is_used=is_used)

    @rule(ledger_id=st.integers(1, 2), entry_id=st.integers(0, 24), is_kept=st.booleans())
    def take(self, ledger_id: int, entry_id: int, is_kept: bool) -> None:
        found = self.shelf.find(ledger_id, entry_id)
        behind = self.shelf.next_first(ledger_id, entry_id)
        assert behind > entry_id
        if found is not None:
            assert found.first <= entry_id < found.end <= behind
            buffer = found.buffers[entry_id - found.first]
            assert bytes(buffer).startswith(b"%d:%d" % (ledger_id, entry_id))
            self.shelf.touch(found, entry_id + 1, is_kept=is_kept)

    @rule(size=st.integers(1, 70))
    def reserve(self, size: int) -> None:
        if self.shelf.reserve(size):
            self.reserved.append(size)

    @rule()
    def release(self) -> None:
        if self.reserved:
            self.shelf.release(self.reserved.pop())

    @rule(ledger_id=st.integers(1, 2))
    def drop(self, ledger_id: int) -> None:
        self.shelf.drop(ledger_id)
        assert all(self.shelf.find(ledger_id, entry) is None for entry in range(25))

    @invariant()
    def sizes_add_up_and_stay_within_the_limit(self) -> None:
        shelf = self.shelf
        pieces = {
            found.place: found
            for ledger_id in (1, 2)
            for entry in range(25)
            if (found := shelf.find(ledger_id, entry)) is not None
        }
        total = sum(each.size for each in pieces.values()) + sum(self.reserved)
        assert total == shelf.expected_bytes + shelf.used_bytes <= shelf.limit
        assert shelf.expected_bytes >= sum(self.reserved)


ShelfAgainstModel.TestCase.settings = settings(max_examples=60, deadline=None)
TestShelfAgainstModel = ShelfAgainstModel.TestCase
