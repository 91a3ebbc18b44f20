"""Recovery: what a new store finds after a crash, a clean end, or another store.

Rule: acknowledged writes exist. Of the unreported ones a prefix of the stream may exist, and what
is not found now never appears.
Must not know: how the previous store ended.
"""

from collections.abc import Sequence
from itertools import pairwise

from kledger.ledger import (
    EARLIEST,
    Entry,
    LedgerInfo,
    LedgerState,
    LedgerStore,
    ManagedLedgerConfig,
)
from tests.simulation import whole
from tests.simulation.compacting import adopt, check_compacted
from tests.simulation.cursors import adopt_cursors, find_cursors
from tests.simulation.invariants import InvariantBroken, check
from tests.simulation.log_model import HandleModel, LogModel, Write, WriteOutcome, check_removal
from tests.simulation.scene import Scene
from tests.simulation.store_model import StoreModel, apply_rows


async def recover(scene: Scene) -> None:
    """Open everything, compare it with the model, and settle unknown outcomes."""
    model, store = scene.model, scene.store
    if model.may_lack_acknowledged:
        await accept_loss(scene)
        model.may_lack_acknowledged = False
        return
    before = {name: log.handle for name, log in model.logs.items()}
    whole.check_names(model, store)
    for name in model.logs:
        if model.logs[name].exists == {False}:
            model.logs[name] = LogModel(name)
            continue
        ml = await store.open_managed_ledger(name, config=ManagedLedgerConfig())
        known = model.logs[name]
        log = model.logs[name] = known.succeeded_by(ml)
        note_removed(scene, log, before[name], {info.ledger_id for info in ml.ledgers})
        handle = model.opened(log, ml, ManagedLedgerConfig())
        await whole.check_log(model, handle, scene.random)
        await check_compacted(model, store, handle)
        if log is known:
            find_cursors(handle, scene.profile.store.cursor_ranges_max)
        else:
            adopt_cursors(handle)
    settle_stream(scene, store)
    whole.check_rows(model, store)
    for write in model.writes.values():
        if write.outcome in {WriteOutcome.WAITING, WriteOutcome.UNKNOWN}:
            write.outcome = WriteOutcome.REFUSED


async def accept_loss(scene: Scene) -> None:
    """Check a power cut without syncs, which also undoes acknowledged writes, removals and
    deletions.

    The rest is the state of one moment: a contiguous part of each managed ledger, and both rows of
    a pair or neither.
    """
    model, store = scene.model, scene.store
    names = store.managed_ledger_names()
    for name in model.logs:
        log = model.logs[name] = LogModel(name)
        if name in names:
            log.exists = {True}
            ml = await store.open_managed_ledger(name, config=ManagedLedgerConfig())
            log.ended = {ml.state is LedgerState.TERMINATED}
            log.properties = {key: {value} for key, value in ml.properties.items()}
            entries = await ml.read_entries(EARLIEST, 1 << 30)
            check_run(model, name, entries)
            for entry in entries:
                log.keep(entry.position, entry.data)
                write = model.write_of(entry.data)
                if write is not None:
                    write.outcome = WriteOutcome.KEPT  # unknown outcomes are settled by what exists
            adopt(model, log, ml)
            handle = model.opened(log, ml, ManagedLedgerConfig())
            await whole.check_log(model, handle, scene.random)
            adopt_cursors(handle)
    model.unknown = []
    rows = dict(store.scan_rows())
    model.row_choices = {key: {rows.pop(key, None)} for key in model.row_choices}
    model.rows = rows
    for key, value in rows.items():
        other = key.replace(b"left", b"right")
        check(
            rows.get(other) == value, f"row {key!r}: {value!r} and {rows.get(other)!r} are no pair"
        )


def check_run(model: StoreModel, name: str, entries: Sequence[Entry]) -> None:
    """Check that a managed ledger has a contiguous part of its entries, and no refused one."""
    if not entries:
        return
    writes = [model.write_of(entry.data) for entry in entries]
    had = writes[-1].log if writes[-1] is not None else None
    assert had is not None
    for write, (position, data) in zip(writes, entries, strict=True):
        assert write is not None
        is_its_own = write.log is not None and write.log.name == name and write.data == data
        check(is_its_own, f"{name} {position}: {write} does not belong here")
        check(
            write.position in {None, position}, f"{name} {position}: {write} has another position"
        )
        check(write.outcome is not WriteOutcome.REFUSED, f"{name} {position}: {write} was refused")
    known = [entry.position for entry in entries if entry.position in had.data]
    if known:
        first = had.order.index(known[0])
        expected = had.order[first : first + len(known)]
        check(known == expected, f"{name}: the entries have a gap: {known}")


def note_removed(scene: Scene, log: LogModel, before: HandleModel | None, listed: set[int]) -> None:
    """Check that ledgers whose removal was not reported were removed for a reason."""
    missing = {position.ledger_id for position in log.present()} - listed
    if not missing:
        return
    infos = before.infos if before else ()
    removed = [info for info in infos if info.ledger_id in missing]
    if before is None or len(removed) < len(missing) or missing & set(_behind(infos, listed)):
        raise InvariantBroken(
            f"{log.name}: ledgers {sorted(missing)} are missing, listed {sorted(listed)}"
        )
    total = sum(info.size for info in infos)
    check_removal(before, removed, total, scene.clock.now_ms())
    log.note_gone(missing)


def _behind(infos: tuple[LedgerInfo, ...], listed: set[int]) -> list[int]:
    """Return the ledgers after one that is still listed."""
    kept = [info.ledger_id for info in infos if info.ledger_id in listed]
    return [info.ledger_id for info in infos if kept and info.ledger_id > kept[0]]


def settle_stream(scene: Scene, store: LedgerStore) -> None:
    """Check that the unreported writes that exist are a prefix of the submitted ones.

    For an entry, reading shows whether it exists. For rows without an entry, the state of all rows
    must match one of the possible ends of the stream.
    """
    model = scene.model
    unknown, model.unknown = model.unknown, []
    entries = [write for write in unknown if _is_shown_by(model, write)]
    for earlier, later in pairwise(entries):
        if later.outcome is WriteOutcome.KEPT and earlier.outcome is not WriteOutcome.KEPT:
            raise InvariantBroken(f"{later} survived, {earlier} before it did not")
    found = {k: v for k, v in store.scan_rows() if k not in model.row_choices}
    rows, fits = dict(model.rows), False
    for end in range(len(unknown) + 1):
        fits = fits or (rows == found and _may_end(model, unknown, end))
        if end < len(unknown):
            apply_rows(rows, unknown[end].rows)
    if not fits:
        raise InvariantBroken(
            f"rows {found} match no prefix of the stream, acknowledged {model.rows}"
        )
    model.rows = found


def _is_shown_by(model: StoreModel, write: Write) -> bool:
    """Return whether reading shows if a write exists: its managed ledger still does."""
    return write.log is not None and model.logs[write.log.name] is write.log


def _may_end(model: StoreModel, unknown: list[Write], end: int) -> bool:
    """Return whether the stream may have ended there, given the existing entries."""
    return all(
        (write.outcome is WriteOutcome.KEPT) == (index < end)
        for index, write in enumerate(unknown)
        if _is_shown_by(model, write)
    )
