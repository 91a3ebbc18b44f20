"""Cursor revision state: the only way to set a cursor's positions from outside.

Rule: read position, mark-delete position, number and flag change together. A read carries the
number that it began with; its entries are valid only while that is not outdated, when it completes
and again just before they are dispatched. `end` edits only after `start`; one revision at a time.
Must not know: reads, storage, editors. Theory: PIP-269, CursorStateRevisionController.
"""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from kledger.ledger.position import Position

NOT_POSSIBLE = -1
"""What `start` returns while a revision runs, and `end` while none does."""


class RevisableState(Protocol):
    """What a revision needs of a cursor's state."""

    read_position: Position
    mark_delete_position: Position

    def revised(self) -> None:
        """Make everything else follow both positions, which were set."""
        ...

    def checkpoint(self) -> Callable[[], None]:
        """Return a function that restores everything that an editor can change."""
        ...


State = TypeVar("State", bound=RevisableState)


class CursorStateRevisionController(Generic[State]):
    """The revisions of one cursor; plain, for one event loop."""

    __slots__ = ("_is_running", "_number", "_state")

    def __init__(self, state: State) -> None:
        self._state = state
        self._number = 0
        self._is_running = False

    @property
    def number(self) -> int:
        """How many revisions have ended."""
        return self._number

    @property
    def is_running(self) -> bool:
        """Whether a revision has started and not ended: new reads are refused."""
        return self._is_running

    def start(self) -> int:
        """Begin a revision; return the number, or -1 at once if one is running."""
        if self._is_running:
            return NOT_POSSIBLE
        self._is_running = True
        return self._number

    def end(self, editor: Callable[[State], object]) -> int:
        """Let `editor` set the positions and end the revision, in one step.

        An editor that raises changes nothing: positions, holes, partial batches and properties are
        restored, also if `revised` raises. The revision has ended nevertheless, earlier reads are
        outdated, and the caller gets the error.

        Returns:
            The new number, or -1 if no revision is running; then nothing is edited.

        Source: PIP-269, endRevision; what happens when the editor raises is our decision.
        """
        if not self._is_running:
            return NOT_POSSIBLE
        state = self._state
        restore = state.checkpoint()
        try:
            editor(state)
            state.revised()
        except BaseException:
            restore()
            raise
        finally:
            self._number += 1
            self._is_running = False
        return self._number

    def is_outdated(self, number: int) -> bool:
        """Whether a read that began with that number must be dropped.

        Source: PIP-269, isRevisionNumOutdated, as its example uses it; its comment says the
        opposite.
        """
        return self._is_running or number != self._number
