"""Ownership: a stale owner changes nothing and acknowledges nothing."""

import asyncio
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kledger.ledger import (
    EARLIEST,
    LATEST,
    AlreadyClosed,
    Corrupt,
    Fenced,
    LedgerError,
    LedgerState,
    LedgerStore,
    ManagedLedger,
    ManagedLedgerConfig,
    Position,
    StorageFailed,
    StoreConfig,
    StoreInUse,
)
from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.engine.log_rocksdb import LogRocksdbEngine
from kledger.ledger.metadata.keys import ID_COUNTER
from kledger.ledger.testing import FaultyEngine
from tests.contained import Contained
from tests.ledger.words import SMALL, OpenStore, add_all, all_of, append, numbers

Call = Callable[[ManagedLedger], Awaitable[object] | object]

CHANGING: dict[str, Call] = {
    "begin_compaction": lambda ml: ml.begin_compaction(),
    "roll_over": lambda ml: ml.roll_over(),
    "set_property": lambda ml: ml.set_property("a", "stale"),
    "terminate": lambda ml: ml.terminate(),
    "trim": lambda ml: ml.trim(),
    "trim_before": lambda ml: ml.trim_before(LATEST),
    "truncate": lambda ml: ml.truncate(),
}
OFFLOADING: dict[str, Call] = {
    "delete_due_primaries": lambda ml: ml.delete_due_primaries(),
    "delete_primaries": lambda ml: ml.delete_primaries(each.ledger_id for each in ml.ledgers),
    "offload_due": lambda ml: ml.offload_due(),
    "offload_prefix": lambda ml: ml.offload_prefix(ml.last_confirmed_entry),
}
APPENDING: dict[str, Call] = {
    "add_entry": lambda ml: ml.add_entry(b"stale"),
    "append_nowait": lambda ml: append(ml, b"stale", never),
}
CURSORS: dict[str, Call] = {
    "change_cursors": lambda ml: ml.change_cursors(added=["c"]),
    "delete_cursor": lambda ml: ml.delete_cursor("c"),
    "new_non_durable_cursor": lambda ml: ml.new_non_durable_cursor(),
    "open_cursor": lambda ml: ml.open_cursor("c"),
    "open_cursor_at": lambda ml: ml.open_cursor_at("c", LATEST),
}
HARMLESS: dict[str, Call] = {
    "close": lambda ml: ml.close(),
    "evict_cached": lambda ml: ml.evict_cached(),
    "acknowledge_before": lambda ml: ml.acknowledge_before(LATEST),
    "reconfigure": lambda ml: ml.reconfigure(ManagedLedgerConfig(max_rollover_ms=1)),
}
LISTENING = {"add_listener", "listen", "remove_listener", "show_user_metric"}
OF_COMMITTER_AND_STORE = {
    "apply", "changed", "close_after_fault", "confirm", "end_deletion", "fail", "fence",
    "fence_for_deletion", "group_confirmed", "revert", "resume",
}  # fmt: skip
ASKING = {
    "compacted", "compacted_reader", "compaction_cursor", "is_compacting",
    "config", "cursor_names", "cursors", "estimated_backlog_bytes", "find_newest_before",
    "find_newest_matching", "first_position", "has_cursors", "has_entries_from",
    "is_terminated", "is_valid_position",
    "last_confirmed_entry", "ledgers", "next_valid_position", "number_of_entries",
    "previous_position", "properties", "read_cached", "read_counts", "read_entries", "read_entry",
    "read_in_chunks", "read_resident",
    "slowest_position", "state", "total_size", "unit_kind", "unit_name",
}  # fmt: skip


def never(position: Position, error: LedgerError | None) -> None:
    raise AssertionError(f"{position} was confirmed to a stale owner")


async def opened_again(store: LedgerStore, engine: FaultyEngine) -> ManagedLedger:
    return await store.open_managed_ledger("orders", config=SMALL)


async def taken_over(store: LedgerStore, engine: FaultyEngine) -> ManagedLedger:
    newer = await LedgerStore.open(None, engine=engine, clock=store.clock)
    return await newer.open_managed_ledger("orders", config=SMALL)


async def taken_after_a_power_cut(store: LedgerStore, engine: FaultyEngine) -> ManagedLedger:
    engine.drop_unsynced()
    return await taken_over(store, engine)


async def deleted_and_made_again(store: LedgerStore, engine: FaultyEngine) -> ManagedLedger:
    await store.delete_managed_ledger("orders")
    return await opened_again(store, engine)


WAYS = (opened_again, taken_over, taken_after_a_power_cut, deleted_and_made_again)
Way = Callable[[LedgerStore, FaultyEngine], Awaitable[ManagedLedger]]


def stored(engine: FaultyEngine) -> tuple[list[tuple[bytes, bytes]], list[int]]:
    """Return all rows, and the last entry of every ledger that ever existed."""
    return engine.scan(b"", b"\xff"), [engine.last_entry(ledger_id) for ledger_id in range(50)]


async def refused(call: Call, ml: ManagedLedger) -> LedgerError | None:
    try:
        made = call(ml)
        if isinstance(made, Awaitable):
            await made
    except LedgerError as error:
        return error
    return None


def test_no_method_of_the_handle_is_forgotten() -> None:
    covered = {
        *CHANGING,
        *OFFLOADING,
        *APPENDING,
        *CURSORS,
        *HARMLESS,
        *LISTENING,
        *OF_COMMITTER_AND_STORE,
        *ASKING,
    }
    assert covered == {name for name in dir(ManagedLedger) if not name.startswith("_")}


@pytest.mark.parametrize("method", [*CHANGING, *OFFLOADING, *APPENDING, *CURSORS, *HARMLESS])
@pytest.mark.parametrize("way", WAYS)
async def test_a_stale_owner_changes_nothing_and_acknowledges_nothing(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine, way: Way, method: str
) -> None:
    await add_all(ml, numbers(0, 9))
    await ml.set_property("a", "b")
    newer = await way(store, engine)
    await newer.add_entry(b"mine")
    before = stored(engine), newer.ledgers, dict(newer.properties), await all_of(newer)
    call = {**CHANGING, **OFFLOADING, **APPENDING, **CURSORS, **HARMLESS}[method]
    error = await refused(call, ml)
    assert (method in HARMLESS) == (error is None)
    assert error is None or isinstance(error, Fenced)
    with pytest.raises(Fenced):
        await ml.read_entries(EARLIEST, 1)
    await newer._committer.flush()
    assert before == (stored(engine), newer.ledgers, dict(newer.properties), await all_of(newer))
    await newer.add_entry(b"still mine")
    if way in (taken_over, taken_after_a_power_cut):
        await newer.close()


@pytest.mark.parametrize("method", [*CHANGING, *APPENDING, *CURSORS])
async def test_after_a_failed_sync_nothing_is_changed_or_acknowledged(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine, method: str
) -> None:
    await add_all(ml, numbers(0, 9))
    results: list[type[LedgerError | None]] = []

    def done(position: Position, error: LedgerError | None) -> None:
        results.append(type(error))

    hold = engine.hold_next("sync")
    append(ml, b"x", done)
    append(ml, b"x", done)
    await hold.reached()
    append(ml, b"behind", done)
    hold.fail()
    await store.flush()
    calls = dict(engine.calls)
    assert isinstance(await refused({**CHANGING, **APPENDING, **CURSORS}[method], ml), Fenced)
    assert ([Fenced] * 3, calls) == (results, engine.calls), "nothing is retried"
    engine.drop_unsynced()
    newer = await taken_over(store, engine)
    assert numbers(0, 9) == await all_of(newer)
    await newer.close()


@pytest.mark.parametrize("method", list(CHANGING))
async def test_a_newer_version_fences_a_handle_without_it(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine, method: str
) -> None:
    """Compare-and-set holds even for a handle that was not fenced; it does not retry."""
    await add_all(ml, numbers(0, 5))
    ml.reconfigure(ManagedLedgerConfig(max_entries_per_ledger=4, retention_bytes=0))
    ml._services.versions.reset("orders", 99)
    before = stored(engine)
    assert isinstance(await refused(CHANGING[method], ml), Fenced)
    await store.flush()
    assert (LedgerState.FENCED, before) == (ml.state, stored(engine))
    for call in APPENDING.values():
        assert isinstance(await refused(call, ml), Fenced)


async def test_an_append_that_fills_a_ledger_of_a_lost_owner_is_the_last_one(
    store: LedgerStore, ml: ManagedLedger
) -> None:
    """Regression: the append raised, and its entry was confirmed afterwards all the same."""
    await add_all(ml, numbers(0, 2))
    ml._services.versions.reset("orders", 99)
    results: list[LedgerError | None] = []
    append(ml, b"3", lambda position, error: results.append(error))
    await store.flush()
    assert ([None], LedgerState.FENCED) == (results, ml.state)


OWNER = """
import asyncio, sys
from kledger.ledger import LedgerStore

async def own(path):
    async with LedgerStore.open(path) as store:
        ml = await store.open_managed_ledger("orders")
        await ml.add_entry(b"theirs")
        print("owned", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(own(sys.argv[1]))
"""


async def test_a_folder_of_another_process_is_refused_until_that_has_ended(
    tmp_path: Path,
) -> None:
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, str(tmp_path), stdin=PIPE, stdout=PIPE
    )
    try:
        assert owner.stdout is not None
        assert b"owned\n" == await owner.stdout.readline()
        with pytest.raises(StoreInUse, match=str(tmp_path)):
            await LedgerStore.open(tmp_path)
    finally:
        owner.kill()
        await owner.wait()
    async with LedgerStore.open(tmp_path) as store:
        ml = await store.open_managed_ledger("orders")
        assert [b"theirs"] == await all_of(ml)
        await ml.add_entry(b"ours")


# What stops halfway


async def test_a_failed_start_releases_the_folder(tmp_path: Path) -> None:
    """Regression: the raised error kept the folder locked."""
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


async def test_a_cancelled_opening_leaves_no_trace(open_store: OpenStore) -> None:
    """Regression: the next opening began before the first was written; both made a first ledger."""
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
    """Regression: the handle took entries again, and lost them when the deletion was written."""
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
    """Regression: it was reopened unknown to its store, a second writer that nothing fenced."""
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


@pytest.mark.parametrize("fails", [True, False])
async def test_a_handle_closed_during_its_deletion_stays_closed(
    open_store: OpenStore, *, fails: bool
) -> None:
    """Regression: `close` returned, and after the failed deletion the handle accepted appends."""
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    ml = await store.open_managed_ledger("orders")
    await ml.add_entry(b"0")
    hold = engine.hold_next("commit")
    deleting = asyncio.ensure_future(store.delete_managed_ledger("orders"))
    await hold.reached()
    closing = asyncio.ensure_future(ml.close())
    await asyncio.sleep(0)
    hold.fail() if fails else hold.release()
    await closing
    await asyncio.gather(deleting, return_exceptions=True)
    assert LedgerState.CLOSED is ml.state
    with pytest.raises(AlreadyClosed):
        append(ml, b"1")
    if fails:
        assert [b"0"] == await all_of(await store.open_managed_ledger("orders"))
    else:
        assert [ID_COUNTER] == [key for key, _ in engine.scan(b"", b"\xff")]


class Slow(FaultyEngine):
    """An engine that holds lookups of managed ledgers until the test releases them."""

    def __init__(self) -> None:
        super().__init__(None)
        self.is_slow = False
        self.has_come, self.may_go = threading.Event(), threading.Event()

    def get(self, key: bytes) -> bytes | None:
        if self.is_slow:
            self.is_slow = False
            self.has_come.set()
            self.may_go.wait()
        return super().get(key)


@pytest.mark.parametrize("call", ["open", "delete"])
async def test_a_store_that_was_replaced_during_a_read_discards_the_result(
    open_store: OpenStore, call: str
) -> None:
    """Regression: it read ledgers of its successor, above its own, and failed on their order."""
    engine = Slow()
    store = await open_store(engine=engine)
    await add_all(await store.open_managed_ledger("orders"), numbers(0, 1))
    engine.is_slow = True
    change = store.open_managed_ledger if call == "open" else store.delete_managed_ledger
    late = asyncio.ensure_future(change("orders"))
    await asyncio.to_thread(engine.has_come.wait)
    successor = await open_store(engine=engine)
    ml = await successor.open_managed_ledger("orders", config=SMALL)
    await add_all(ml, numbers(2, 12))
    engine.may_go.set()
    with pytest.raises(Fenced, match="taken over"):
        await late
    assert numbers(0, 12) == await all_of(ml)


@pytest.mark.parametrize("under_way", ["opening", "deletion"])
async def test_a_closing_store_finishes_openings_and_deletions(
    open_store: OpenStore, under_way: str
) -> None:
    """Regression: the deletion found no such name and reported success, but nothing was deleted."""
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    is_opening = under_way == "opening"
    if not is_opening:
        await (await store.open_managed_ledger("orders")).add_entry(b"0")
    hold = engine.hold_next("commit")
    ending = [store.open_managed_ledger("orders"), store.delete_managed_ledger("orders")]
    tasks = [asyncio.ensure_future(each) for each in (ending if is_opening else ending[::-1])]
    await hold.reached()
    closing = asyncio.ensure_future(store.close())
    await asyncio.sleep(0)
    hold.release()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    await closing
    first = AlreadyClosed if is_opening else type(None)
    assert [first, AlreadyClosed] == [type(each) for each in outcomes]
    again = await open_store(engine=engine)
    assert (["orders"] if is_opening else []) == again.managed_ledger_names()


async def test_a_closing_store_does_not_cancel_waiting_trims(open_store: OpenStore) -> None:
    """Regression: after enough others a caller was cancelled with the tasks of the store."""
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    ml = await store.open_managed_ledger("orders", config=SMALL)
    await add_all(ml, numbers(1, 5))
    hold = engine.hold_next("commit")
    trims = [asyncio.ensure_future(ml.truncate()) for _ in range(3000)]
    await hold.reached()
    closing = asyncio.ensure_future(store.close())
    await asyncio.sleep(0)
    hold.release()
    outcomes = await asyncio.gather(*trims, return_exceptions=True)
    await closing
    assert [type(None), *[AlreadyClosed] * 2999] == [type(each) for each in outcomes]


async def test_waiters_for_the_queue_are_called_when_the_store_is_fenced(
    open_store: OpenStore,
) -> None:
    """Regression: the group in flight counted for ever, as its end was not reported any more."""
    engine = FaultyEngine(None)
    store = await open_store(engine=engine, config=StoreConfig(committer_queue_bytes_max=4))
    ml = await store.open_managed_ledger("orders")
    hold = engine.hold_next("sync")
    append(ml, b"large enough")
    await hold.reached()
    results: list[str] = []
    store.on_drained(lambda: results.append("before"))
    await open_store(engine=engine)
    assert ["before"] == results
    store.on_drained(lambda: results.append("after"))
    await asyncio.sleep(0)
    assert ["before", "after"] == results


async def test_a_listener_that_raises_does_not_stop_the_fencing_of_others(
    open_store: OpenStore, contained: Contained
) -> None:
    """Regression: callers waited for ever, other handles stayed open, `on_fatal` was not called."""
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    handles = [await store.open_managed_ledger(name) for name in "abc"]
    fatal: list[LedgerError] = []
    store.on_fatal = fatal.append
    results: list[LedgerState] = []

    def broken() -> None:
        raise ZeroDivisionError

    for ml in handles:
        ml.add_listener(broken)
        ml.add_listener(lambda ml=ml: results.append(ml.state))  # type: ignore[misc]
    engine.fail_next("sync")
    adding = [asyncio.ensure_future(ml.add_entry(b"x")) for ml in handles]
    assert [Fenced] * 3 == [type(await asyncio.wait_for(outcome(each), 60)) for each in adding]
    assert ([LedgerState.FENCED] * 3, 1) == (results, len(fatal))
    assert [ZeroDivisionError] * 3 == [type(error) for error in contained.errors]


async def outcome(adding: asyncio.Future[Position]) -> Position | LedgerError:
    try:
        return await adding
    except LedgerError as error:
        return error
