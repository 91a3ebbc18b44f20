"""Whole: compares the whole content of a store with the model.

Rule: called when nothing runs and nothing fails; afterwards no outcome is unknown.
Must not know: what happened before.
"""

import asyncio
from itertools import pairwise
from random import Random

from kledger.ledger import (
    EARLIEST,
    LATEST,
    CompactedLedger,
    Entry,
    LedgerInfo,
    LedgerState,
    LedgerStore,
    Position,
    TooManyRequests,
)
from kledger.ledger.metadata import keys
from kledger.ledger.metadata.records import decode_ledger, decode_managed_ledger
from tests.simulation.engine import SimulatedEngine
from tests.simulation.invariants import InvariantBroken, check
from tests.simulation.log_model import HandleModel, WriteOutcome
from tests.simulation.store_model import StoreModel

NEIGHBOURS_MAX = 10


async def read_all(handle: HandleModel, random: Random) -> list[Entry]:
    """Read a managed ledger from its beginning to its end, in pieces."""
    entries: list[Entry] = []
    start = EARLIEST
    while True:
        count = random.choice((1, 7, 1 << 30))
        bytes_max = random.choice((None, None, 50))
        try:
            piece = await handle.ml.read_entries(start, count, bytes_max=bytes_max)
        except TooManyRequests:
            await asyncio.sleep(0)  # for read-ahead
            continue
        if not piece:
            return entries
        entries += piece
        start = piece[-1].position.successor


async def check_log(model: StoreModel, handle: HandleModel, random: Random) -> None:
    """Compare one managed ledger; no opening, deletion or change of it runs.

    Its own timers and trims run, so it is read again if they changed something meanwhile.
    """
    ml, log = handle.ml, handle.log
    infos: tuple[LedgerInfo, ...] | None = None
    while infos != ml.ledgers:
        infos = ml.ledgers
        entries = await read_all(handle, random)
    for entry in entries:
        model.recognise(log, entry.position, entry.data)
    found, present = [entry.position for entry in entries], log.present()
    if found != present:
        raise InvariantBroken(f"{handle}: found {_text(found)}, expected {_text(present)}")
    counts: dict[int, list[int]] = {}
    for position, data in entries:
        ids = counts.setdefault(position.ledger_id, [0, 0])
        if position.entry_id != ids[0]:
            raise InvariantBroken(f"{handle}: {position} where entry {ids[0]} should be")
        ids[0] += 1
        ids[1] += len(data)
    listed = {info.ledger_id: [info.entries, info.size] for info in infos if info.entries}
    if listed != counts:
        raise InvariantBroken(f"{handle}: listed {listed}, read {counts}")
    check(ml.number_of_entries(EARLIEST, LATEST) == len(found), f"{handle}: wrong count of entries")
    check(ml.total_size == sum(size for _, size in counts.values()), f"{handle}: wrong size")
    if any(not info.entries for info in infos[:-1]):
        raise InvariantBroken(f"{handle}: an empty ledger is left behind")
    if found and ml.last_confirmed_entry != found[-1]:
        raise InvariantBroken(f"{handle}: the last confirmed entry is {ml.last_confirmed_entry}")
    _check_neighbours(handle, found)
    _check_end(handle)
    _check_properties(handle)
    _check_adds(handle)


def _check_neighbours(handle: HandleModel, found: list[Position]) -> None:
    """Check that walking from position to position finds every entry."""
    for before, after in pairwise([handle.ml.first_position, *found][-NEIGHBOURS_MAX:]):
        next_ = handle.ml.next_valid_position(before)
        check(next_ == after, f"{handle}: {next_} follows {before}, not {after}")
        if before.entry_id >= 0:
            previous = handle.ml.previous_position(after)
            check(previous == before, f"{handle}: {previous} precedes {after}, not {before}")


def _check_end(handle: HandleModel) -> None:
    is_terminated = handle.ml.state is LedgerState.TERMINATED
    check(is_terminated in handle.log.ended, f"{handle}: terminated: {is_terminated}")
    handle.log.ended = {is_terminated}
    infos = handle.ml.ledgers
    is_closed = not infos or infos[-1].closed_ms is not None
    check(is_closed == is_terminated, f"{handle}: the newest ledger is closed: {is_closed}")


def _check_properties(handle: HandleModel) -> None:
    found, log = handle.ml.properties, handle.log
    for key in found.keys() | log.properties.keys():
        choices = log.properties.get(key, {None})
        if found.get(key) not in choices:
            raise InvariantBroken(
                f"{handle}: property {key} is {found.get(key)}, expected {choices}"
            )
        log.properties[key] = {found.get(key)}


def _check_adds(handle: HandleModel) -> None:
    """Check that entries added through one handle are in the order of the calls."""
    positions = [write.position for write in handle.adds if write.outcome is WriteOutcome.KEPT]
    if positions != sorted(position for position in positions if position):
        raise InvariantBroken(f"{handle}: added out of order: {positions}")


def check_rows(model: StoreModel, store: LedgerStore) -> None:
    """Compare all rows; no write of the stream is pending."""
    found = dict(store.scan_rows())
    for key in found.keys() | model.row_choices.keys():
        if key in model.row_choices:
            value, choices = found.pop(key, None), model.row_choices[key]
            check(value in choices, f"row {key!r}: found {value!r}, expected one of {choices}")
            model.row_choices[key] = {value}
    if found != model.rows:
        raise InvariantBroken(f"rows: found {found}, expected {model.rows}")


def check_names(model: StoreModel, store: LedgerStore) -> None:
    """Compare the existing managed ledgers."""
    names = store.managed_ledger_names()
    for log in model.logs.values():
        does_exist = log.name in names
        check(does_exist in log.exists, f"{log.name}: exists: {does_exist}")
        log.exists = {does_exist}


def check_listing(engine: SimulatedEngine) -> None:
    """Check that ledgers with data are the listed ones, and belong to a managed ledger."""
    listed, cursors, beside = {}, 0, set[int]()
    for _, value in engine.scan(*keys.managed_ledger_range()):
        head = decode_managed_ledger(value)
        cursors += _check_cursor_rows(engine, head.managed_ledger_id)
        beside |= {*head.ids_beside_list}
        _check_compacted(engine, head.compacted)
        for key, row in engine.scan(*keys.ledger_range(head.managed_ledger_id)):
            listed[keys.ledger_id_in(key)] = decode_ledger(keys.ledger_id_in(key), row)
    rows = engine.scan(keys.ledger_range(0)[0], keys.ledger_range((1 << 64) - 2)[1])
    orphans = {keys.ledger_id_in(key) for key, _ in rows} - set(listed)
    if orphans:
        raise InvariantBroken(f"ledgers {sorted(orphans)} belong to no managed ledger")
    if cursors != sum(len(engine.scan(kind, keys.successor(kind))) for kind in (b"k", b"p", b"d")):
        raise InvariantBroken("rows of cursors belong to no managed ledger")
    stored = engine.stored_entries()
    if unlisted := sorted(set(stored) - set(listed) - beside):
        raise InvariantBroken(f"ledgers {unlisted} have data, but are not listed")
    for ledger_id, record in listed.items():
        ids = stored.get(ledger_id, [])
        if record.tiered is not None and record.tiered.primary_deleted:
            check(not ids, f"ledger {ledger_id} has {ids}, and its primary copy was deleted")
            continue
        if ids != list(range(len(ids))) or len(ids) < record.entries:
            raise InvariantBroken(f"ledger {ledger_id} has {ids}, its record says {record.entries}")
        if record.closed_ms and len(ids) > record.entries:
            raise InvariantBroken(
                f"ledger {ledger_id} continues after its end {record.entries}: {ids}"
            )


def _check_compacted(engine: SimulatedEngine, compacted: CompactedLedger | None) -> None:
    """Check that a compacted ledger has the entries that its record counts."""
    if compacted is not None:
        ids = engine.stored_entries().get(compacted.ledger_id, [])
        check(ids == list(range(compacted.entries)), f"{compacted} has entries {ids}")


def _check_cursor_rows(engine: SimulatedEngine, managed_ledger_id: int) -> int:
    """Return how many rows the cursors have; rows without a snapshot have no cursor."""
    snapshots, progress, changes = (
        [keys.cursor_name_in(key) for key, _ in engine.scan(*each)]
        for each in keys.cursor_ranges(managed_ledger_id)
    )
    if left := {*progress, *changes} - {*snapshots}:
        raise InvariantBroken(
            f"progress rows of cursors {sorted(left)} are left, which do not exist"
        )
    return len(snapshots) + len(progress) + len(changes)


def _text(positions: list[Position]) -> str:
    if len(positions) > 12:
        return f"{len(positions)} from {positions[0]} to {positions[-1]}"
    return " ".join(map(str, positions)) or "nothing"
