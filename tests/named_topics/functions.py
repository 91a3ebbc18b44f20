"""Functions that the tests of this folder name; processes import this module."""

import os
from pathlib import Path

GATE = "KLEDGER_TEST_GATE"
"""The variable with the folder in which a function that is held says so, and is let go."""


def keeps_all(value: bytes | None) -> bool:
    """Leave nothing out."""
    return True


def keeps_none(value: bytes | None) -> bool:
    """Leave everything out."""
    return False


def is_value(value: bytes | None) -> bool:
    """Leave out tombstones."""
    return value is not None


def shouted(value: bytes | None) -> bytes | bytearray | None:
    """Convert to capitals; leave out tombstones."""
    return None if value is None else bytearray(value.upper())


def held_at_b(value: bytes | None) -> bool:
    """Wait for good at "b", after saying so."""
    if value == b"b":
        folder = Path(os.environ[GATE])
        (folder / f"held-{os.getpid()}").touch()
        while not (folder / "open").exists():
            pass
    return True


def ends_at_b(value: bytes | None) -> bool:
    """End the process at "b"."""
    if value == b"b":
        os._exit(3)
    return True


def raises_at_b(value: bytes | None) -> bool:
    """Raise at "b"."""
    if value == b"b":
        raise SystemExit("b")
    return True
