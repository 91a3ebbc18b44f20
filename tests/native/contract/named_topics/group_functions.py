"""Filters and converters that tests name to a server, which imports this module."""

import os


def is_odd(value: bytes) -> bool:
    """Leave out even numbers."""
    return int(value) % 2 == 1


def doubled(value: bytes) -> bytes | None:
    """Double numbers; nines are left out."""
    return None if value == b"9" else b"%d" % (2 * int(value))


def as_text(value: bytes) -> str:
    """Return what no converter may return."""
    return value.decode()


def blocks_at_two(value: bytes) -> bool:
    """Never return for a two."""
    while value == b"2":
        pass
    return True


def ends_at_two(value: bytes) -> bool:
    """End the process for a two."""
    if value == b"2":
        os._exit(7)
    return True


NOT_A_FUNCTION = 5
