"""What can be asked of a handle, on a log of ledgers with 4, 4 and 2 entries."""

import pytest

from kledger.ledger import EARLIEST, LATEST, ManagedLedger, Position
from tests.ledger.words import add_all


@pytest.fixture(autouse=True)
async def _written(ml: ManagedLedger) -> None:
    await add_all(ml, [b"%010d" % number for number in range(10)])


async def test_ledgers_and_sizes(ml: ManagedLedger) -> None:
    assert [(4, 40), (4, 40), (2, 20)] == [(info.entries, info.size) for info in ml.ledgers]
    assert [False, False, True] == [info.closed_ms is None for info in ml.ledgers]
    assert 100 == ml.total_size


async def test_positions(ml: ManagedLedger) -> None:
    first, second, third = (info.ledger_id for info in ml.ledgers)
    assert (Position(first, -1), Position(third, 1)) == (
        ml.first_position,
        ml.last_confirmed_entry,
    )
    assert Position(second, 0) == ml.next_valid_position(Position(first, 3))
    assert Position(third, 2) == ml.next_valid_position(LATEST)
    assert Position(first, 3) == ml.previous_position(Position(second, 0))
    assert ml.is_valid_position(Position(third, 2))
    assert not ml.is_valid_position(Position(second, 4))
    assert ml.has_entries_from(ml.last_confirmed_entry)
    assert not ml.has_entries_from(ml.last_confirmed_entry.successor)


async def test_counts(ml: ManagedLedger) -> None:
    first, second, _ = (info.ledger_id for info in ml.ledgers)
    assert 10 == ml.number_of_entries(EARLIEST, LATEST)
    assert 4 == ml.number_of_entries(Position(first, 2), Position(second, 1))
    assert 0 == ml.number_of_entries(LATEST, EARLIEST)
    assert 60 == ml.estimated_backlog_bytes(Position(second, 0))


async def test_reads_and_search(ml: ManagedLedger) -> None:
    entries = await ml.read_entries(EARLIEST, 3)
    assert entries == ml.read_cached(EARLIEST, 3)
    assert entries[1] == await ml.read_entry(entries[1].position)
    found = await ml.find_newest_matching(lambda entry: int(entry.data) <= 2)
    assert entries[2].position == found


async def test_properties_are_read_only(ml: ManagedLedger) -> None:
    with pytest.raises(TypeError):
        ml.properties["a"] = "b"  # type: ignore[index]
