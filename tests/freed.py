"""Objects that go with their last user, without a run of the garbage collector."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager


class Freed:
    """Objects that have to go."""

    def __init__(self) -> None:
        self._watched: dict[str, weakref.ref[object]] = {}

    def watch(self, **objects: object) -> None:
        """Look on what becomes of objects, by names."""
        self._watched |= {name: weakref.ref(each) for name, each in objects.items()}

    def left(self) -> list[str]:
        """Tell which are still there."""
        return [name for name, found in self._watched.items() if found() is not None]


@contextmanager
def without_collection() -> Iterator[Freed]:
    """Keep the garbage collector from freeing anything."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield Freed()
    finally:
        if was_enabled:
            gc.enable()
