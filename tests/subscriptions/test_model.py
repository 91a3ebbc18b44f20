"""The words that carry more than values."""

import pytest

from kledger.ledger import Position
from kledger.subscriptions.model import Delivery
from tests.batches.words import batch


@pytest.mark.parametrize(("records", "count"), [(-1, 9), (0b101, 2), (-2, 8), (1 << 20, 0), (0, 0)])
def test_records_of_a_delivery_are_counted_by_mask_and_header(records: int, count: int) -> None:
    data = batch(*"abcdefghi")
    assert count == Delivery(Position(3, 0), data, records, 0).record_count
