"""Later: one result that may still have to come, for code that is no task.

Rule: settled once. One party hears of it, in the midst of whatever settles it: it only notes that
and acts when that is done. A coroutine awaits it instead; being cancelled, it says that nobody
waits any more.
Must not know: what the result is. The event loop is needed to await and for nothing else.
"""

import asyncio
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Generic, TypeVar, cast

Result = TypeVar("Result")
Other = TypeVar("Other")


class Deferred(Generic[Result]):
    """A result with one listener; costs neither a task nor a turn of the loop.

    Attributes:
        is_resolved: whether the result is there.
        on_cancelled: called when who awaited it was cancelled before it was there.
    """

    __slots__ = ("_listener", "_make", "_value", "is_resolved", "on_cancelled")

    def __init__(self) -> None:
        self.is_resolved = False
        self.on_cancelled: Callable[[], None] | None = None
        self._listener: Callable[[], None] | None = None
        self._make: Callable[[Any], Any] | None = None
        self._value: Any = None

    @classmethod
    def resolved(cls, result: Result) -> "Deferred[Result]":
        """Return one whose result is there."""
        deferred = cls()
        deferred.resolve(result)
        return deferred

    def resolve(self, result: Result) -> None:
        """Give the result."""
        assert not self.is_resolved, f"settled twice, now with {result!r}"
        self._value = result
        self.is_resolved = True
        if self._listener is not None:
            # Who listens often holds this: without the next line both wait for the collector.
            listener, self._listener = self._listener, None
            listener()

    def when_resolved(self, listener: Callable[[], None]) -> None:
        """Call `listener` once the result is there, which it is not yet."""
        assert not self.is_resolved, "there is nothing to wait for"
        assert self._listener is None, "somebody listens already"
        self._listener = listener

    def mapped(self, make: Callable[[Result], Other]) -> "Deferred[Other]":
        """Be what `make` makes of the result, and no longer the result itself.

        It is made when it is asked for: whoever settles this cannot suffer from what `make` does.
        """
        assert self._make is None, "mapped twice"
        self._make = make
        return cast("Deferred[Other]", self)

    def result(self) -> Result:
        """Return the result, which is there."""
        assert self.is_resolved, "the result is not there yet"
        value = self._value if self._make is None else self._make(self._value)
        return cast(Result, value)

    def __await__(self) -> Generator[Any, None, Result]:
        if not self.is_resolved:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.when_resolved(partial(_wake, waiter))
            try:
                yield from waiter
            except asyncio.CancelledError:
                self._abandon()
                raise
        return self.result()

    def _abandon(self) -> None:
        if not self.is_resolved and self.on_cancelled is not None:
            self.on_cancelled()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
