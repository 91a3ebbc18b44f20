"""Tiering: copies ledgers to a tier, and deletes primary copies.

Rule: a ledger that was seen with a complete copy keeps it until it is removed, and the copy has its
entries, byte for byte. At rest the tier has exactly the copies that ledgers name.
Must not know: how copies are made.
"""

from kledger.ledger import (
    Corrupt,
    InvalidArgument,
    InvalidPosition,
    LedgerError,
    OffloadInProgress,
    Position,
    StorageFaultKind,
    TierUnavailable,
)
from kledger.ledger.metadata import keys
from kledger.ledger.metadata.records import decode_ledger
from tests.simulation.bucket import Bucket
from tests.simulation.engine import SimulatedEngine
from tests.simulation.invariants import InvariantBroken, check
from tests.simulation.log_model import HandleModel
from tests.simulation.scene import Scene

SETTLED_MS = 10_000
"""Longest time in which copies that nothing needs are deleted if nothing fails."""


# Copying


def offload(scene: Scene) -> None:
    """Copy the ledgers before some position, or those that are due."""
    handle = scene.handle()
    if handle is None:
        return
    position = scene.position(handle.log)
    if scene.random.random() < 0.6 and handle.ml.ledgers:
        position = Position(handle.ml.ledgers[-1].ledger_id, 0)
    before = None if scene.random.random() < 0.8 else scene.position(handle.log)
    is_due = scene.random.random() < 0.3
    what = "due" if is_due else f"{position} before {before}"
    work = _offloading(scene, handle, None if is_due else position, before)
    scene.start(f"{handle} offload {what}", work)


async def _offloading(
    scene: Scene, handle: HandleModel, position: Position | None, before: Position | None
) -> None:
    attempt, ml = scene.attempt(handle), handle.ml
    has_tier, is_valid = ml.config.offload.driver is not None, True
    if position is not None:
        is_valid = ml.is_valid_position(position)
    try:
        if position is None:
            first = await ml.offload_due(before=before)
        else:
            first = await ml.offload_prefix(position, before=before)
    except InvalidPosition as error:
        check(not is_valid, f"{handle}: {error}, which is wrong")
    except InvalidArgument as error:
        check(not has_tier, f"{handle}: {error}, which is wrong")
    except OffloadInProgress as error:
        scene.trace_line(f"{handle} offload: {error}")
    except (TierUnavailable, Corrupt) as error:
        scene.trace_line(f"{handle} offload failed: {error}")
        check(scene.faults.count, f"{handle}: {error} without a reason")  # of any of the ledgers
    except LedgerError as error:
        scene.trace_line(f"{handle} offload failed: {error}")
        scene.explain(attempt, error)
    else:
        check(is_valid, f"{handle}: {position} is not valid, and was accepted")
        check(not attempt.was_lost, f"{handle}: a stale handle offloads")
        scene.trace_line(f"{handle} offloaded up to {first}")
        if position is not None and before is None:
            _check_copied(handle, position)


def _check_copied(handle: HandleModel, position: Position) -> None:
    """Check that closed ledgers before that of a position have a copy."""
    missing = [
        info.ledger_id
        for info in handle.ml.ledgers
        if info.ledger_id < position.ledger_id and info.closed_ms and not info.offloaded
    ]
    check(not missing, f"{handle}: ledgers {missing} before {position} have no copy")


# Deleting primary copies


def delete_primaries(scene: Scene) -> None:
    """Delete the primary copies of some ledgers, or of those that are due."""
    handle = scene.handle()
    if handle is None:
        return
    ids = [info.ledger_id for info in handle.ml.ledgers]
    chosen = scene.random.sample(ids, scene.random.randint(0, len(ids)))
    is_due = scene.random.random() < 0.5
    what = "due" if is_due else str(sorted(chosen))
    scene.start(
        f"{handle} delete primaries {what}", _deleting(scene, handle, None if is_due else chosen)
    )


async def _deleting(scene: Scene, handle: HandleModel, chosen: list[int] | None) -> None:
    attempt, ml = scene.attempt(handle), handle.ml
    lags = [config.offload.deletion_lag_ms for config in handle.configs]
    try:
        if chosen is None:
            deleted = await ml.delete_due_primaries()
        else:
            deleted = await ml.delete_primaries(chosen)
    except LedgerError as error:
        scene.trace_line(f"{handle} delete primaries failed: {error}")
        scene.explain(attempt, error)
        return
    scene.trace_line(f"{handle} deleted the primary copies of {deleted}")
    check(chosen is None or set(deleted) <= set(chosen), f"{handle}: {deleted} of {chosen}")
    if chosen is None and deleted:
        check(any(lag is not None and lag >= 0 for lag in lags), f"{handle}: {deleted} without lag")


# Checks


async def check_tier(scene: Scene, bucket: Bucket) -> None:
    """Check that the tier has what ledgers name, whole, and nothing else; nothing changes."""
    await scene.clock.sleep(SETTLED_MS)
    check_bucket(scene.engine, bucket, scene.clock.now_ms())
    kinds = {fault.kind for fault in scene.store.health.faults()}
    is_wrong = StorageFaultKind.CORRUPT_ENTRY in kinds and not scene.faults.counts["read"]
    check(not is_wrong, "the storage was asked for entries that it does not have")


def check_bucket(engine: SimulatedEngine, bucket: Bucket, now_ms: int) -> None:
    """Compare the tier with the rows of all ledgers."""
    expected = {}
    rows = engine.scan(keys.ledger_range(0)[0], keys.ledger_range((1 << 64) - 2)[1])
    for key, row in rows:
        record = decode_ledger(keys.ledger_id_in(key), row)
        if record.tiered is not None:
            expected[record.ledger_id, record.tiered.attempt] = record.entries
    found = bucket.copies(now_ms)
    if left := sorted(ledger_id for ledger_id, _ in found.keys() - expected.keys()):
        raise InvariantBroken(f"copies of ledgers {left} are left in the tier")
    if missing := sorted(ledger_id for ledger_id, _ in expected.keys() - found.keys()):
        raise InvariantBroken(f"copies of ledgers {missing} are not in the tier")
    for copy_key, entries in expected.items():
        copy = found[copy_key]
        check(copy.is_whole and len(copy.entries) == entries, f"copy {copy_key} is not whole")
    left_rows = engine.scan(*keys.copy_deletion_range())
    check(not left_rows, f"{len(left_rows)} deletions are left, which are done")
