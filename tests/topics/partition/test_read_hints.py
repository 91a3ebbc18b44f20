"""Hints of readers behind the tail."""

from kledger.ledger import Position
from kledger.topics.partition.read_hints import HINTS_MAX, ReadHints


def test_hints_are_remembered_and_the_oldest_go() -> None:
    hints = ReadHints()
    for offset in range(HINTS_MAX + 5):
        hints.put(offset, Position(1, offset))
    assert hints.get(4) is None
    assert Position(1, 5) == hints.get(5)
    hints.put(5, Position(2, 0))
    assert (Position(2, 0), Position(1, 6)) == (hints.get(5), hints.get(6))
