"""What consumers acknowledge, as values for the cursor and the dispatcher."""

import pytest

from kledger.ledger import EntryPart, Position
from kledger.subscriptions.entry_view import indexes_of
from kledger.subscriptions.errors import InvalidRequest
from kledger.subscriptions.model import ALL, Acknowledgement, RecordMask
from kledger.subscriptions.subscription import entry_part, record_mask

POSITION = Position(3, 4)


def test_masks_are_indexes() -> None:
    for records in range(1 << 10):
        expected = [index for index in range(10) if records >> index & 1]
        assert expected == indexes_of(records)


@pytest.mark.parametrize(
    ("records", "size", "part", "mask"),
    [
        (ALL, 5, EntryPart(POSITION, None), ALL),
        (ALL, 0, EntryPart(POSITION, None), ALL),
        (0b11111, 5, EntryPart(POSITION, None), ALL),
        (0b1, 1, EntryPart(POSITION, None), ALL),
        (0b10010, 5, EntryPart(POSITION, [1, 4], 5), 0b10010),
        (0, 5, EntryPart(POSITION, [], 5), 0),
    ],
)
def test_all_records_of_an_entry_are_the_entry(
    records: int, size: int, part: EntryPart, mask: int
) -> None:
    acknowledgement = Acknowledgement(POSITION, records, size)
    assert part == entry_part(acknowledgement)
    assert RecordMask(POSITION, mask) == record_mask(acknowledgement, part)


@pytest.mark.parametrize(
    ("records", "size"), [(0b100000, 5), (1, 0), (-2, 5), (1, -1), (1, 1 << 40)]
)
def test_records_outside_a_batch_are_refused(records: int, size: int) -> None:
    with pytest.raises(InvalidRequest, match="3:4"):
        entry_part(Acknowledgement(POSITION, records, size))
