"""Invariants: the error that the simulation raises when one does not hold.

Rule: the message says which invariant, of what, expected and got.
Must not know: which invariants there are.
"""


class InvariantBroken(AssertionError):
    """An invariant does not hold."""


def check(holds: object, message: str) -> None:
    """Raise unless it holds; for messages that are cheap to build."""
    if not holds:
        raise InvariantBroken(message)
