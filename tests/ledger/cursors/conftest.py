"""What tests of cursors share: ten entries, and a cursor that owes them all."""

import pytest

from kledger.ledger import EARLIEST, Cursor, ManagedLedger, Position
from tests.ledger.words import add_all, numbers


@pytest.fixture
async def places(ml: ManagedLedger) -> list[Position]:
    """Ten entries, four in a ledger."""
    return await add_all(ml, numbers(0, 9))


@pytest.fixture
async def cursor(ml: ManagedLedger, places: list[Position]) -> Cursor:
    return await ml.open_cursor("c", initial=EARLIEST)
