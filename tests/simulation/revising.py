"""Revising: sets a cursor's positions from outside.

Rule: a revision is durable before it takes effect, and one runs at a time; a failed one changes
nothing.
Must not know: concurrent reads and acknowledgements.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kledger.ledger import (
    EARLIEST,
    LATEST,
    AlreadyClosed,
    Fenced,
    LedgerError,
    Position,
    ResetInProgress,
    StorageFailed,
)
from tests.simulation.acknowledged_set import AcknowledgedSet
from tests.simulation.invariants import InvariantBroken, check
from tests.simulation.scene import CursorUse, Scene


@dataclass(frozen=True, slots=True)
class _RevisionTarget:
    """`next_read`: None if the read position does not change."""

    acknowledged: AcknowledgedSet
    next_read: Position | None


@dataclass(frozen=True, slots=True)
class _Call:
    """A revision: the call, and its result from the present state."""

    what: str
    make: Callable[[], Awaitable[None]]
    target: Callable[[], _RevisionTarget]


def rewind(scene: Scene) -> None:
    """Rewind to the first unacknowledged entry."""
    use = scene.cursor()
    if use is not None:
        what = f"{use} rewind"
        scene.start(what, _setting(scene, use, what, use.cursor.rewind, lambda: EARLIEST))


def seek(scene: Scene) -> None:
    """Move the read position."""
    use = scene.cursor()
    if use is None:
        return
    cursor, handle, is_forced = use.cursor, use.handle, scene.random.random() < 0.3
    position = scene.random.choice((EARLIEST, LATEST, scene.position(handle.log)))
    what = f"{use} seek {position}{' by force' if is_forced else ''}"

    def begins() -> Position:
        return min(position, handle.ml.last_confirmed_entry.successor)

    call = _setting(
        scene,
        use,
        what,
        lambda: cursor.seek(position, force=is_forced),
        begins,
        sends_back=is_forced,
    )
    scene.start(what, call)


async def _setting(
    scene: Scene,
    use: CursorUse,
    what: str,
    make: Callable[[], Awaitable[None]],
    begins: Callable[[], Position],
    *,
    sends_back: bool = False,
) -> None:
    """Set the read position only: at once, and not durable."""
    use.model.follow()
    refusal, next_read = _refusal(use), begins()
    try:
        await make()
    except LedgerError as error:
        _check_refusal(use, what, refusal, error)
        return
    scene.trace_line(f"{what} done")
    check(refusal is None, f"{what}: was done, expected {refusal}")
    use.model.read_from(next_read)
    use.model.was_sent_back = sends_back


def skip(scene: Scene) -> None:
    """Acknowledge the next entries."""
    use = scene.cursor()
    if use is None:
        return
    model, cursor, handle = use.model, use.cursor, use.handle
    count = scene.random.choice((1, 1, 2, 5, 1000))

    def target() -> _RevisionTarget:
        unacknowledged = model.acknowledged.unacknowledged_of(handle.positions())[:count]
        end = unacknowledged[-1] if len(unacknowledged) == count else handle.ml.last_confirmed_entry
        return _RevisionTarget(model.acknowledged.upto(end), None)

    _revise(scene, use, _Call(f"skip {count}", lambda: cursor.skip(count), target))


def clear_backlog(scene: Scene) -> None:
    """Acknowledge everything."""
    use = scene.cursor()
    if use is None:
        return
    model, cursor, ml = use.model, use.cursor, use.handle.ml

    def target() -> _RevisionTarget:
        return _RevisionTarget(model.acknowledged.upto(ml.last_confirmed_entry), None)

    _revise(scene, use, _Call("clear backlog", cursor.clear_backlog, target))


def reset(scene: Scene) -> None:
    """Make everything from a position on unacknowledged, and everything before it acknowledged."""
    use = scene.cursor()
    if use is None:
        return
    cursor, handle = use.cursor, use.handle
    random = scene.random
    position = random.choice((EARLIEST, LATEST, *(scene.position(handle.log) for _ in range(3))))
    is_forced = random.random() < 0.2

    def target() -> _RevisionTarget:
        end = handle.ml.last_confirmed_entry.successor
        is_beyond = is_forced and position != LATEST
        return _RevisionTarget(
            AcknowledgedSet(min(position, end)), position if is_beyond else min(position, end)
        )

    what = f"reset {position}{' by force' if is_forced else ''}"
    _revise(scene, use, _Call(what, lambda: cursor.reset(position, force=is_forced), target))


def _revise(scene: Scene, use: CursorUse, call: _Call) -> None:
    scene.start(f"{use} {call.what}", _revising(scene, use, call))


async def _revising(scene: Scene, use: CursorUse, call: _Call) -> None:
    model, cursor, handle = use.model, use.cursor, use.handle
    model.follow()
    attempt, refusal = scene.attempt(handle), _refusal(use)
    target = call.target() if refusal is None else None
    revision = model.begin_revision(target.acknowledged, target.next_read) if target else None
    try:
        await call.make()
    except LedgerError as error:
        scene.trace_line(f"{use} {call.what} failed: {error}")
        if revision is None:
            _check_refusal(use, call.what, refusal, error)
            return
        if not (isinstance(error, AlreadyClosed) and model.may_be_going):
            scene.explain(attempt, error)
        if isinstance(error, StorageFailed) or not revision.is_over():
            model.end_revision(revision, happened=False)
    else:
        scene.trace_line(f"{use} {call.what} done, {cursor.mark_delete_position}")
        if revision is None:
            raise InvariantBroken(f"{use} {call.what}: was done, expected {refusal}")
        model.end_revision(revision, happened=True)


def _refusal(use: CursorUse) -> type[LedgerError] | tuple[type[LedgerError], ...] | None:
    """Return the error that refuses a revision, None if it begins."""
    cursor, handle = use.cursor, use.handle
    if not handle.is_usable:
        return (Fenced, AlreadyClosed, StorageFailed, ResetInProgress)
    if cursor.is_closed:
        return AlreadyClosed
    return ResetInProgress if cursor.revision.is_running else None


def _check_refusal(
    use: CursorUse,
    what: str,
    refusal: type[LedgerError] | tuple[type[LedgerError], ...] | None,
    error: LedgerError,
) -> None:
    is_going = isinstance(error, AlreadyClosed) and use.model.may_be_going
    if not is_going and (refusal is None or not isinstance(error, refusal)):
        raise InvariantBroken(f"{use} {what}: {error!r}, expected {refusal}") from error
