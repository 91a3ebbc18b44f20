"""Entropy: the only source of ids and jitter.

Rule: random values come from an `Entropy` that is an argument, so that a run can be replayed from a
seed.
Must not know: what the numbers are used for.
"""

import os
import random
import uuid
from typing import Protocol


class Entropy(Protocol):
    """Random values."""

    def token(self, size: int) -> bytes:
        """Return `size` random bytes."""
        ...

    def uuid4(self) -> uuid.UUID:
        """Return a random UUID of version 4 that is no option.

        Kafka writes ids in base64; a text that begins with a hyphen would be taken for an option
        on a command line, so there are none of these, as of Kafka's `Uuid.randomUuid`.
        """
        ...

    def below(self, limit: int) -> int:
        """Return a whole number from 0 to `limit` - 1."""
        ...


class SystemEntropy:
    """The machine's own randomness."""

    __slots__ = ()

    def token(self, size: int) -> bytes:
        """Return bytes that cannot be guessed."""
        return os.urandom(size)

    def uuid4(self) -> uuid.UUID:
        """Return a UUID that cannot be guessed."""
        while _is_option(found := uuid.uuid4()):
            pass
        return found

    def below(self, limit: int) -> int:
        """Return a number for spreading load, not for secrets."""
        return random.randrange(limit)


class SeededEntropy:
    """The same values for the same seed, for tests and simulations."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def token(self, size: int) -> bytes:
        """Return the next bytes of the seed's sequence."""
        return self._random.randbytes(size)

    def uuid4(self) -> uuid.UUID:
        """Return the next UUID of the seed's sequence."""
        while _is_option(found := uuid.UUID(bytes=self.token(16), version=4)):
            pass
        return found

    def below(self, limit: int) -> int:
        """Return the next number of the seed's sequence."""
        return self._random.randrange(limit)


def _is_option(value: uuid.UUID) -> bool:
    """Whether the text of an id begins with a hyphen, which has the number 62 in base64."""
    return value.bytes[0] >> 2 == 62
