"""A table answers for the nearest class that has a row."""

import pytest

from kledger.runtime.error_table import ErrorTable


class Deleted(KeyError, ValueError):
    """An error with two bases; the first one is nearer."""


TABLE = ErrorTable({LookupError: "look up", KeyError: "key", ValueError: "value"})


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (KeyError(), "key"),
        (IndexError(), "look up"),
        (LookupError(), "look up"),
        (UnicodeError(), "value"),
        (Deleted(), "key"),
        (OSError(), None),
    ],
)
def test_the_nearest_class_with_a_row_decides(error: Exception, expected: str | None) -> None:
    assert expected == TABLE.get(error, None)


def test_a_row_may_hold_anything() -> None:
    """Also what is false, as Kafka's code 0."""
    assert 0 == ErrorTable({KeyError: 0}).get(KeyError(), 1)


def test_except_takes_the_classes_of_a_table() -> None:
    for error in (IndexError, Deleted):
        with pytest.raises(TABLE.classes):
            raise error
    assert OSError not in TABLE.classes
