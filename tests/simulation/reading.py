"""Reading: cursorless reads of every kind, from any position, with any limit.

Rule: a read without a cursor never waits for entries and never fails without a reason.
Must not know: how entries are stored.
"""

from dataclasses import dataclass

from kledger.ledger import EARLIEST, LATEST, Entry, Fenced, InvalidPosition, LedgerError, Position
from tests.simulation.invariants import InvariantBroken, check
from tests.simulation.log_model import HandleModel
from tests.simulation.reads import ReadModel
from tests.simulation.scene import UNBOUNDED_WAITING, Attempt, Scene


@dataclass(frozen=True, slots=True)
class _Range:
    start: Position
    count: int
    upto: Position
    bytes_max: int | None

    @classmethod
    def drawn(cls, scene: Scene, handle: HandleModel) -> "_Range":
        random = scene.random
        return cls(
            start=EARLIEST if random.random() < 0.2 else scene.position(handle.log),
            count=random.choice((1, 1, 2, 4, 10, 1 << 30)),
            upto=LATEST if random.random() < 0.7 else scene.position(handle.log),
            bytes_max=None if random.random() < 0.6 else random.choice((1, 20, 100, 500)),
        )


def read(scene: Scene) -> None:
    """Call read_entries, and wait for it in the background."""
    handle = scene.handle()
    if handle is not None:
        range_ = _Range.drawn(scene, handle)
        what = f"{handle} read {range_.start} count {range_.count} upto {range_.upto}"
        scene.start(what, _reading(scene, handle, range_))


async def _reading(scene: Scene, handle: HandleModel, range_: _Range) -> None:
    attempt = scene.attempt(handle)
    read_model = _begin(scene, handle, range_)
    try:
        entries = await handle.ml.read_entries(
            range_.start, range_.count, range_.upto, bytes_max=range_.bytes_max
        )
    except LedgerError as error:
        scene.explain(attempt, error)
        scene.trace_line(f"{handle} read {range_.start} failed: {error}")
        return
    scene.trace_line(f"{handle} read {range_.start}: {_text(entries)}")
    check(not attempt.was_lost, f"{handle}: a stale handle returned entries")
    read_model.check(entries, may_be_partial=_may_be_partial(scene, attempt))


def read_cached(scene: Scene) -> None:
    """Call read_cached: it returns the whole result, or None."""
    handle = scene.handle()
    if handle is None:
        return
    range_ = _Range.drawn(scene, handle)
    attempt = scene.attempt(handle)
    read_model = _begin(scene, handle, range_)
    try:
        entries = handle.ml.read_cached(range_.start, range_.count, range_.bytes_max, range_.upto)
    except LedgerError as error:
        scene.explain(attempt, error)
        return
    if entries is not None:
        scene.trace_line(f"{handle} cached {range_.start}: {_text(entries)}")
        read_model.check(entries, may_be_partial=False)


def read_one(scene: Scene) -> None:
    """Call read_entry."""
    handle = scene.handle()
    if handle is not None:
        position = scene.position(handle.log)
        scene.start(f"{handle} read entry {position}", _reading_one(scene, handle, position))


async def _reading_one(scene: Scene, handle: HandleModel, position: Position) -> None:
    attempt = scene.attempt(handle)
    log, lac = handle.log, handle.ml.last_confirmed_entry
    try:
        entry = await handle.ml.read_entry(position)
    except InvalidPosition:
        if position <= lac and log.between(position, position):
            raise InvariantBroken(f"{handle}: {position} exists, but was called invalid") from None
    except LedgerError as error:
        if position.ledger_id > log.gone_upto:
            scene.explain(attempt, error)
    else:
        check(entry.position == position, f"{handle}: {position} was requested, {entry} returned")
        scene.model.recognise(log, position, entry.data)


def find(scene: Scene) -> None:
    """Call find_newest_matching with a predicate that holds up to some position."""
    handle = scene.handle()
    if handle is not None:
        upto = scene.position(handle.log)
        scene.start(f"{handle} find up to {upto}", _finding(scene, handle, upto))


async def _finding(scene: Scene, handle: HandleModel, upto: Position) -> None:
    attempt = scene.attempt(handle)
    log, lac, gone_upto = handle.log, handle.ml.last_confirmed_entry, handle.log.gone_upto
    try:
        found = await handle.ml.find_newest_matching(lambda entry: entry.position <= upto)
    except LedgerError as error:
        scene.explain(attempt, error)
        return
    scene.trace_line(f"{handle} found {found} up to {upto}")
    check(found is None or found <= upto, f"{handle}: {found} does not match up to {upto}")
    if gone_upto != log.gone_upto or _may_be_partial(scene, attempt):
        return
    newer = log.between(found.successor if found else EARLIEST, min(upto, lac))
    if newer:
        raise InvariantBroken(
            f"{handle}: {found} is not the newest up to {upto}, {newer[-1]} exists"
        )


def find_before(scene: Scene) -> None:
    """Call find_newest_before, with the time of some entry or one near it."""
    handle = scene.handle()
    if handle is not None and handle.log.order:
        known = handle.log.data[scene.random.choice(handle.log.order)]
        time_ms = scene.model.time_of(known) + scene.random.choice((-1, 0, 1, 10))
        scene.start(f"{handle} find before {time_ms}", _finding_before(scene, handle, time_ms))


async def _finding_before(scene: Scene, handle: HandleModel, time_ms: int) -> None:
    attempt = scene.attempt(handle)
    model, log, gone_upto = scene.model, handle.log, handle.log.gone_upto
    known = log.between(EARLIEST, handle.ml.last_confirmed_entry)
    try:
        found = await handle.ml.find_newest_before(time_ms, lambda each: model.time_of(each.data))
    except LedgerError as error:
        scene.explain(attempt, error)
        return
    scene.trace_line(f"{handle} found {found} before {time_ms}")
    if gone_upto != log.gone_upto or _may_be_partial(scene, attempt):
        return
    older = [each for each in known if model.time_of(log.data[each]) < time_ms]
    if older and (found is None or found < older[-1]):
        raise InvariantBroken(
            f"{handle}: {found} is not the newest before {time_ms}, {older[-1]} exists"
        )
    if found in log.data and model.time_of(log.data[found]) >= time_ms:
        raise InvariantBroken(f"{handle}: {found} is not from before {time_ms}")


def ask_stale(scene: Scene) -> None:
    """Check that a fenced handle refuses everything at once."""
    if not scene.stale:
        return
    handle = scene.random.choice(scene.stale)
    for what, ask in (
        ("appended", lambda: handle.ml.append_nowait(b"stale", 1, 0, _never_called)),
        ("read", lambda: handle.ml.read_cached(EARLIEST, 1)),
    ):
        try:
            ask()
        except LedgerError:
            continue
        raise InvariantBroken(f"{handle}: a stale handle {what}")
    scene.start(f"{handle} changes, stale", _changing_stale(handle))


async def _changing_stale(handle: HandleModel) -> None:
    ml = handle.ml
    for change in (ml.roll_over, ml.truncate, lambda: ml.set_property("stale", "yes")):
        try:
            await change()
        except LedgerError:
            continue
        raise InvariantBroken(f"{handle}: a stale handle changed something")
    try:
        await ml.read_entries(EARLIEST, 1)
    except Fenced:
        return
    raise InvariantBroken(f"{handle}: a stale handle returned entries")


def _begin(scene: Scene, handle: HandleModel, range_: _Range) -> ReadModel:
    return ReadModel.begin(
        scene.model,
        handle,
        range_.start,
        range_.count,
        bytes_max=range_.bytes_max,
        upto=range_.upto,
    )


def _may_be_partial(scene: Scene, attempt: Attempt) -> bool:
    return (
        scene.faults.was_recent("read", "tier", "tier hang")
        or scene.may_be_lost(attempt)
        or scene.profile.store.cold_reads_waiting_max < UNBOUNDED_WAITING
    )


def _text(entries: list[Entry]) -> str:
    if not entries:
        return "nothing"
    return f"{len(entries)} from {entries[0].position} to {entries[-1].position}"


def _never_called(position: Position, error: LedgerError | None) -> None:
    raise InvariantBroken(f"a refused append got the result {position} {error}")
