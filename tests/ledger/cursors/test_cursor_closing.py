"""A close after another one, which may have failed or still run."""

import asyncio

import pytest

from kledger.ledger import EARLIEST, Cursor, ManagedLedger, Position, StorageFailed
from kledger.ledger.testing import FaultyEngine
from tests.ledger.cursors.test_cursor_writer import after_crash, opened
from tests.ledger.words import OpenStore, add_all, numbers


async def acknowledged_early(
    engine: FaultyEngine, open_store: OpenStore
) -> tuple[ManagedLedger, Cursor, list[Position]]:
    """Return a cursor whose second acknowledgement has returned before it is durable."""
    _, ml = await opened(engine, open_store, cursor_persist_per_second=1)
    positions = await add_all(ml, numbers(0, 5))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    await cursor.mark_delete(positions[0])
    await cursor.mark_delete(positions[1])
    return ml, cursor, positions


CLOSES_AGAIN = {
    "the cursor": lambda ml, cursor: cursor.close(),
    "the managed ledger": lambda ml, cursor: ml.close(),
}


@pytest.mark.parametrize("who", CLOSES_AGAIN)
async def test_close_after_a_failed_one_writes_what_that_could_not(
    engine: FaultyEngine, open_store: OpenStore, who: str
) -> None:
    """It succeeded without a write: acknowledgements that had returned were lost."""
    ml, cursor, positions = await acknowledged_early(engine, open_store)
    engine.fail_next("commit")
    with pytest.raises(StorageFailed):
        await cursor.close()
    if who == "the cursor":
        engine.fail_next("commit")
        with pytest.raises(StorageFailed):
            await cursor.close()
    await CLOSES_AGAIN[who](ml, cursor)
    ml = await after_crash(engine, open_store)
    assert positions[1] == ml.cursors["c"].mark_delete_position


async def test_close_during_another_one_ends_like_it(
    engine: FaultyEngine, open_store: OpenStore
) -> None:
    ml, cursor, positions = await acknowledged_early(engine, open_store)
    hold = engine.hold_next("commit")
    first = asyncio.ensure_future(cursor.close())
    await hold.reached()
    second = asyncio.ensure_future(cursor.close())
    await asyncio.sleep(0)
    assert not second.done()
    hold.fail()
    outcomes = await asyncio.gather(first, second, return_exceptions=True)
    assert isinstance(outcomes[0], StorageFailed)
    if outcomes[1] is None:
        ml = await after_crash(engine, open_store)
        assert positions[1] == ml.cursors["c"].mark_delete_position


async def test_close_after_a_complete_one_writes_nothing(
    engine: FaultyEngine, open_store: OpenStore
) -> None:
    _, ml = await opened(engine, open_store)
    positions = await add_all(ml, numbers(0, 5))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    await cursor.mark_delete(positions[0])
    await cursor.close()
    before = engine.calls["commit"]
    await cursor.close()
    assert before == engine.calls["commit"]


async def test_old_opening_that_is_closed_again_leaves_the_next_one_open(
    engine: FaultyEngine, open_store: OpenStore
) -> None:
    ml, cursor, positions = await acknowledged_early(engine, open_store)
    engine.fail_next("commit")
    with pytest.raises(StorageFailed):
        await cursor.close()
    again = await ml.open_cursor("c")
    await cursor.close()
    assert [positions[2]] == [each.position for each in await again.read(1)]
    ml = await after_crash(engine, open_store)
    assert positions[1] == ml.cursors["c"].mark_delete_position


async def test_cursor_that_was_deleted_comes_not_back_by_being_closed_again(
    engine: FaultyEngine, open_store: OpenStore
) -> None:
    ml, cursor, _ = await acknowledged_early(engine, open_store)
    engine.fail_next("commit")
    with pytest.raises(StorageFailed):
        await cursor.close()
    await ml.delete_cursor("c")
    await cursor.close()
    assert {} == (await after_crash(engine, open_store)).cursors
