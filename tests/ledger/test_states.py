"""Every state of a handle, how it is reached, and what is refused in it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kledger.ledger import (
    EARLIEST,
    AlreadyClosed,
    Deleted,
    Entry,
    Fenced,
    LedgerError,
    LedgerState,
    LedgerStore,
    ManagedLedger,
    Position,
    StorageFailed,
    StoreConfig,
    Terminated,
)
from kledger.ledger.testing import FaultyEngine
from tests.ledger.words import SMALL, OpenStore, add_all, all_of, append, datas, numbers

State = LedgerState
Refusal = type[LedgerError] | None


async def refusals(ml: ManagedLedger) -> tuple[LedgerState, Refusal, Refusal, Refusal]:
    """Return the state, and what an append, a change and a read get in it."""

    async def refused(call: Callable[[], object]) -> Refusal:
        try:
            made = call()
            if isinstance(made, Awaitable):
                await made
        except LedgerError as error:
            return type(error)
        return None

    state = ml.state
    return (
        state,
        await refused(lambda: append(ml, b"x")),
        await refused(ml._handle_state.check_changeable),
        await refused(lambda: ml.read_entries(EARLIEST, 1)),
    )


# Each state


async def test_opened(ml: ManagedLedger) -> None:
    assert (State.LEDGER_OPENED, None, None, None) == await refusals(ml)


async def test_closing_and_creating_refuse_nothing(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine
) -> None:
    await add_all(ml, numbers(0, 2))
    hold = engine.hold_next("commit")
    append(ml, b"3")
    await hold.reached()
    assert (State.CLOSING_LEDGER, None, None, None) == await refusals(ml)
    hold.release()
    await store.flush()
    hold = engine.hold_next("commit")
    rolling = asyncio.ensure_future(ml.roll_over())
    await hold.reached()
    assert (State.CREATING_LEDGER, None, None, None) == await refusals(ml)
    hold.release()
    await rolling
    await store.flush()
    assert (State.LEDGER_OPENED, [*numbers(0, 3), b"x", b"x"]) == (ml.state, await all_of(ml))


async def test_closed(ml: ManagedLedger) -> None:
    await ml.close()
    assert (State.CLOSED, AlreadyClosed, AlreadyClosed, Fenced) == await refusals(ml)


async def test_fenced(store: LedgerStore, ml: ManagedLedger) -> None:
    await store.open_managed_ledger("orders")
    assert (State.FENCED, Fenced, Fenced, Fenced) == await refusals(ml)


async def test_fenced_for_deletion_and_deleted(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine
) -> None:
    hold = engine.hold_next("commit")
    deleting = asyncio.ensure_future(store.delete_managed_ledger("orders"))
    await hold.reached()
    assert (State.FENCED_FOR_DELETION, Fenced, Fenced, Fenced) == await refusals(ml)
    hold.release()
    await deleting
    assert (State.CLOSED, Deleted, Deleted, Deleted) == await refusals(ml)


@pytest.mark.parametrize("is_terminated", [False, True])
async def test_a_failed_deletion_restores_the_state(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine, is_terminated: bool
) -> None:
    if is_terminated:
        await ml.terminate()
    before = ml.state
    engine.fail_next("commit")
    with pytest.raises(StorageFailed):
        await store.delete_managed_ledger("orders")
    assert before is ml.state


async def test_terminated(ml: ManagedLedger) -> None:
    await ml.terminate()
    assert (State.TERMINATED, Terminated, None, None) == await refusals(ml)


async def test_write_failed(store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine) -> None:
    states: list[LedgerState] = []

    def done(position: Position, error: LedgerError | None) -> None:
        states.append(ml.state)
        for call in (lambda: append(ml, b"early"), ml._handle_state.check_changeable):
            with pytest.raises(StorageFailed, match="waiting to recover"):
                call()
        assert [b"0"] == datas(ml.read_cached(EARLIEST, 9) or [])

    await ml.add_entry(b"0")
    engine.fail_next("commit")
    append(ml, b"x", done)
    await store.flush()
    assert [State.WRITE_FAILED, State.LEDGER_OPENED] == [*states, ml.state]


def test_the_other_two_states_are_never_seen() -> None:
    """Before it is opened there is no handle; a ledger is not closed without a next one."""
    tested = {
        State.LEDGER_OPENED, State.CLOSING_LEDGER, State.CREATING_LEDGER, State.CLOSED,
        State.FENCED, State.FENCED_FOR_DELETION, State.TERMINATED, State.WRITE_FAILED,
    }  # fmt: skip
    assert {State.NONE, State.CLOSED_LEDGER} == set(State) - tested


# Completion


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
async def test_a_confirmed_position_can_be_read_in_its_callback(
    open_store: OpenStore, cache_bytes: int
) -> None:
    """Inside the callback of the append, and inside the listener, also without a cache."""
    store = await open_store(config=StoreConfig(cache_bytes=cache_bytes))
    ml = await store.open_managed_ledger("orders", config=SMALL)
    reads: list[tuple[Position, asyncio.Future[list[Entry]]]] = []

    def read(position: Position) -> None:
        assert position <= ml.last_confirmed_entry
        assert ml.has_entries_from(position)
        cached = ml.read_cached(position, 1)
        assert bool(cache_bytes) == (cached is not None)
        assert position in {entry.position for entry in cached or [Entry(position, b"")]}
        reads.append((position, asyncio.ensure_future(ml.read_entries(position, 1))))

    stop_listening = ml.listen(lambda: read(ml.last_confirmed_entry))
    positions = [append(ml, data, lambda p, error: read(p)) for data in numbers(0, 9)]
    await store.flush()
    stop_listening()
    seen = [position for position, _ in reads]
    assert positions == seen[: len(positions)]
    assert positions[-1] in seen[len(positions) :], "the listener was called, too"
    assert seen == [(await reading)[0].position for _, reading in reads]


async def test_appends_and_resent_adds_complete_in_order(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine
) -> None:
    """Retried appends precede new ones, and keep their order in the new ledger."""
    completed: list[str] = []

    async def add(number: int) -> None:
        await ml.add_entry(b"%d" % number)
        completed.append(f"add {number}")

    def done(position: Position, error: LedgerError | None) -> None:
        completed.append("append" if error is None else type(error).__name__)

    await ml.add_entry(b"before")
    hold = engine.hold_next("commit")
    adding = [asyncio.ensure_future(add(number)) for number in range(3)]
    await hold.reached()
    append(ml, b"lost", done)
    adding += [asyncio.ensure_future(add(number)) for number in range(3, 6)]
    await asyncio.sleep(0)
    hold.fail()
    await asyncio.gather(*adding)
    append(ml, b"after", done)
    await store.flush()
    assert ["StorageFailed", *(f"add {n}" for n in range(6)), "append"] == completed
    assert [b"before", *numbers(0, 5), b"after"] == await all_of(ml)
    assert [1, 4, 3] == [info.entries for info in ml.ledgers]


async def test_lost_appends_fail_before_later_ones_are_confirmed(
    ml: ManagedLedger, engine: FaultyEngine
) -> None:
    completed: list[str] = []

    async def add(number: int) -> None:
        try:
            await ml.add_entry(b"%d" % number)
        except StorageFailed:
            completed.append(f"lost {number}")
        else:
            completed.append(f"add {number}")

    for _ in range(4):
        engine.fail_next("commit")
    await asyncio.gather(*(add(number) for number in range(3)))
    assert ["lost 0", "lost 1", "lost 2"] == completed
    await add(3)
    assert [b"3"] == await all_of(ml)
