"""Pacing: pauses in a long walk, so that other threads get the GIL.

Rule: code that may walk millions of records or headers calls `pause` every `STEPS_PER_PAUSE` of
them.
Must not know: what a pause does; by default nothing, for short walks.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

Pause: TypeAlias = Callable[[], None]

STEPS_PER_PAUSE = 256
"""Records, headers or blocks between two pauses: about half a millisecond."""


def no_pause() -> None:
    """Continue at once."""


def paced(count: int, pause: Pause) -> Iterator[int]:
    """Yield 0 to `count - 1`, with a pause before every `STEPS_PER_PAUSE` of them but the first."""
    first = min(count, STEPS_PER_PAUSE)
    yield from range(first)
    for start in range(first, count, STEPS_PER_PAUSE):
        pause()
        yield from range(start, min(start + STEPS_PER_PAUSE, count))
