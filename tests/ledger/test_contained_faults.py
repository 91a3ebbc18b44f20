"""A fault inside the ledger: every caller gets a position or an error, none waits for ever."""

import asyncio

import pytest

from kledger.ledger import EARLIEST, Fenced, LedgerError, Position, StorageFailed
from kledger.ledger.cursors import cursor_writer
from kledger.ledger.engine.errors import StorageWriteFailed
from kledger.ledger.handle.rollover_timer import RolloverTimer
from kledger.ledger.metadata.ledger_list_state import LedgerListState
from kledger.ledger.testing import FaultyEngine
from tests.contained import Contained
from tests.ledger.words import SMALL, OpenStore, add_all, numbers


def fail_once(
    patch: pytest.MonkeyPatch, owner: object, name: str, *, with_option: str = ""
) -> None:
    """Let the next call raise, or the next with an option."""
    original = getattr(owner, name)

    def fails(*arguments: object, **options: object) -> object:
        if with_option and with_option not in options:
            return original(*arguments, **options)
        patch.setattr(owner, name, original)
        raise RuntimeError("injected")

    patch.setattr(owner, name, fails)


async def test_acknowledgement_whose_row_cannot_be_made_fails_and_is_written_with_the_next(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    """Callers waited for ever."""
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    ml = await store.open_managed_ledger("orders", config=SMALL)
    positions = await add_all(ml, numbers(0, 4))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    await cursor.mark_delete(positions[0])
    fail_once(monkeypatch, cursor_writer, "encode_cursor")
    both = [asyncio.ensure_future(cursor.delete(positions[number])) for number in (2, 3)]
    outcomes = await asyncio.wait_for(asyncio.gather(*both, return_exceptions=True), 60)
    assert [StorageFailed] * 2 == [type(error) for error in outcomes]
    await asyncio.wait_for(cursor.mark_delete(positions[1]), 60)
    assert ["a fault here closes cursor c"] == contained.messages
    engine.drop_unsynced()
    again = await (await open_store(engine=engine)).open_managed_ledger("orders", config=SMALL)
    assert positions[3] == again.cursors["c"].mark_delete_position


async def test_cursor_whose_last_row_cannot_be_made_is_closed_and_callers_fail(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    store = await open_store()
    ml = await store.open_managed_ledger("orders", config=SMALL)
    positions = await add_all(ml, numbers(0, 4))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    waiting = asyncio.ensure_future(cursor.mark_delete(positions[0]))
    await asyncio.sleep(0)
    monkeypatch.setattr(cursor_writer, "encode_cursor", None)
    closing = asyncio.ensure_future(cursor.close())
    outcomes = await asyncio.wait_for(asyncio.gather(waiting, closing, return_exceptions=True), 60)
    assert [StorageFailed] * 2 == [type(error) for error in outcomes]
    assert {"a fault here closes cursor c"} == set(contained.messages)


async def test_waiting_acknowledgements_end_although_a_listener_of_progress_raises(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    """Regression: callers that acknowledged while a row was in flight were forgotten."""
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    ml = await store.open_managed_ledger("orders", config=SMALL)
    positions = await add_all(ml, numbers(0, 4))
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    hold = engine.hold_next("commit")
    first = asyncio.ensure_future(cursor.mark_delete(positions[0]))
    await hold.reached()
    second = asyncio.ensure_future(cursor.mark_delete(positions[1]))
    await asyncio.sleep(0)
    assert cursor.writer is not None
    fail_once(monkeypatch, cursor.writer, "_on_durable")
    hold.release()
    await asyncio.wait_for(asyncio.gather(first, second), 60)
    assert ["a fault here closes cursor c"] == contained.messages


async def outcome(adding: "asyncio.Future[Position]") -> Position | LedgerError:
    try:
        return await asyncio.wait_for(adding, 60)
    except LedgerError as error:
        return error


async def test_entries_end_with_an_error_when_the_ledger_fails_to_confirm_them(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    """Their callers waited for ever."""
    store = await open_store()
    ml = await store.open_managed_ledger("orders", config=SMALL)
    fail_once(monkeypatch, LedgerListState, "advance")
    adding = [asyncio.ensure_future(ml.add_entry(data)) for data in numbers(0, 3)]
    assert Fenced in [type(await outcome(each)) for each in adding]
    assert ["a fault here closes partition orders"] == contained.messages[:1]
    again = await store.open_managed_ledger("orders", config=SMALL)
    assert 4 == sum(each.entries for each in again.ledgers)
    await again.add_entry(b"more")


@pytest.mark.parametrize("step", ["revert", "resume"])
async def test_entries_end_with_an_error_when_the_ledger_fails_to_recover(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, contained: Contained, step: str
) -> None:
    """Regression: they waited for a retry by a closed handle."""
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    ml = await store.open_managed_ledger("orders", config=SMALL)
    if step == "revert":
        fail_once(monkeypatch, LedgerListState, "entries_in")
    else:
        fail_once(monkeypatch, RolloverTimer, "restart", with_option="delay_ms")
    engine.fail_next("commit", StorageWriteFailed("no"))
    adding = [asyncio.ensure_future(ml.add_entry(data)) for data in numbers(0, 3)]
    assert [Fenced] * 4 == [type(await outcome(each)) for each in adding]
    assert ["a fault here closes partition orders"] == contained.messages
    again = await store.open_managed_ledger("orders", config=SMALL)
    assert await again.add_entry(b"more")
