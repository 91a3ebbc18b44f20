"""Recovery: what a new store finds behind a crash, a clean end, or another store.

Rule: acknowledged is there. Of what nobody was told, a beginning of the stream may be there, as a
whole, and what is not found now never comes.
Must not know: how the store before ended.
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
from tests.simulation.cursors import adopt_cursors, find_cursors
from tests.simulation.invariants import InvariantBroken, check
from tests.simulation.log_model import HandleModel, LogModel, Write, WriteOutcome, check_removal
from tests.simulation.scene import Scene
from tests.simulation.store_model import StoreModel, apply_rows


async def recover(scene: Scene) -> None:
    """Open all that is there, compare it with what must be, and settle what was open."""
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
    """Without syncs a power cut takes back what was acknowledged, and removals and deletions, too.

    What is left is how things stood at one moment: of each managed ledger a run of what it had,
    and of a pair of rows both or none.
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
                    write.outcome = WriteOutcome.KEPT  # what was open is settled by what is there
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
    """What is left of a managed ledger is a run of what it had, and nothing that was refused."""
    if not entries:
        return
    writes = [model.write_of(entry.data) for entry in entries]
    had = writes[-1].log if writes[-1] is not None else None
    assert had is not None
    for write, (position, data) in zip(writes, entries, strict=True):
        assert write is not None
        is_its_own = write.log is not None and write.log.name == name and write.data == data
        check(is_its_own, f"{name} {position}: {write} does not belong here")
        check(write.position in {None, position}, f"{name} {position}: {write} has another place")
        check(write.outcome is not WriteOutcome.REFUSED, f"{name} {position}: {write} was refused")
    known = [entry.position for entry in entries if entry.position in had.data]
    if known:
        first = had.order.index(known[0])
        expected = had.order[first : first + len(known)]
        check(known == expected, f"{name}: what is left has a gap: {known}")


def note_removed(scene: Scene, log: LogModel, before: HandleModel | None, listed: set[int]) -> None:
    """Ledgers may have been removed without anybody being told: for a reason, all the same."""
    missing = {position.ledger_id for position in log.present()} - listed
    if not missing:
        return
    infos = before.infos if before else ()
    removed = [info for info in infos if info.ledger_id in missing]
    if before is None or len(removed) < len(missing) or missing & set(_behind(infos, listed)):
        raise InvariantBroken(
            f"{log.name}: ledgers {sorted(missing)} are gone, listed {sorted(listed)}"
        )
    total = sum(info.size for info in infos)
    check_removal(before, removed, total, scene.clock.now_ms())
    log.note_gone(missing)


def _behind(infos: tuple[LedgerInfo, ...], listed: set[int]) -> list[int]:
    """Return the ledgers that come after one that is still listed."""
    kept = [info.ledger_id for info in infos if info.ledger_id in listed]
    return [info.ledger_id for info in infos if kept and info.ledger_id > kept[0]]


def settle_stream(scene: Scene, store: LedgerStore) -> None:
    """What was written without anybody being told is a beginning of what was submitted.

    An entry says by itself whether it is there. Rows without an entry say it by the state that all
    rows together must be in: for one of the possible ends of the stream it fits.
    """
    model = scene.model
    unknown, model.unknown = model.unknown, []
    entries = [write for write in unknown if _tells(model, write)]
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
        raise InvariantBroken(f"rows {found} are those of no moment, acknowledged {model.rows}")
    model.rows = found


def _tells(model: StoreModel, write: Write) -> bool:
    """Tell whether a write says by itself that it is there: its managed ledger still exists."""
    return write.log is not None and model.logs[write.log.name] is write.log


def _may_end(model: StoreModel, unknown: list[Write], end: int) -> bool:
    """Tell whether the stream may have ended there, by the entries that are there."""
    return all(
        (write.outcome is WriteOutcome.KEPT) == (index < end)
        for index, write in enumerate(unknown)
        if _tells(model, write)
    )
