"""The copy of shared rows goes forward only, by changes or by everything."""

import pytest

from kledger.ledger.cluster.shared_copy import FoundRows, SharedCopy
from kledger.ledger.engine.base import Row

A1, A2, B2 = (b"a", b"1", 1), (b"a", b"2", 2), (b"b", b"2", 2)


def changes(number: int, *rows: tuple[bytes, bytes | None, int]) -> FoundRows:
    return FoundRows(number, b"token-%d" % number, 0, True, False, rows)


def everything(number: int, *rows: tuple[bytes, bytes | None, int]) -> FoundRows:
    return changes(number, *rows)._replace(is_all=True)


@pytest.fixture
def copy() -> SharedCopy:
    made = SharedCopy()
    made.take(everything(1, A1))
    return made


def test_changes_are_taken_once(copy: SharedCopy) -> None:
    deleted = (b"a", None, 3)
    assert [(b"b", b"2"), (b"a", None)] == copy.take(changes(3, B2, deleted))
    assert (3, b"token-3") == (copy.seen, copy.token)
    assert [(b"b", b"2")] == copy.scan(b"")
    assert not copy.take(changes(3, B2, deleted))


def test_changes_that_a_write_has_overtaken_are_left_out(copy: SharedCopy) -> None:
    """They were read before the write, and arrive after it; or with it, and later ones."""
    copy.wrote([(b"a", b"2")], 2, b"token-2")
    assert not copy.take(changes(1, A1))
    assert not copy.take(changes(2, A2))
    assert [(b"c", b"3")] == copy.take(changes(3, A2, (b"c", b"3", 3)))
    assert [(b"a", b"2"), (b"c", b"3")] == copy.scan(b"")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (everything(2, A1, B2), [(b"b", b"2")]),
        (everything(2, B2), [(b"a", None), (b"b", b"2")]),
        (everything(0), [(b"a", None)]),
        (everything(1, A1), []),
    ],
)
def test_everything_changes_what_differs(
    copy: SharedCopy, found: FoundRows, expected: list[Row]
) -> None:
    assert expected == copy.take(found)
    assert (found.number, found.token) == (copy.seen, copy.token)
    assert [(key, value) for key, value, _ in found.rows] == copy.scan(b"")


def test_rows_are_found_by_their_prefix_in_the_order_of_keys(copy: SharedCopy) -> None:
    copy.wrote([(b"b/2", b"x"), (b"b/1", b""), (b"c", b"z"), (b"a", None)], 5, b"token")
    assert [(b"b/1", b""), (b"b/2", b"x")] == copy.scan(b"b/")
    assert [] == copy.scan(b"a")
