"""The unacknowledged entries of a cursor, read without moving it."""

import pytest

from kledger.ledger import Cursor, EntryPart, ManagedLedgerConfig
from kledger.subscriptions import unacknowledged_entries as module
from kledger.subscriptions.unacknowledged_entries import unacknowledged_entries
from kledger.subscriptions.visibility_filter import ALL_VISIBLE, VisibilityFilter
from tests.subscriptions.partition_fixture import PartitionFixture
from tests.subscriptions.switchable_filter import SwitchableFilter


async def unacknowledged(
    fixture: PartitionFixture, cursor: Cursor, visibility_filter: VisibilityFilter = ALL_VISIBLE
) -> list[tuple[str, int, int]]:
    return [
        (str(each.entry.position), each.records, each.batch_size)
        async for each in unacknowledged_entries(cursor, visibility_filter)
    ]


@pytest.mark.parametrize("entries_max", [1, 2, 100])
async def test_acknowledged_entries_are_left_out_and_cursor_does_not_move(
    fixture: PartitionFixture, entries_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READ_ENTRIES_MAX", entries_max)
    fixture.ledger.reconfigure(ManagedLedgerConfig(max_entries_per_ledger=2))
    positions = [await fixture.add("a", "b", "c") for _ in range(7)]
    cursor = (await fixture.subscription()).cursor
    cursor.acknowledge_nowait(
        [
            EntryPart(positions[2], None),
            EntryPart(positions[3], None),
            EntryPart(positions[5], [0, 2], 3),
        ],
        upto=positions[0],
    )
    before = cursor.read_position
    expected = [(1, 0b111), (4, 0b111), (5, 0b010), (6, 0b111)]
    assert [(str(positions[i]), records, 3) for i, records in expected] == await unacknowledged(
        fixture, cursor
    )
    assert before == cursor.read_position


async def test_empty_log_has_no_unacknowledged_entries(fixture: PartitionFixture) -> None:
    cursor = (await fixture.subscription()).cursor
    assert [] == await unacknowledged(fixture, cursor)
    await fixture.add("a")
    await cursor.clear_backlog()
    assert [] == await unacknowledged(fixture, cursor)


async def test_hidden_entry_has_no_records_and_unsettled_one_ends_the_list(
    fixture: PartitionFixture,
) -> None:
    positions = [await fixture.add("a", "b") for _ in range(5)]
    cursor = (await fixture.subscription()).cursor
    visibility_filter = SwitchableFilter()
    visibility_filter.at, visibility_filter.hidden = (
        positions[3],
        {positions[0], positions[2], positions[4]},
    )
    expected = [(0, 0), (1, 0b11), (2, 0)]
    assert [(str(positions[i]), records, 2) for i, records in expected] == await unacknowledged(
        fixture, cursor, visibility_filter
    )
    visibility_filter.at = positions[0]
    assert [] == await unacknowledged(fixture, cursor, visibility_filter)
