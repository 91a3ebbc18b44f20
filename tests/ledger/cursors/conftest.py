"""What tests of cursors share: ten entries, and a cursor that has acknowledged none of them."""

import pytest

from kledger.ledger import EARLIEST, Cursor, ManagedLedger, Position
from tests.ledger.words import add_all, numbers


@pytest.fixture
async def positions(ml: ManagedLedger) -> list[Position]:
    """Ten entries, four in a ledger."""
    return await add_all(ml, numbers(0, 9))


@pytest.fixture
async def cursor(ml: ManagedLedger, positions: list[Position]) -> Cursor:
    return await ml.open_cursor("c", initial=EARLIEST)
