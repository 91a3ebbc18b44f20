"""What is collected between two rows."""

import pytest
from pyroaring import BitMap

from kledger.ledger.cursors import cursor_changes
from kledger.ledger.cursors.cursor_changes import CursorChanges
from kledger.ledger.cursors.cursor_records import CursorRecord
from tests.ledger.words import pos


def record(changes: CursorChanges, upto: str = "3:0") -> CursorRecord:
    return changes.record(pos(upto), {"page": 2}, generation=7)


def deleted(found: CursorRecord) -> list[tuple[int, list[int]]]:
    return [(ledger_id, list(BitMap.deserialize(bitmap))) for ledger_id, bitmap in found.deleted]


@pytest.fixture(name="changes")
def make_changes() -> CursorChanges:
    changes = CursorChanges()
    changes.restart()
    return changes


def test_nothing_is_collected_before_the_first_row() -> None:
    changes = CursorChanges()
    changes.add_entry(pos("3:1"))
    changes.add_batch(pos("3:2"), BitMap([1]))
    assert (True, 0) == (changes.is_whole, len(changes))


def test_entries_and_batches_are_told_behind_the_mark_delete_position(
    changes: CursorChanges,
) -> None:
    for each in ("5:2", "3:1", "3:9", "3:4"):
        changes.add_entry(pos(each))
    for each in ("3:3", "5:2", "5:7"):
        changes.add_batch(pos(each), BitMap([1, 2]))
    changes.add_batch(pos("5:7"), BitMap([2]))
    found = record(changes, "3:4")
    assert [(3, [9]), (5, [2])] == deleted(found)
    assert ((pos("5:7"), BitMap([2]).serialize()),) == found.batches
    assert (pos("3:4"), {"page": 2}, 7) == (
        found.mark_delete_position, found.properties, found.generation,
    )  # fmt: skip
    changes.restart()
    assert ((), ()) == (record(changes).deleted, record(changes).batches)


def test_too_many_changes_become_a_whole_row(
    changes: CursorChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor_changes, "CHANGES_MAX", 3)
    for number in range(3):
        changes.add_entry(pos(f"3:{number}"))
        changes.add_batch(pos(f"5:{number}"), BitMap([1]))
    assert (False, 6) == (changes.is_whole, len(changes))
    changes.add_entry(pos("3:9"))
    assert (True, 0) == (changes.is_whole, len(changes))
