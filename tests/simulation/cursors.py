"""Cursors: creates, opens, closes and deletes durable and non-durable ones.

Rule: one call at a time for each name, so that the outcome is known. After a cancelled call it is
unknown until a handle observes it.
Must not know: what is acknowledged or read through them.
"""

from asyncio import CancelledError
from collections.abc import Awaitable, Callable

from kledger.ledger import (
    EARLIEST,
    LATEST,
    Cursor,
    CursorNotFound,
    LedgerError,
    Position,
    StorageFailed,
)
from tests.simulation.acknowledged_set import AcknowledgedSet
from tests.simulation.cursor_model import CursorModel
from tests.simulation.invariants import check
from tests.simulation.log_model import HandleModel
from tests.simulation.scene import Attempt, CursorUse, Scene

NAMES = ("s", "t")
NON_DURABLE_MAX = 3
"""Limit of non-durable cursors of one handle."""


def open_cursor(scene: Scene) -> None:
    """Open a durable cursor, or create one."""
    handle, name = scene.handle(), scene.random.choice(NAMES)
    if handle is not None:
        initial = scene.random.choice((EARLIEST, LATEST))
        work = opening(
            scene, handle, name, initial, lambda: handle.ml.open_cursor(name, initial=initial)
        )
        scene.start(f"{handle} open cursor {name}", work)


async def opening(
    scene: Scene,
    handle: HandleModel,
    name: str,
    initial: Position,
    make: Callable[[], Awaitable[Cursor]],
) -> None:
    """Open a durable cursor by `make`; a new one begins at `initial`."""
    busy = (handle.log, name)
    if busy in scene.busy:
        return
    scene.busy.add(busy)
    model = handle.log.cursors.setdefault(name, CursorModel(name))
    attempt = scene.attempt(handle)
    did_exist, lac = model.exists.copy(), handle.ml.last_confirmed_entry
    model.exists.add(True)
    try:
        cursor = await make()
    except (CancelledError, LedgerError) as error:
        _leave(scene, attempt, model, did_exist, error)
    else:
        check(not attempt.was_lost, f"{handle}: a stale handle opened cursor {name}")
        scene.trace_line(f"{handle} opened cursor {name} at {cursor.mark_delete_position}")
        if handle.log.handle is handle:
            _opened(handle, model, cursor, did_exist, None if initial == EARLIEST else lac)
    finally:
        scene.busy.discard(busy)


def _opened(
    handle: HandleModel,
    model: CursorModel,
    cursor: Cursor,
    did_exist: set[bool],
    after: Position | None,
) -> None:
    """`after`: a new one begins after it, or a little later; None for the first entry."""
    if model.is_vague or len(did_exist) > 1:
        model.adopted(handle, cursor)
    elif did_exist == {True}:
        model.reopened(handle, cursor)
    elif after is None:
        model.made(handle, cursor, [AcknowledgedSet(EARLIEST)])
    else:
        mark_delete = cursor.mark_delete_position
        positions = handle.positions()
        missed = [each for each in positions if mark_delete < each <= after]
        check(not missed, f"{model}: begins at {mark_delete}, which is before the end")
        begins = [
            after,
            *(each for each in positions if after < each <= mark_delete),
            mark_delete,
        ]
        model.made(handle, cursor, [AcknowledgedSet(each.successor) for each in begins])


def close_cursor(scene: Scene) -> None:
    """Close a cursor of either kind; a durable one remains stored."""
    use = scene.cursor()
    if use is not None:
        scene.start(f"{use} close", closing(scene, use, use.cursor.close))


async def closing(scene: Scene, use: CursorUse, make: Callable[[], Awaitable[None]]) -> None:
    """Close a cursor by `make`, perhaps after a failed close; a close that returns has written."""
    model, cursor, handle = use.model, use.cursor, use.handle
    model.follow()
    attempt, serial = scene.attempt(handle), model.move(model.acknowledged)
    is_written = not cursor.revision.is_running
    try:
        await make()
    except LedgerError as error:
        scene.trace_line(f"{model} close failed: {error}")
        model.not_returned()
        scene.explain(attempt, error)
        return
    scene.trace_line(f"{model} closed")
    if model in handle.non_durable:
        handle.non_durable.remove(model)
    if is_written and not scene.may_be_lost(attempt):
        model.kept(serial)


def delete_cursor(scene: Scene) -> None:
    """Delete a durable cursor."""
    handle, name = scene.handle(), scene.random.choice(NAMES)
    if handle is not None:
        work = deleting(scene, handle, name, lambda: handle.ml.delete_cursor(name))
        scene.start(f"{handle} delete cursor {name}", work)


async def deleting(
    scene: Scene, handle: HandleModel, name: str, make: Callable[[], Awaitable[None]]
) -> None:
    """Delete a durable cursor by `make`."""
    busy = (handle.log, name)
    if busy in scene.busy:
        return
    scene.busy.add(busy)
    model = handle.log.cursors.setdefault(name, CursorModel(name))
    attempt = scene.attempt(handle)
    did_exist = model.exists.copy()
    model.exists.add(False)
    try:
        await make()
    except CursorNotFound:
        check(did_exist != {True} or model.is_vague, f"{model}: exists, but was not found")
        if not model.is_vague:
            model.exists = {False}
    except (CancelledError, LedgerError) as error:
        _leave(scene, attempt, model, did_exist, error)
    else:
        check(not attempt.was_lost, f"{handle}: a stale handle deleted cursor {name}")
        check(did_exist != {False}, f"{handle}: deleted cursor {name}, which does not exist")
        scene.trace_line(f"{handle} deleted cursor {name}")
        if handle.log.handle is handle:
            handle.log.cursors[name] = CursorModel(name)
    finally:
        scene.busy.discard(busy)


def _leave(
    scene: Scene,
    attempt: Attempt,
    model: CursorModel,
    did_exist: set[bool],
    error: BaseException,
) -> None:
    """Record a failed or cancelled call; a new handle may already know its outcome."""
    is_current = attempt.handle.log.handle is attempt.handle
    if isinstance(error, StorageFailed):
        if is_current and not model.is_vague:
            model.exists = did_exist
    elif is_current:
        model.is_vague = True
    if isinstance(error, LedgerError):
        scene.trace_line(f"{attempt.handle} cursor {model.name}: {error}")
        scene.explain(attempt, error)
        return
    raise error


def open_non_durable(scene: Scene) -> None:
    """Open a non-durable cursor."""
    handle = scene.handle()
    if handle is not None and len(handle.non_durable) < NON_DURABLE_MAX:
        start = scene.random.choice((None, EARLIEST, LATEST, scene.position(handle.log)))
        scene.start(
            f"{handle} open a non-durable cursor after {start}", _making(scene, handle, start)
        )


async def _making(scene: Scene, handle: HandleModel, start: Position | None) -> None:
    attempt, lac = scene.attempt(handle), handle.ml.last_confirmed_entry
    try:
        cursor = await handle.ml.new_non_durable_cursor(start)
    except LedgerError as error:
        scene.explain(attempt, error)
        return
    check(not attempt.was_lost, f"{handle}: a stale handle opened a cursor")
    before = EARLIEST if start == EARLIEST else min(lac if start is None else start, lac).successor
    model = CursorModel(cursor.name)
    model.made(handle, cursor, [AcknowledgedSet(before)])
    handle.non_durable.append(model)


def find_cursors(handle: HandleModel, ranges_max: int) -> None:
    """Compare the durable cursors of a new handle with those that must exist."""
    models = handle.log.cursors
    for name in sorted({*models, *handle.ml.cursors}):
        model = models.setdefault(name, CursorModel(name))
        cursor = handle.ml.cursors.get(name)
        is_there = cursor is not None
        may_be = is_there in model.exists or model.is_vague
        check(may_be, f"{handle}: cursor {name} exists: {is_there}")
        if cursor is None:
            models[name] = CursorModel(name)
        elif model.handle is None:
            model.adopted(handle, cursor)
        else:
            model.found(handle, cursor, ranges_max)


def adopt_cursors(handle: HandleModel) -> None:
    """Adopt the durable cursors of a handle as they are: nothing was guaranteed."""
    handle.log.cursors = {name: CursorModel(name) for name in handle.ml.cursors}
    for name, cursor in handle.ml.cursors.items():
        handle.log.cursors[name].adopted(handle, cursor)


def settle_cursors(handle: HandleModel) -> None:
    """Nothing fails any more, and time has passed: what callers went on with is durable."""
    for model in handle.log.cursors.values():
        if model.handle is handle and handle.is_usable:
            model.settled()


def check_cursors(handle: HandleModel) -> None:
    """Compare all cursors of a handle with their models."""
    models = [*handle.log.cursors.values(), *handle.non_durable]
    positions = handle.positions() if models else ()
    for model in models:
        model.check(positions)


def use_of(model: CursorModel) -> CursorUse | None:
    """Return the record of a cursor; None if there is none."""
    if model.cursor is None or model.handle is None:
        return None
    return CursorUse(model, model.cursor, model.handle)
