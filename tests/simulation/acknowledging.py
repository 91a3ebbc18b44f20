"""Acknowledging: whole ranges, single entries, and parts of entries.

Rule: an acknowledgement takes effect at once, a refused one never. When the call succeeds it is
durable, unless the store writes acknowledgements at a limited pace.
Must not know: how it becomes durable.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kledger.ledger import (
    AlreadyClosed,
    AlreadyMarkDeleted,
    Fenced,
    InvalidPosition,
    LedgerError,
    Position,
    ResetInProgress,
    StorageFailed,
)
from tests.simulation.acknowledged_set import AcknowledgedSet
from tests.simulation.invariants import InvariantBroken
from tests.simulation.scene import CursorUse, Scene

BATCH_SIZE = 3
SINGLES_MAX = 4


class Nothing(LedgerError):
    """Stands for "no error": a call under an outdated revision has no effect and returns."""


@dataclass(frozen=True, slots=True)
class _Call:
    """An acknowledgement: its effect on the model, the call, and the revision it is made under."""

    what: str
    positions: tuple[Position, ...]
    moved: Callable[[AcknowledgedSet], AcknowledgedSet]
    make: Callable[[int | None], Awaitable[None]]
    is_upto: bool = False


def mark_delete(scene: Scene) -> None:
    """Acknowledge everything up to some position."""
    use = scene.cursor()
    if use is None:
        return
    cursor, position = use.cursor, scene.position(use.handle.log)
    if position.entry_id >= 0:
        call = _Call(
            f"mark-delete {position}",
            (position,),
            lambda acknowledged: acknowledged.upto(position),
            lambda revision: cursor.mark_delete(position, revision=revision),
            is_upto=True,
        )
        scene.start(f"{use} {call.what}", _acknowledging(scene, use, call))


def delete(scene: Scene) -> None:
    """Acknowledge some entries individually."""
    use = scene.cursor()
    if use is None or not use.handle.log.order:
        return
    cursor, order = use.cursor, use.handle.log.order[-12:]
    positions = tuple(scene.random.choices(order, k=scene.random.randint(1, SINGLES_MAX)))
    call = _Call(
        f"delete {' '.join(map(str, positions))}",
        positions,
        lambda acknowledged: acknowledged.without(positions),
        lambda revision: cursor.delete(positions, revision=revision),
    )
    scene.start(f"{use} {call.what}", _acknowledging(scene, use, call))


def delete_records(scene: Scene) -> None:
    """Acknowledge a part of an entry."""
    use = scene.cursor()
    if use is None or not use.handle.log.order:
        return
    cursor, random = use.cursor, scene.random
    position = random.choice(use.handle.log.order[-12:])
    indexes = random.sample(range(BATCH_SIZE), random.randint(1, BATCH_SIZE))
    call = _Call(
        f"delete {position} records {indexes}",
        (position,),
        lambda acknowledged: acknowledged.without_records(position, indexes, BATCH_SIZE),
        lambda revision: cursor.delete_batch_index(
            position, indexes, BATCH_SIZE, revision=revision
        ),
    )
    scene.start(f"{use} {call.what}", _acknowledging(scene, use, call))


async def _acknowledging(scene: Scene, use: CursorUse, call: _Call) -> None:
    model, cursor, handle = use.model, use.cursor, use.handle
    model.follow()
    attempt = scene.attempt(handle)
    number = cursor.revision.number
    revision = scene.random.choice((None, None, number, number - 1))
    refusal = _refusal(use, call, revision)
    serial = model.move(call.moved(model.acknowledged)) if refusal is None else 0
    try:
        await call.make(revision)
    except LedgerError as error:
        scene.trace_line(f"{use} {call.what} failed: {error}")
        if refusal is not None:
            if not isinstance(error, refusal):
                raise InvariantBroken(
                    f"{use} {call.what}: {error!r}, expected {refusal}"
                ) from error
        elif not (isinstance(error, AlreadyClosed) and model.may_be_going):
            scene.explain(attempt, error)
        return
    scene.trace_line(f"{use} {call.what} done")
    if refusal is None:
        if scene.is_paced:
            model.returned(serial)
        else:
            model.kept(serial)
    elif refusal is not Nothing:
        raise InvariantBroken(f"{use} {call.what}: was accepted, expected {refusal}")


def _refusal(
    use: CursorUse, call: _Call, revision: int | None
) -> type[LedgerError] | tuple[type[LedgerError], ...] | None:
    """Return the error that refuses an acknowledgement, None if it is accepted."""
    cursor, handle = use.cursor, use.handle
    if not handle.is_usable:
        return (Fenced, AlreadyClosed, StorageFailed)
    if cursor.is_closed:
        return AlreadyClosed
    if revision is not None and (cursor.revision.is_running or revision != cursor.revision.number):
        return Nothing
    if cursor.revision.is_running:
        return ResetInProgress
    if any(each > handle.ml.last_confirmed_entry for each in call.positions):
        return InvalidPosition
    if call.is_upto and call.positions[0] < cursor.mark_delete_position:
        return AlreadyMarkDeleted
    return None
