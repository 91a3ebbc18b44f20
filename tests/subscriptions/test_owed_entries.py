"""What a cursor owes, read without moving it."""

import pytest

from ledger import Cursor, EntryPart, ManagedLedgerConfig
from subscriptions import owed_entries as module
from subscriptions.owed_entries import owed_entries
from tests.subscriptions.house import House


async def owed(house: House, cursor: Cursor) -> list[tuple[str, int, int]]:
    return [
        (str(each.entry.position), each.records, each.batch_size)
        async for each in owed_entries(cursor, house.ledger)
    ]


@pytest.mark.parametrize("entries_max", [1, 2, 100])
async def test_what_is_acknowledged_is_left_out_and_nothing_moves(
    room: House, entries_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READ_ENTRIES_MAX", entries_max)
    room.ledger.reconfigure(ManagedLedgerConfig(max_entries_per_ledger=2))
    places = [await room.add("a", "b", "c") for _ in range(7)]
    cursor = (await room.subscription()).cursor
    cursor.acknowledge_nowait(
        [EntryPart(places[2], None), EntryPart(places[3], None), EntryPart(places[5], [0, 2], 3)],
        upto=places[0],
    )
    before = cursor.read_position
    expected = [(1, 0b111), (4, 0b111), (5, 0b010), (6, 0b111)]
    assert [(str(places[i]), records, 3) for i, records in expected] == await owed(room, cursor)
    assert before == cursor.read_position


async def test_nothing_is_owed_of_nothing(room: House) -> None:
    cursor = (await room.subscription()).cursor
    assert [] == await owed(room, cursor)
    await room.add("a")
    await cursor.clear_backlog()
    assert [] == await owed(room, cursor)
