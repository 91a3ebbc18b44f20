"""Backoff: how long to wait before the next attempt.

Rule: the delay doubles after every attempt, up to a limit; half of it is random, so that clients
that failed together do not retry together.
Must not know: what is attempted.
"""

from kledger.runtime.entropy import Entropy


class Backoff:
    """The delays between the attempts at one operation."""

    def __init__(self, entropy: Entropy, *, first_ms: int, max_ms: int) -> None:
        assert 0 < first_ms <= max_ms, f"expected 0 < first <= max, got {first_ms} and {max_ms}"
        self._entropy = entropy
        self._first_ms = first_ms
        self._max_ms = max_ms
        self._bound_ms = first_ms

    def next_ms(self) -> int:
        """Return the next delay."""
        bound_ms = self._bound_ms
        self._bound_ms = min(2 * bound_ms, self._max_ms)
        return bound_ms - self._entropy.below(bound_ms // 2 + 1)

    def reset(self) -> None:
        """Begin with short delays again, after a success."""
        self._bound_ms = self._first_ms
