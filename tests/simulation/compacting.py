"""Compacting: writes compacted ledgers, and reads them.

Rule: as a partition does it: one compaction of a handle at a time, which is aborted if it does not
complete. Its row becomes durable with it. Whatever ends it, the old state or the new one is there
as a whole, the cursor of compactions has the horizon, and the next opening leaves no garbage.
Must not know: what a compaction keeps, and why.
"""

from contextlib import suppress

from kledger.ledger import (
    EARLIEST,
    CompactedLedgerReplaced,
    CompactionRunning,
    CompactionWriter,
    LedgerError,
    LedgerStore,
    ManagedLedger,
    NewEntry,
    ResetInProgress,
    StorageFailed,
)
from kledger.ledger.metadata import keys
from kledger.ledger.metadata.records import decode_managed_ledger
from tests.simulation.compaction_model import CompactedState
from tests.simulation.engine import SimulatedEngine
from tests.simulation.invariants import InvariantBroken, check
from tests.simulation.log_model import HandleModel, LogModel
from tests.simulation.scene import Scene
from tests.simulation.store_model import StoreModel

ABORTS = 0.15
CONTINUES_AFTER_FAILURE = 0.3
RETRIES = 2
ENTRIES_MAX = 12
PADDINGS = (0, 3, 40)


def row_key(name: str) -> bytes:
    """Return the key of the row that compactions of a managed ledger write."""
    return b"compacted/" + name.encode()


def compact(scene: Scene) -> None:
    """Compact a managed ledger up to some entry."""
    handle = scene.handle()
    if handle is not None:
        scene.start(f"{handle} compact", _compacting(scene, handle))


async def _compacting(scene: Scene, handle: HandleModel) -> None:
    attempt, was_running = scene.attempt(handle), handle.ml.is_compacting
    try:
        writer = await handle.ml.begin_compaction()
    except CompactionRunning as error:
        check(was_running, f"{handle}: {error}, which is wrong")
        return
    except LedgerError as error:
        scene.trace_line(f"{handle} compact failed: {error}")
        scene.explain(attempt, error)
        return
    check(not was_running, f"{handle}: two compactions run")
    check(not attempt.was_lost, f"{handle}: a stale handle begins a compaction")
    if handle.log.handle is handle:
        handle.log.compaction.has_cursor = True
    try:
        await _write(scene, handle, writer)
    except LedgerError as error:
        scene.trace_line(f"{handle} compact failed: {error}")
        scene.explain(attempt, error)
    finally:
        with suppress(LedgerError):
            await writer.abort()


async def _write(scene: Scene, handle: HandleModel, writer: CompactionWriter) -> None:
    state = _next_state(scene, handle, writer.ledger_id)
    if state is None:
        return
    remaining = [NewEntry(position, (data,)) for position, data in state.entries]
    while remaining:
        count = scene.random.randint(1, len(remaining))
        try:
            await writer.append(remaining[:count])
        except StorageFailed:
            if scene.random.random() < CONTINUES_AFTER_FAILURE:
                await _complete(scene, handle, writer, state)
                raise InvariantBroken(f"{handle}: {state} lacks entries, and is complete") from None
            raise
        del remaining[:count]
        await scene.clock.sleep(scene.random.choice((0, 0, 1, 10)))
    if scene.random.random() >= ABORTS:
        await _complete(scene, handle, writer, state)
        scene.trace_line(f"{handle} compacted into {writer.ledger_id} up to {state.horizon}")
        if scene.model.logs[handle.log.name] is handle.log:
            scene.model.observe(handle)
            handle.log.compaction.completed(state)


def _next_state(scene: Scene, handle: HandleModel, ledger_id: int) -> CompactedState | None:
    """Draw what a compaction keeps; None if there is nothing to compact."""
    before = handle.ml.compacted
    horizon_min = EARLIEST if before is None else before.horizon
    horizons = handle.log.between(horizon_min, handle.ml.last_confirmed_entry)
    if not horizons:
        return None
    horizon = scene.random.choice(horizons)
    known = [each for each in handle.log.order if each <= horizon][-ENTRIES_MAX:]
    count = scene.random.randint(0, len(known))
    padding = b"." * scene.random.choice(PADDINGS)
    kept = (
        (each, b"%d from %s%s" % (ledger_id, str(each).encode(), padding))
        for each in sorted(scene.random.sample(known, count))
    )
    return CompactedState(ledger_id, horizon, tuple(kept))


async def _complete(
    scene: Scene, handle: HandleModel, writer: CompactionWriter, state: CompactedState
) -> None:
    """Complete a compaction; a failed completion may be repeated."""
    compaction, row = handle.log.compaction, b"%d" % state.ledger_id
    choices = scene.model.row_choices.setdefault(row_key(handle.log.name), {None})
    for left in reversed(range(RETRIES)):
        choices.add(row)
        compaction.begin_completion(state)
        scene.model.compacted_states[state.ledger_id] = state
        try:
            await writer.complete(state.horizon, [(row_key(handle.log.name), row)])
        except (StorageFailed, ResetInProgress):
            compaction.refused(state)
            choices.discard(row)
            if not left:
                raise
        else:
            return


# Reading


def read_compacted(scene: Scene) -> None:
    """Read some compacted entries, or search for a position."""
    handle = scene.handle()
    if handle is not None and handle.ml.compacted is not None:
        scene.start(f"{handle} read compacted", _reading(scene, handle))


async def _reading(scene: Scene, handle: HandleModel) -> None:
    attempt, compacted = scene.attempt(handle), handle.ml.compacted
    if compacted is None:
        return
    state = scene.model.compacted_states[compacted.ledger_id]
    random, reader = scene.random, handle.ml.compacted_reader
    first, count = random.randint(0, len(state.entries)), random.choice((1, 3, 100))
    position = scene.position(handle.log)
    try:
        if random.random() < 0.3:
            number = await reader.find(compacted, position)
            expected = sum(each < position for each, _ in state.entries)
            check(number == expected, f"{state}: {position} is found at {number}, not {expected}")
        else:
            found = await reader.read(compacted, first, count=count)
            is_behind = first == len(state.entries)
            check(bool(found) != is_behind, f"{state}: {len(found)} entries from {first} on")
            state.check_entries(first, found)
    except CompactedLedgerReplaced:
        check(handle.ml.compacted != compacted, f"{state} is still the present one")
    except LedgerError as error:
        scene.explain(attempt, error)


# Checks


def check_cursor(handle: HandleModel) -> None:
    """Check that the cursor of compactions has acknowledged everything up to the horizon."""
    ml = handle.ml
    cursor, compacted = ml.compaction_cursor, ml.compacted
    if not handle.is_usable:
        return
    if cursor is None:
        is_expected = compacted is not None or handle.log.compaction.has_cursor
        check(not is_expected, f"{handle} has no cursor of compactions")
    elif not cursor.revision.is_running:
        horizon = EARLIEST if compacted is None else compacted.horizon
        behind = sum(each > horizon for each in handle.positions())
        check(
            cursor.backlog == behind,
            f"{handle}: the backlog of compactions is {cursor.backlog}, "
            f"{behind} entries are behind horizon {horizon}",
        )


async def check_compacted(model: StoreModel, store: LedgerStore, handle: HandleModel) -> None:
    """Compare the compacted ledger as a whole; nothing changes meanwhile."""
    ml, row = handle.ml, store.get_row(row_key(handle.log.name))
    handle.log.compaction.see(ml.compacted)
    state = handle.log.compaction.present
    if state is None:
        stored = model.compacted_states.get(int(row)) if row is not None else None
        was_here = stored is not None and handle.log.compaction.has_seen(stored)
        check(not was_here, f"{handle}: a row says {row!r}, and nothing is compacted")
        return
    check(row == b"%d" % state.ledger_id, f"{handle}: {state} is there, its row is {row!r}")
    number = 0
    assert ml.compacted is not None
    while found := await ml.compacted_reader.read(ml.compacted, number, count=100):
        state.check_entries(number, found)
        number += len(found)
    check(number == len(state.entries), f"{state} has {number} entries")
    check_cursor(handle)


def adopt(model: StoreModel, log: LogModel, ml: ManagedLedger) -> None:
    """Accept what a loss has left: any state that a completion may have stored."""
    if ml.compacted is not None:
        state = model.compacted_states.get(ml.compacted.ledger_id)
        if state is None:
            raise InvariantBroken(f"{log.name}: {ml.compacted} was never completed")
        log.compaction.begin_completion(state)


def check_nothing_unfinished(engine: SimulatedEngine) -> None:
    """Check that openings have dropped what interrupted compactions had written."""
    for key, row in engine.scan(*keys.managed_ledger_range()):
        unfinished = decode_managed_ledger(row).compacting_id
        name = keys.managed_ledger_name(key)
        check(unfinished is None, f"{name} was opened and has {unfinished}, which is not complete")
