"""Writing: entries and rows, by every call that accepts them.

Rule: an outcome is recorded in the model at once, in the callback itself.
Must not know: how the model checks it.
"""

from asyncio import CancelledError

from kledger.ledger import AlreadyClosed, Fenced, LedgerError, Position, StorageFailed
from tests.simulation.invariants import check
from tests.simulation.log_model import HandleModel, Write, WriteOutcome
from tests.simulation.scene import Scene

SIZES = (0, 0, 5, 20, 60, 260)
PAIRS = 3


def append(scene: Scene) -> None:
    """Append some entries in one tick."""
    handle = scene.handle()
    if handle is not None:
        for _ in range(scene.random.choice((1, 1, 1, 2, 5, 12))):
            append_one(scene, handle)


def append_one(scene: Scene, handle: HandleModel) -> None:
    """Append an entry, at times with rows; its callback may append at once."""
    random = scene.random
    rows = []
    if random.random() < 0.3:
        key = b"log/" + handle.log.name.encode()
        rows.append((key, None if random.random() < 0.1 else b"%d" % random.randrange(1000)))
    write = scene.model.new_write(handle, random.choice(SIZES), rows, scene.keys())
    appends_again = random.random() < 0.05
    attempt = scene.attempt(handle)

    def done(position: Position, error: LedgerError | None) -> None:
        scene.trace_line(f"completed {write} {position} {error or 'kept'}")
        if isinstance(error, Fenced):
            check(scene.may_be_lost(attempt), f"{handle}: fenced without a reason")
        scene.model.completed(write, position, error)
        if appends_again:
            append_one(scene, handle)
        scene.ask_for_fault("completion", handle)

    try:
        position = handle.ml.append_nowait(write.data, 1, scene.clock.now_ms(), done, rows)
    except LedgerError as error:
        write.outcome = WriteOutcome.REFUSED
        scene.explain(attempt, error)
        scene.trace_line(f"{handle} refused {write}: {error}")
    else:
        scene.trace_line(f"{handle} append {write} at {position}, {len(write.data)} bytes")
        scene.model.submitted(write, position)


def add(scene: Scene) -> None:
    """Call add_entry, and wait for it in the background."""
    handle = scene.handle()
    if handle is not None:
        write = scene.model.new_write(handle, scene.random.choice(SIZES), keys=scene.keys())
        scene.start(f"{handle} add {write}", _adding(scene, handle, write))


async def _adding(scene: Scene, handle: HandleModel, write: Write) -> None:
    attempt = scene.attempt(handle)
    handle.adds.append(write)
    write.now_ms = scene.clock.now_ms()
    try:
        position = await handle.ml.add_entry(write.data)
    except CancelledError:
        if write.outcome is WriteOutcome.WAITING:
            write.outcome = WriteOutcome.UNKNOWN
        raise
    except LedgerError as error:
        scene.trace_line(f"{handle} refused {write}: {error}")
        is_unknown = isinstance(error, Fenced | AlreadyClosed) and not attempt.was_lost
        check(
            is_unknown or write.outcome is not WriteOutcome.KEPT,
            f"{write}: exists, but was refused",
        )
        if write.outcome is WriteOutcome.WAITING:
            write.outcome = WriteOutcome.UNKNOWN if is_unknown else WriteOutcome.REFUSED
        scene.explain(attempt, error)
    else:
        scene.trace_line(f"{handle} added {write} at {position}")
        check(not attempt.was_lost, f"{handle}: a stale handle added {position}")
        scene.model.added(write, position)


def append_rows(scene: Scene) -> None:
    """Write a pair of rows atomically, in the stream of the appends."""
    number = scene.random.randrange(PAIRS)
    write = scene.model.new_write(None, 0)
    value = None if scene.random.random() < 0.2 else write.data
    write.rows = [(b"pair/%d/%b" % (number, side), value) for side in (b"left", b"right")]

    def done(error: LedgerError | None) -> None:
        scene.trace_line(f"completed {write} {error or 'kept'}")
        scene.model.completed(write, None, error)
        scene.faults.ask("completion")  # closes nothing: rows belong to no unit of failure

    is_lazy = scene.random.random() < 0.3
    store = scene.store
    try:
        (store.append_rows_lazily if is_lazy else store.append_rows_nowait)(write.rows, done)
    except (Fenced, AlreadyClosed):
        check(scene.may_refuse(store), "rows were refused without a reason")
        write.outcome = WriteOutcome.REFUSED
    else:
        scene.trace_line(f"rows {write} {number}{' lazily' if is_lazy else ''}")
        scene.model.submitted(write)


def put_rows(scene: Scene) -> None:
    """Call put_rows; one call at a time for each key, so that the last value is known."""
    key = b"put/%d" % scene.random.randrange(PAIRS)
    if key not in scene.busy:
        scene.busy.add(key)
        scene.start(f"put {key!r}", _putting(scene, key))


async def _putting(scene: Scene, key: bytes) -> None:
    value = b"%d" % scene.random.randrange(1 << 30)
    choices = scene.model.row_choices.setdefault(key, {None})
    choices.add(value)
    store = scene.store
    try:
        await store.put_rows([(key, value)])
    except StorageFailed:
        check(scene.faults.count, "rows were not stored, without a reason")
        choices.discard(value)
    except (Fenced, AlreadyClosed):
        check(scene.may_refuse(store), "put_rows was refused without a reason")
    else:
        choices.clear()
        choices.add(value)
    finally:
        scene.busy.discard(key)


def flush(scene: Scene) -> None:
    """Call flush: all callbacks of earlier writes have run when it returns."""
    scene.start("flush", _flushing(scene))


async def _flushing(scene: Scene) -> None:
    stream = scene.model.stream
    last = stream[-1].serial if stream else 0
    await scene.store.flush()
    check(not stream or stream[0].serial > last, "flush returned before earlier callbacks ran")


def await_drained(scene: Scene) -> None:
    """Register for a call when the queue has room again."""
    if scene.store.is_saturated:
        scene.undrained += 1
        scene.trace_line("on_drained")

        def drained() -> None:
            scene.undrained -= 1

        scene.store.on_drained(drained)
