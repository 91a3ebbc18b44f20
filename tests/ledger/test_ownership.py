"""Who owns a managed ledger, and what a store does when something stops halfway."""

import asyncio
from pathlib import Path

import pytest

from ledger import (
    AlreadyClosed,
    Corrupt,
    Fenced,
    LedgerError,
    LedgerState,
    LedgerStore,
    Position,
    StorageFailed,
)
from ledger.engine.base import CommitGroup
from ledger.engine.log_rocksdb import LogRocksdbEngine
from ledger.keys import ID_COUNTER
from ledger.testing import FaultyEngine
from tests.ledger.words import OpenStore, all_of


async def test_a_start_that_fails_lets_go_of_the_folder(tmp_path: Path) -> None:
    """Whoever had the error at hand kept the folder locked with it."""
    engine = LogRocksdbEngine(tmp_path)
    group = CommitGroup(rows=[(ID_COUNTER, b"?")])
    engine.commit(group, sync=True)
    engine.index(group)
    engine.close()
    with pytest.raises(Corrupt) as first:
        await LedgerStore.open(tmp_path)
    with pytest.raises(Corrupt) as second:
        await LedgerStore.open(tmp_path)
    assert str(first.value) == str(second.value)


async def test_a_cancelled_opening_leaves_nothing_behind(open_store: OpenStore) -> None:
    """The next one began before the first was written, and both made a first ledger."""
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    for before in range(2):
        hold = engine.hold_next("commit")
        cancelled = asyncio.ensure_future(store.open_managed_ledger("orders"))
        await hold.reached()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        opening = asyncio.ensure_future(store.open_managed_ledger("orders"))
        await asyncio.sleep(0)
        hold.release()
        ml = await opening
        assert [0] == [info.entries for info in ml.ledgers[before:]]
        await ml.add_entry(b"x")
    await store.delete_managed_ledger("orders")
    assert [ID_COUNTER] == [key for key, _ in engine.scan(b"", b"\xff")]


async def test_a_cancelled_deletion_is_a_deletion(open_store: OpenStore) -> None:
    """The handle was given back, took entries, and lost them when the deletion was written."""
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    ml = await store.open_managed_ledger("orders")
    await ml.add_entry(b"0")
    hold = engine.hold_next("commit")
    deleting = asyncio.ensure_future(store.delete_managed_ledger("orders"))
    await hold.reached()
    deleting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await deleting
    with pytest.raises(Fenced):
        ml.append_nowait(b"1", 1, 1, lambda position, error: None)
    hold.release()
    again = await store.open_managed_ledger("orders")
    assert (LedgerState.CLOSED, []) == (ml.state, await all_of(again))


async def test_a_closing_handle_stays_closed_when_its_deletion_fails(
    open_store: OpenStore,
) -> None:
    """It came back to life unknown to its store: a second writer that nobody could fence."""
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    ml = await store.open_managed_ledger("orders")
    await ml.add_entry(b"0")
    hold = engine.hold_next("commit")
    closing = asyncio.ensure_future(ml.close())
    await hold.reached()
    deleting = asyncio.ensure_future(store.delete_managed_ledger("orders"))
    await asyncio.sleep(0)
    engine.fail_next("commit")
    hold.release()
    await closing
    with pytest.raises(StorageFailed):
        await deleting
    assert LedgerState.CLOSED is ml.state
    with pytest.raises(AlreadyClosed):
        await ml.add_entry(b"1")
    assert [b"0"] == await all_of(await store.open_managed_ledger("orders"))


async def test_a_listener_that_raises_keeps_nobody_from_being_fenced(
    open_store: OpenStore,
) -> None:
    """Callers waited for ever, other handles went on and the server was not told."""
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    handles = [await store.open_managed_ledger(name) for name in "abc"]
    fatal: list[LedgerError] = []
    store.on_fatal = fatal.append
    raised: list[object] = []
    heard: list[LedgerState] = []

    def broken() -> None:
        raise ZeroDivisionError

    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: raised.append(type(context["exception"]))
    )
    for ml in handles:
        ml.add_listener(broken)
        ml.add_listener(lambda ml=ml: heard.append(ml.state))  # type: ignore[misc]
    engine.fail_next("sync")
    adding = [asyncio.ensure_future(ml.add_entry(b"x")) for ml in handles]
    assert [Fenced] * 3 == [type(await asyncio.wait_for(outcome(each), 5)) for each in adding]
    assert ([LedgerState.FENCED] * 3, 1) == (heard, len(fatal))
    assert [ZeroDivisionError] * 3 == raised


async def outcome(adding: asyncio.Future[Position]) -> Position | LedgerError:
    try:
        return await adding
    except LedgerError as error:
        return error
