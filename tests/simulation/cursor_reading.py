"""Cursor reading: sequential reads, waiting reads and replays.

Rule: unacknowledged entries are returned in order and once, until a rewind; acknowledged ones are
not returned, and a read that began before a revision returns nothing after it.
Must not know: how entries are stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kledger.ledger import (
    LATEST,
    AlreadyClosed,
    ConcurrentWait,
    Entry,
    Fenced,
    InvalidPosition,
    LedgerError,
    NoMoreEntries,
    Position,
    ResetInProgress,
)
from tests.simulation.invariants import InvariantBroken, check
from tests.simulation.scene import Attempt, CursorUse, Scene

WAITS_MS = (1, 10, 100, 1000)
LOOKS_MAX = 40
"""Number of checks, one each half second, that a waiting read does not miss an entry."""


@dataclass(frozen=True, slots=True)
class _Limits:
    count: int
    bytes_max: int | None
    max_position: Position

    @classmethod
    def drawn(cls, scene: Scene, use: CursorUse) -> "_Limits":
        random = scene.random
        return cls(
            count=random.choice((1, 2, 3, 10, 1000)),
            bytes_max=None if random.random() < 0.7 else random.choice((1, 50, 300)),
            max_position=LATEST if random.random() < 0.9 else scene.position(use.handle.log),
        )

    def __str__(self) -> str:
        return f"count {self.count}, bytes {self.bytes_max}, upto {self.max_position}"


def read(scene: Scene) -> None:
    """Read from the read position on."""
    use = scene.cursor()
    if use is not None:
        limits = _Limits.drawn(scene, use)
        scene.start(f"{use} read {limits}", _reading(scene, use, limits))


async def _reading(scene: Scene, use: CursorUse, limits: _Limits) -> None:
    model, cursor, handle = use.model, use.cursor, use.handle
    model.follow()
    attempt, number = scene.attempt(handle), cursor.revision.number
    was_running = cursor.revision.is_running
    try:
        entries = await cursor.read(
            limits.count, max_bytes=limits.bytes_max, max_position=limits.max_position
        )
    except LedgerError as error:
        scene.trace_line(f"{use} read failed: {error}")
        _explain(scene, attempt, use, error, was_running)
        return
    scene.trace_line(f"{use} read: {_text(entries)}")
    check(not was_running, f"{use}: a read began while a revision ran")
    if cursor.revision.is_running or cursor.revision.number != number:
        check(not entries, f"{use}: a read from before a revision returns {_text(entries)}")
    elif model.cursor is cursor:
        _deliver(scene, attempt, use, limits, entries)


def read_or_wait(scene: Scene) -> None:
    """Read, or wait for an entry; another action ends the wait if none is appended."""
    use = scene.cursor()
    if use is not None:
        limits = _Limits.drawn(scene, use)
        retry_ms = scene.random.choice(WAITS_MS)
        scene.start(f"{use} wait {limits}", _waiting(scene, use, limits, retry_ms))


async def _waiting(scene: Scene, use: CursorUse, limits: _Limits, retry_ms: int) -> None:
    model, cursor, handle = use.model, use.cursor, use.handle
    model.follow()
    attempt, was_running = scene.attempt(handle), cursor.revision.is_running
    watch = _Watch(scene, use, limits)
    watch.look_in(retry_ms)
    try:
        entries = await cursor.read_or_wait(
            limits.count, max_bytes=limits.bytes_max, max_position=limits.max_position
        )
    except LedgerError as error:
        scene.trace_line(f"{use} wait failed: {error}")
        _explain(scene, attempt, use, error, was_running)
        return
    finally:
        watch.is_over = True
    scene.trace_line(f"{use} waited: {_text(entries)}")
    model.follow()
    if entries:
        check(not cursor.revision.is_running, f"{use}: returned while a revision runs")
        if model.cursor is cursor:
            _deliver(scene, attempt, use, limits, entries)
    else:
        check(cursor in scene.given_up, f"{use}: returned nothing, and was not cancelled")


class _Watch:
    """Ends a waiting read; before, checks that it does not wait although there is an entry."""

    def __init__(self, scene: Scene, use: CursorUse, limits: _Limits) -> None:
        self._scene = scene
        self._use = use
        self._limits = limits
        self._looks = 0
        self.is_over = False

    def look_in(self, ms: int) -> None:
        self._scene.loop.call_later(ms / 1000, self._look)

    def _look(self) -> None:
        if self.is_over:
            return
        self._looks += 1
        if not self._is_there_something():
            self._scene.given_up.add(self._use.cursor)
            self._use.cursor.cancel_pending_read()
        elif self._looks > LOOKS_MAX:
            self._scene.schedule.interrupt(
                InvariantBroken(f"{self._use}: waits although there is an entry")
            )
        self.look_in(500)

    def _is_there_something(self) -> bool:
        model, handle = self._use.model, self._use.handle
        if model.cursor is not self._use.cursor or not handle.is_usable:
            return False
        model.follow()  # the caller of a revision may have been cancelled
        end = min(self._limits.max_position, handle.ml.last_confirmed_entry)
        unacknowledged = model.acknowledged.unacknowledged_of(handle.positions())
        return any(model.unacknowledged_from <= each <= end for each in unacknowledged)


def replay(scene: Scene) -> None:
    """Replay some entries."""
    use = scene.cursor()
    if use is None:
        return
    count = scene.random.choice((1, 1, 2, 6))
    positions = [scene.position(use.handle.log) for _ in range(count)]
    what = f"{use} replay {' '.join(map(str, positions))}"
    scene.start(what, _replaying(scene, use, positions))


async def _replaying(scene: Scene, use: CursorUse, positions: Sequence[Position]) -> None:
    model, cursor, handle = use.model, use.cursor, use.handle
    model.follow()
    attempt, number = scene.attempt(handle), cursor.revision.number
    was_running, log = cursor.revision.is_running, handle.log
    known = [each for each in positions if log.between(each, each)]
    try:
        entries, acknowledged = await cursor.replay(positions)
    except InvalidPosition:
        check(set(positions) - set(known), f"{use}: all of {known} exist, one is called invalid")
        return
    except LedgerError as error:
        scene.trace_line(f"{use} replay failed: {error}")
        _explain(scene, attempt, use, error, was_running)
        return
    scene.trace_line(f"{use} replayed: {_text(entries)}, {len(acknowledged)} acknowledged")
    if cursor.revision.is_running or cursor.revision.number != number:
        is_empty = not entries and not acknowledged
        check(is_empty, f"{use}: a replay from before a revision returns {_text(entries)}")
        return
    if model.cursor is not cursor:
        return
    found = [entry.position for entry in entries]
    for entry in entries:
        scene.model.recognise(log, entry.position, entry.data)
        if not model.acknowledged.is_unacknowledged(entry.position):
            raise InvariantBroken(f"{use}: replays {entry.position}, which is acknowledged")
    expected = sorted(
        {each for each in known if log.between(each, each)}
        & set(model.acknowledged.unacknowledged_of(positions))
    )
    if [each for each in found if each in expected] != expected:
        raise InvariantBroken(f"{use}: replays {found}, expected {expected}")
    if wrong := acknowledged & set(expected):
        raise InvariantBroken(f"{use}: calls {wrong} acknowledged")


def _deliver(
    scene: Scene, attempt: Attempt, use: CursorUse, limits: _Limits, entries: Sequence[Entry]
) -> None:
    """Compare the returned entries with the unacknowledged ones."""
    model, handle = use.model, use.handle
    log, acknowledged = handle.log, model.acknowledged
    check(not attempt.was_lost, f"{handle}: the cursor of a stale handle was read")
    check(len(entries) <= limits.count, f"{use}: {len(entries)} entries, {limits}")
    size = sum(entry.size for entry in entries)
    if limits.bytes_max is not None and len(entries) > 1 and size > limits.bytes_max:
        raise InvariantBroken(f"{use}: {size} bytes, {limits}")
    found = [entry.position for entry in entries]
    if found != sorted(set(found)):
        raise InvariantBroken(f"{use}: out of order: {found}")
    for entry in entries:
        scene.model.recognise(log, entry.position, entry.data)
        if not acknowledged.is_unacknowledged(entry.position) and not model.was_sent_back:
            raise InvariantBroken(f"{use}: returns {entry.position}, which is acknowledged")
    if found and not model.next_read <= found[0] <= found[-1] <= limits.max_position:
        raise InvariantBroken(
            f"{use}: returns {found}, expected it from {model.next_read} on, {limits}"
        )
    end = found[-1] if found else min(attempt.lac, limits.max_position)
    passed = [each for each in handle.positions() if model.unacknowledged_from <= each <= end]
    missing = set(acknowledged.unacknowledged_of(passed)) - set(found)
    if missing:
        raise InvariantBroken(f"{use}: {min(missing)} was skipped in {found}")
    if found:
        model.read_from(found[-1].successor)


def _explain(
    scene: Scene, attempt: Attempt, use: CursorUse, error: LedgerError, was_running: bool
) -> None:
    """Raise unless there is a reason for the error of a read."""
    handle, cursor = attempt.handle, use.cursor
    match error:
        case ResetInProgress():
            has_reason = was_running
        case ConcurrentWait():
            has_reason = True
        case NoMoreEntries():
            has_reason = True in handle.log.ended
        case AlreadyClosed() | Fenced():
            is_closed = cursor.is_closed or handle.log.handle is not handle
            has_reason = is_closed or scene.may_be_lost(attempt)
        case _:
            scene.explain(attempt, error)
            return
    if not has_reason:
        raise InvariantBroken(f"{use}: {type(error).__name__} without a reason: {error}") from error


def _text(entries: Sequence[Entry]) -> str:
    if not entries:
        return "nothing"
    return f"{len(entries)} from {entries[0].position} to {entries[-1].position}"
