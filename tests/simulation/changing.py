"""Changing: owners, rollovers, removals, terminations and properties of managed ledgers.

Rule: the possible states are recorded before the call. A success leaves one of them, a failure that
means "nothing was stored" restores the old one, and after any other failure all stay possible until
the state is observed.
Must not know: how the model checks it.
"""

from asyncio import CancelledError
from collections.abc import Awaitable, Callable

from kledger.ledger import (
    AlreadyClosed,
    Corrupt,
    Fenced,
    LedgerError,
    LedgerState,
    StorageFailed,
)
from tests.simulation.cursors import adopt_cursors, find_cursors
from tests.simulation.invariants import check
from tests.simulation.log_model import HandleModel, LogModel, Removal
from tests.simulation.scene import Attempt, Scene
from tests.simulation.seed_profile import ledger_config

PROPERTIES = ("x", "y")
CREATES = 0.5
"""How often an opening tries first to create what it opens, without waiting for that."""


# Timers


def set_timer(scene: Scene) -> None:
    """Set a timer of the store or of subscriptions, whose callback may raise."""
    timers = scene.random.choice((scene.timers, scene.store._services.timers))
    delay_ms = scene.random.choice((0, 1, 20, 500))
    scene.trace_line(f"a timer in {delay_ms} ms")
    timers.call_after(delay_ms, lambda: scene.faults.ask("timer"))


# Owners


def open_log(scene: Scene, log: LogModel) -> None:
    """Open a managed ledger, or create it; its previous handle is fenced."""
    if scene.random.random() >= CREATES or not _create_at_once(scene, log.name):
        scene.start(f"open {log.name}", _opening(scene, log.name))


def _create_at_once(scene: Scene, name: str) -> bool:
    """Create a managed ledger that is used before it is durable; False if there is one."""
    store, model, config = scene.store, scene.model, ledger_config(scene.random)
    lost: list[LedgerError] = []

    def lose(error: LedgerError) -> None:
        scene.trace_line(f"{handle} was not created: {error}")
        check(scene.faults.count or scene.may_refuse(store), f"{handle}: fenced without a reason")
        lost.append(error)
        if not handle.is_stale:
            scene.retire(handle)
        is_known = isinstance(
            error, StorageFailed
        )  # else the store has stopped, and the outcome is unknown
        if is_known and store is scene.store and model.logs[name] is log:
            fresh = model.logs[name] = LogModel(name)
            if scene.changing[name] or name in scene.orphans:  # an opening may create it yet
                fresh.exists.add(True)

    async def see_it_stored() -> None:
        await store.flush()
        # A deletion whose caller was cancelled continues, and may find what was created after it.
        may_change = scene.changing[name] or name in scene.orphans
        is_undecided = lost or may_change or store is not scene.store or store.is_fenced
        if not is_undecided and model.logs[name] is log:
            log.exists = {True}

    try:
        ml = store.create_managed_ledger_nowait(name, config=config, lost=lose)
    except (Fenced, AlreadyClosed) as error:
        check(scene.may_refuse(store), f"create {name}: {error} without a reason")
        return True
    if ml is None:
        return False
    check(False in model.logs[name].exists, f"{name} existed, and is created")
    log = model.logs[name] = LogModel(name)
    log.exists = {True, False}
    handle = model.opened(log, ml, config)
    adopt_cursors(handle)
    scene.start(f"created {handle} {config}", see_it_stored())
    return True


async def _opening(scene: Scene, name: str) -> None:
    config = ledger_config(scene.random)
    store, number, log = scene.store, next(scene.numbers), scene.model.logs[name]
    did_exist = log.exists.copy()
    scene.changing[name] += 1
    log.exists.add(True)
    try:
        ml = await store.open_managed_ledger(name, config=config)
    except CancelledError:
        _lose(scene, scene.model.logs[name], number)
        raise
    except (StorageFailed, Corrupt) as error:
        scene.trace_line(f"open {name} failed: {error}")
        check(scene.faults.count, f"{name}: was not opened, without a reason")
        # One that was created at once meanwhile is another one.
        if scene.changing[name] == 1 and not scene.orphans and scene.model.logs[name] is log:
            log.exists = did_exist
    except (Fenced, AlreadyClosed) as error:
        scene.trace_line(f"open {name} failed: {error}")
        check(scene.may_refuse(store), f"{name}: {error} without a reason")
    else:
        check(store is scene.store, f"{name}: a store that was replaced opened it")
        before = scene.model.logs[name]
        log = scene.model.logs[name] = before.succeeded_by(ml)
        if log.handle is not None:
            scene.retire(log.handle)
        handle = scene.model.opened(log, ml, config)
        _listen(scene, handle)
        if log is before:
            find_cursors(handle, scene.profile.store.cursor_ranges_max)
        else:
            adopt_cursors(handle)
        handle.is_losing = _has_later_orphan(scene, name, number)
        log.may_be_deleted = handle.is_losing or scene.changing[name] > 1
        log.exists = {True, not log.may_be_deleted}
        scene.trace_line(f"opened {handle} {config}")
    finally:
        scene.changing[name] -= 1
        _retire_fenced(scene, scene.model.logs[name])


def _listen(scene: Scene, handle: HandleModel) -> None:
    """Add a listener to a handle; a listener that raises closes the handle, or nothing."""
    ml = handle.ml
    if scene.random.random() < 0.5:
        ml.add_listener(lambda: scene.faults.ask("listener"))
    else:
        ml.add_listener(lambda: scene.ask_for_fault("listener", handle), ml)


def close_handle(scene: Scene) -> None:
    """Close a handle."""
    handle = scene.handle()
    if handle is not None:
        handle.is_losing = True
        scene.start(f"close {handle}", _closing(scene, handle))


async def _closing(scene: Scene, handle: HandleModel) -> None:
    await handle.ml.close()
    waiting = [write for write in scene.model.stream if write.handle is handle]
    check(not waiting, f"{handle} is closed, and a caller still waits for an append")
    if not handle.is_stale:
        scene.retire(handle)


def delete(scene: Scene) -> None:
    """Delete a managed ledger."""
    log = scene.log()
    if scene.random.random() < 0.5:
        scene.start(f"delete {log.name}", _deleting(scene, log.name))


async def _deleting(scene: Scene, name: str) -> None:
    store, number = scene.store, next(scene.numbers)
    log = scene.model.logs[name]
    did_exist, may_be_deleted = log.exists.copy(), log.may_be_deleted
    scene.changing[name] += 1
    log.exists.add(False)
    log.may_be_deleted = True
    try:
        await store.delete_managed_ledger(name)
    except CancelledError:
        _lose(scene, scene.model.logs[name], number)
        raise
    except (StorageFailed, Corrupt) as error:
        scene.trace_line(f"delete {name} failed: {error}")
        check(scene.faults.count, f"{name}: was not deleted, without a reason")
        if scene.changing[name] == 1 and not scene.orphans:
            log.exists, log.may_be_deleted = did_exist, may_be_deleted
    except (Fenced, AlreadyClosed) as error:
        scene.trace_line(f"delete {name} failed: {error}")
        check(scene.may_refuse(store), f"{name}: {error} without a reason")
    else:
        check(store is scene.store, f"{name}: a store that was replaced deleted it")
        scene.trace_line(f"deleted {name}")
        if _was_created_since(log, scene.model.logs[name]):
            return
        log = _forget(scene, scene.model.logs[name])
        may_be_opened = _has_later_orphan(scene, name, number) or scene.changing[name] > 1
        log.exists = {False, may_be_opened}
    finally:
        scene.changing[name] -= 1
        _retire_fenced(scene, scene.model.logs[name])


def _was_created_since(before: LogModel, now: LogModel) -> bool:
    """Return whether a deletion had ended when an existing ledger of that name was created.

    `create_nowait` does not wait, so it may run before the caller of the deletion gets its result;
    a later deletion would have been reported to the handle.
    """
    handle = now.handle
    if now is before or handle is None or handle.is_stale or handle.is_losing:
        return False
    return not handle.ml._handle_state.is_deleted


def _forget(scene: Scene, log: LogModel) -> LogModel:
    """Record the deletion of a managed ledger; the next one of that name is another one."""
    if log.handle is not None:
        scene.retire(log.handle)
    scene.model.logs[log.name] = LogModel(log.name)
    return scene.model.logs[log.name]


def _has_later_orphan(scene: Scene, name: str, number: int) -> bool:
    """Return whether a later opening or deletion still runs; earlier ones have ended."""
    return scene.orphans.get(name, -1) > number


def _lose(scene: Scene, log: LogModel, number: int) -> None:
    """Record that an operation continues without its caller, so its outcome stays unknown."""
    scene.orphans[log.name] = max(number, scene.orphans.get(log.name, -1))
    if log.handle is not None:
        log.handle.is_losing = True


def _retire_fenced(scene: Scene, log: LogModel) -> None:
    """Record that a failed opening or deletion may have fenced the owner."""
    handle = log.handle
    if handle is None or handle.is_stale or handle.is_losing or scene.changing[log.name]:
        return
    if handle.ml.state is LedgerState.FENCED:
        scene.retire(handle)


# Ledgers


def roll_over(scene: Scene) -> None:
    """Roll over to a new ledger."""
    _change(scene, "roll over", _rolling)


async def _rolling(scene: Scene, handle: HandleModel) -> None:
    await handle.ml.roll_over()


def remove_ledgers(scene: Scene) -> None:
    """Trim, truncate, or remove everything before a position."""
    kind = scene.random.choice(("trim", "truncate", "trim before"))
    handle = scene.handle()
    if handle is None:
        return
    before = scene.position(handle.log)

    async def removing(scene: Scene, handle: HandleModel) -> None:
        if kind == "trim":
            await handle.ml.trim()
        elif kind == "truncate":
            await _removing(handle, Removal(None), handle.ml.truncate())
        else:
            handle.log.raised = max(handle.log.raised, before)
            await _removing(handle, Removal(before), handle.ml.trim_before(before))

    scene.start(f"{handle} {kind} {before}", _changing(scene, handle, kind, removing))


async def _removing(handle: HandleModel, removal: Removal, call: Awaitable[None]) -> None:
    handle.removals.append(removal)
    try:
        await call
    except StorageFailed:
        handle.removals.remove(removal)
        raise
    handle.removals.remove(removal)


def terminate(scene: Scene) -> None:
    """Terminate a managed ledger."""
    if scene.random.random() < 0.3:
        _change(scene, "terminate", _terminating)


async def _terminating(scene: Scene, handle: HandleModel) -> None:
    log = handle.log
    if (log, "end") in scene.busy:
        return
    scene.busy.add((log, "end"))
    did_end = log.ended.copy()
    log.ended.add(True)
    try:
        end = await handle.ml.terminate()
    except StorageFailed:
        log.ended = did_end
        raise
    finally:
        scene.busy.discard((log, "end"))
    log.ended = {True}
    lac = handle.ml.last_confirmed_entry
    check(end == lac, f"{handle}: terminated at {end}, the last confirmed entry is {lac}")


# The rest


def set_property(scene: Scene) -> None:
    """Set or delete a property; one caller at a time for each."""
    _change(scene, "set property", _setting)


async def _setting(scene: Scene, handle: HandleModel) -> None:
    log, key = handle.log, scene.random.choice(PROPERTIES)
    if (log, key) in scene.busy:
        return
    scene.busy.add((log, key))
    value = None if scene.random.random() < 0.2 else str(scene.random.randrange(1 << 30))
    choices = log.properties.setdefault(key, {None})
    before = choices.copy()
    choices.add(value)
    try:
        await handle.ml.set_property(key, value)
    except StorageFailed:
        log.properties[key] = before
        raise
    finally:
        scene.busy.discard((log, key))
    log.properties[key] = {value}


def reconfigure(scene: Scene) -> None:
    """Change the configuration of a handle."""
    handle = scene.handle()
    if handle is not None:
        config = ledger_config(scene.random)
        handle.configs.append(config)
        scene.trace_line(f"{handle} {config}")
        handle.ml.reconfigure(config)


def _change(
    scene: Scene, what: str, change: Callable[[Scene, HandleModel], Awaitable[None]]
) -> None:
    handle = scene.handle()
    if handle is not None:
        scene.start(f"{handle} {what}", _changing(scene, handle, what, change))


async def _changing(
    scene: Scene,
    handle: HandleModel,
    what: str,
    change: Callable[[Scene, HandleModel], Awaitable[None]],
) -> None:
    """Make one change through a handle that may be fenced by now."""
    attempt: Attempt = scene.attempt(handle)
    try:
        await change(scene, handle)
    except LedgerError as error:
        scene.trace_line(f"{handle} {what} failed: {error}")
        scene.explain(attempt, error)
    else:
        scene.trace_line(f"{handle} {what} done")
