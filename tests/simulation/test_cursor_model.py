"""CursorModel where the state does not show whether a revision took effect.

Such is a reset to the present position: only the next read shows it, or the result of its call.
"""

from collections.abc import AsyncIterator

import pytest

from kledger.ledger import EARLIEST, LedgerStore, ManagedLedgerConfig, Position
from tests.simulation.acknowledged_set import AcknowledgedSet
from tests.simulation.cursor_model import CursorModel, Revision
from tests.simulation.log_model import HandleModel, LogModel


@pytest.fixture
async def store() -> AsyncIterator[LedgerStore]:
    async with LedgerStore.open(None) as opened:
        yield opened


async def read_through(store: LedgerStore) -> CursorModel:
    """Return the model of a cursor that has read three entries and acknowledged none."""
    ml = await store.open_managed_ledger("a")
    for _ in range(3):
        await ml.add_entry(b"x")
    config, lac = ManagedLedgerConfig(), ml.last_confirmed_entry
    handle = HandleModel(1, LogModel("a"), ml, [config], lac, tuple(ml.ledgers))
    model = CursorModel("c")
    model.made(handle, await ml.open_cursor("c", initial=EARLIEST), [AcknowledgedSet(EARLIEST)])
    model.read_from(lac.successor)
    return model


def reset_unreported(model: CursorModel) -> Revision:
    """Reset it to the first entry, its present position; the call has not returned."""
    revision = model.begin_revision(AcknowledgedSet(EARLIEST), EARLIEST, lambda: True)
    model.follow()
    return revision


async def test_both_positions_are_right_until_the_outcome_is_reported(store: LedgerStore) -> None:
    model = await read_through(store)
    behind = model.next_read
    reset_unreported(model)
    assert (EARLIEST, behind) == (model.next_read, model.unacknowledged_from)


@pytest.mark.parametrize("happened", [True, False])
async def test_the_outcome_decides_where_reading_continues(
    store: LedgerStore, happened: bool
) -> None:
    model = await read_through(store)
    expected = EARLIEST if happened else model.next_read
    model.end_revision(reset_unreported(model), happened=happened)
    assert (expected, expected) == (model.next_read, model.unacknowledged_from)


@pytest.mark.parametrize("happened", [True, False])
async def test_a_read_before_the_report_shows_the_outcome(
    store: LedgerStore, happened: bool
) -> None:
    model = await read_through(store)
    revision = reset_unreported(model)
    read_upto = Position(model.unacknowledged_from.ledger_id, 1)
    model.read_from(read_upto)
    model.end_revision(revision, happened=happened)
    assert (read_upto, read_upto) == (model.next_read, model.unacknowledged_from)
