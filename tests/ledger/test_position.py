"""Positions: order, text, successor."""

from itertools import pairwise

import pytest

from kledger.ledger.position import EARLIEST, LATEST, Position


def test_positions_are_ordered_by_ledger_then_entry() -> None:
    ordered = [EARLIEST, *(Position(a, b) for a in range(3) for b in range(-1, 3)), LATEST]
    assert ordered == sorted(ordered)
    assert all(low < high for low, high in pairwise(ordered))


def test_equal_positions_are_one_key() -> None:
    assert {Position(5, 120): 1} == {Position(5, 120): 1}
    assert 1 == len({Position(5, 120), Position(5, 120)})
    assert Position(5, 120) != Position(120, 5)


@pytest.mark.parametrize("position", [Position(5, 120), EARLIEST, LATEST, Position(3, -1)])
def test_text_round_trip(position: Position) -> None:
    assert position == Position.parse(str(position))


def test_text_is_ledger_colon_entry() -> None:
    assert "5:120" == str(Position(5, 120))


@pytest.mark.parametrize("text", ["", "5", "5:", ":1", "a:b", "1:2:3"])
def test_parse_refuses_what_is_no_position(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - int() speaks for itself
        Position.parse(text)


def test_successor_of_a_negative_entry_is_the_first() -> None:
    assert Position(4, 8) == Position(4, 7).successor
    assert Position(4, 0) == Position(4, -1).successor
    assert Position(-1, 0) == EARLIEST.successor
