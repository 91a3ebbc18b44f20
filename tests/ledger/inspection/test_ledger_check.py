"""An inspection of managed ledgers, with damage that only their records show."""

from pathlib import Path

from kledger.ledger import Position
from kledger.ledger.cursors.cursor_records import CursorRecord, encode_cursor
from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.engine.log_rocksdb import LogRocksdbEngine
from kledger.ledger.inspection import Inspection, Problem, inspect_folder
from kledger.ledger.metadata import keys
from kledger.ledger.metadata.records import (
    LedgerRecord,
    decode_managed_ledger,
    encode_counter,
    encode_ledger,
)
from tests.ledger.words import nothing_wrong


def planted(folder: Path, *rows: tuple[bytes, bytes | None], drops: tuple[int, ...] = ()) -> None:
    """Write rows that only a bug could write."""
    engine = LogRocksdbEngine(folder)
    head = [key for key, _ in engine.scan(*keys.managed_ledger_range())]
    assert 2 == len(head)
    group = CommitGroup(rows=list(rows), drops=list(drops))
    engine.commit(group, sync=True)
    engine.index(group)
    engine.close()


def reasons(found: Inspection) -> list[tuple[int, str, str]]:
    return [(each.ledger_id, each.managed_ledger, each.reason) for each in found.problems]


def test_damaged_entry_is_reported_once_with_its_managed_ledger(folder: Path) -> None:
    log = folder / "log" / "00000001.log"
    raw = bytearray(log.read_bytes())
    found = inspect_folder(folder, check_entry=lambda name, position, data: "x")
    place = found.problems[2]
    raw[place.position + 40] ^= 1
    log.write_bytes(raw)
    expected = Problem(
        str(log), place.position, "the data fails its CRC", place.ledger_id, 0, "orders"
    )
    asked: list[bytes | None] = []

    def check(name: str, position: Position, data: bytes | None) -> None:
        asked.append(data)

    assert [expected] == inspect_folder(folder, check_entry=check).problems
    assert [b"0", b"1", None, b"3", b"4"] == asked


def ledger_ids(folder: Path) -> list[int]:
    found = inspect_folder(folder, check_entry=lambda name, position, data: "x")
    return sorted({each.ledger_id for each in found.problems})


def test_entries_without_a_managed_ledger(folder: Path) -> None:
    first, second, _ = ledger_ids(folder)
    planted(folder, (keys.ledger_key(1, first), None), (keys.ledger_key(1, second), None))
    reason = "has entries, but belongs to no managed ledger"
    expected = [(first, "", reason), (second, "", reason)]
    assert expected == reasons(inspect_folder(folder, check_entry=nothing_wrong))


def test_records_that_promise_too_much(folder: Path) -> None:
    first, second, last = ledger_ids(folder)
    planted(
        folder,
        (keys.ledger_key(1, first), encode_ledger(_closed(first, entries=2, size=7))),
        (keys.ledger_key(1, last), encode_ledger(_closed(last, entries=3, size=3))),
        (keys.ID_COUNTER, encode_counter(second)),
        drops=(second,),
    )
    found = reasons(inspect_folder(folder, check_entry=nothing_wrong))
    assert (first, "orders", "2 entries of 2 bytes, its record has 2 of 7") in found
    assert (second, "orders", "entries 0 to 1 are not in the index") in found
    assert (last, "orders", "entries 1 to 2 are not in the index") in found
    assert found[-1][2].startswith(f"the next id is {second}, but ")
    assert 4 == len(found)


def _closed(ledger_id: int, *, entries: int, size: int) -> LedgerRecord:
    return LedgerRecord(ledger_id=ledger_id, entries=entries, size=size, closed_ms=1)


def test_records_that_cannot_be_read(folder: Path) -> None:
    first = ledger_ids(folder)[0]
    planted(
        folder,
        (keys.managed_ledger_key("empty"), b"\x09"),
        (keys.ledger_key(1, first), b""),
        (keys.ID_COUNTER, b""),
    )
    found = reasons(inspect_folder(folder, check_entry=nothing_wrong))
    assert [
        (-1, "empty", "managed ledger row: expected version 1 or 2, got 9"),
        (first, "orders", f"ledger row {first}: expected version 1 or 2, got an empty row"),
        (-1, "", "counter row: expected version 1, got an empty row"),
    ] == found


def test_damaged_cursor_is_reported_with_its_managed_ledger(folder: Path) -> None:
    engine = LogRocksdbEngine(folder)
    heads = {
        keys.managed_ledger_name(key): decode_managed_ledger(row).managed_ledger_id
        for key, row in engine.scan(*keys.managed_ledger_range())
    }
    engine.close()
    whole = encode_cursor(CursorRecord(mark_delete_position=Position(2, 0)))
    planted(
        folder,
        (keys.cursor_key(heads["orders"], "c"), whole),
        (keys.cursor_progress_key(heads["orders"], "c"), whole[:-1] + b"?"),
        (keys.cursor_key(heads["empty"], "d"), b""),
    )
    found = inspect_folder(folder, check_entry=nothing_wrong)
    expected = [
        (-1, "empty", "cursor d: cursor row: expected version 2, got an empty row"),
        (-1, "orders", "cursor c: cursor row: its checksum does not agree"),
    ]
    assert expected == sorted(reasons(found))
