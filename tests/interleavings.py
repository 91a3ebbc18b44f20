"""Scripts of actors that race, and every order in which their steps can follow each other."""

from collections.abc import Awaitable, Callable, Iterator
from typing import TypeAlias

Step: TypeAlias = Callable[[], Awaitable[None]]
Script: TypeAlias = list[Step]
Order: TypeAlias = tuple[int, ...]


def interleavings(lengths: tuple[int, ...]) -> Iterator[Order]:
    """Yield every order of the steps of scripts of these lengths, as numbers of scripts."""
    if not any(lengths):
        yield ()
    for script, left in enumerate(lengths):
        if left:
            rest = (*lengths[:script], left - 1, *lengths[script + 1 :])
            for order in interleavings(rest):
                yield (script, *order)
