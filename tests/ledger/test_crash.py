"""A power cut at every single operation of a recorded run, below the store.

What was acknowledged is there, in order, once, with the rows that belong to it; what was not is
there as a whole or not at all, and only as a beginning of what had been submitted.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kledger.ledger import (
    EARLIEST,
    LedgerError,
    LedgerState,
    LedgerStore,
    ManagedLedger,
    ManagedLedgerConfig,
    Position,
)
from kledger.ledger.engine.faulty import Operation
from kledger.ledger.testing import FaultyEngine, ManualClock
from tests.ledger.cluster.words import RestartingClusterEngine
from tests.ledger.words import datas

NAMES = ("orders", "payments")
SMALL = ManagedLedgerConfig(max_entries_per_ledger=3)


@dataclass
class Run:
    """What a run submitted, and the outcomes."""

    submitted: dict[str, list[bytes]] = field(default_factory=lambda: {name: [] for name in NAMES})
    acknowledged: dict[str, list[bytes]] = field(default_factory=lambda: {n: [] for n in NAMES})
    may_be_lost: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NAMES, 0))
    properties: dict[str, str] = field(default_factory=dict)
    terminated: bool = False

    def append(self, ml: ManagedLedger) -> None:
        number = len(self.submitted[ml.name])
        data = b"%s %d" % (ml.name.encode(), number)
        self.submitted[ml.name].append(data)

        def done(position: Position, error: LedgerError | None) -> None:
            if error is None:
                self.acknowledged[ml.name].append(data)

        row = (ml.name.encode(), b"%d" % (number + 1))
        ml.append_nowait(data, 1, 1, done, [row])

    async def go(self, store: LedgerStore) -> None:
        """Do a little of everything."""
        orders, payments = [await store.open_managed_ledger(n, config=SMALL) for n in NAMES]
        for step in range(14):
            for _ in range(step % 3 + 1):
                self.append(orders)
                self.append(payments)
            await store.flush()
        await orders.set_property("step", "one")
        self.properties["step"] = "one"
        self.may_be_lost["payments"] = len(self.acknowledged["payments"])
        await payments.truncate()
        self.append(payments)
        orders = await store.open_managed_ledger("orders", config=SMALL)
        self.append(orders)
        await orders.roll_over()
        self.append(orders)
        await orders.terminate()
        self.terminated = True
        await store.open_managed_ledger("third")
        await store.delete_managed_ledger("third")


async def check(run: Run, engine: FaultyEngine, clock: ManualClock) -> None:
    """Open the engine again and compare."""
    async with LedgerStore.open(None, engine=engine, clock=clock) as store:
        names = store.managed_ledger_names()
        assert all(name in names for name in NAMES if run.acknowledged[name])
        for name in set(names) & set(NAMES):
            ml = await store.open_managed_ledger(name)
            await check_one(run, ml, durable=int(store.get_row(name.encode()) or b"0"))


async def check_one(run: Run, ml: ManagedLedger, durable: int) -> None:
    """Compare one managed ledger; its row has the number of entries committed with it."""
    found = datas(await ml.read_entries(EARLIEST, 1 << 20))
    acknowledged, submitted = run.acknowledged[ml.name], run.submitted[ml.name]
    assert submitted[: len(acknowledged)] == acknowledged
    assert len(acknowledged) <= durable <= len(submitted)
    assert durable - len(found) <= run.may_be_lost[ml.name]
    assert submitted[durable - len(found) : durable] == found
    assert len(found) == ml.number_of_entries(EARLIEST, ml.last_confirmed_entry)
    assert sum(map(len, found)) == ml.total_size
    if ml.name != "orders":
        await ml.add_entry(b"more")
        assert [*found, b"more"] == datas(await ml.read_entries(EARLIEST, 1 << 20))
    else:
        assert run.properties.items() <= dict(ml.properties).items()
        assert not run.terminated or ml.state is LedgerState.TERMINATED


MAKERS: dict[str, Callable[[], FaultyEngine]] = {
    "memory": FaultyEngine,
    "cluster": lambda: FaultyEngine(RestartingClusterEngine()),
}
# A run without a disk takes ten times as long, so `make test` takes some of the operations.
ENGINES = [("memory", 1), ("cluster", 8), pytest.param("cluster", 1, marks=pytest.mark.slow)]


async def recorded() -> dict[str, int]:
    """Run without a fault; return how many operations of each kind began."""
    engine = FaultyEngine(None)
    run = Run()
    async with LedgerStore.open(None, engine=engine) as store:
        await run.go(store)
        assert run.submitted == run.acknowledged
        return dict(engine.calls)


async def cut_at(engine: FaultyEngine, op: Operation, index: int, clock: ManualClock) -> None:
    """Cut the power at one operation of the run, then compare."""
    run = Run()
    for _ in range(index):
        engine.delay_next(op, 0)
    hold = engine.hold_next(op)
    store = await LedgerStore.open(None, engine=engine, clock=clock)
    going = asyncio.ensure_future(run.go(store))
    reached = asyncio.ensure_future(hold.reached())
    await asyncio.wait([going, reached], return_when=asyncio.FIRST_COMPLETED)
    engine.drop_unsynced()
    with contextlib.suppress(LedgerError):
        await going
    await check(run, engine, clock)
    await store.close()


@pytest.mark.parametrize(("engine", "step"), ENGINES)
@pytest.mark.parametrize("op", ["commit", "sync"])
async def test_a_power_cut_at_every_operation(
    op: Operation, engine: str, step: int, clock: ManualClock
) -> None:
    count = (await recorded())[op]
    assert 20 < count
    for index in range(0, count, step):
        await cut_at(MAKERS[engine](), op, index, clock)


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.slow)])
async def test_a_power_cut_on_disk(clock: ManualClock, tmp_path: Path, step: int) -> None:
    """The same with the usual engine, at some of the operations."""
    for index in range(0, (await recorded())["sync"], step):
        engine = FaultyEngine(tmp_path / str(index))
        await cut_at(engine, "sync", index, clock)
        engine.close()


@pytest.mark.parametrize(("made", "step"), ENGINES)
@pytest.mark.parametrize("op", ["commit", "sync"])
async def test_a_failure_at_every_operation(
    op: Operation, made: str, step: int, clock: ManualClock
) -> None:
    """The same with an operation that fails: a commit is survived, a sync stops the store."""
    for index in range(0, (await recorded())[op], step):
        engine, run = MAKERS[made](), Run()
        for _ in range(index):
            engine.delay_next(op, 0)
        engine.fail_next(op)
        store = await LedgerStore.open(None, engine=engine, clock=clock)
        with contextlib.suppress(LedgerError):
            await run.go(store)
        assert (op == "sync") == store.is_fenced
        if op == "commit":
            for name in store.managed_ledger_names():
                ml = await store.open_managed_ledger(name)
                found = datas(await ml.read_entries(EARLIEST, 1 << 20))
                acknowledged = run.acknowledged.get(name, [])
                lost = len(acknowledged) - len(found)
                assert acknowledged[lost:] == found
                assert 0 <= lost <= run.may_be_lost.get(name, 0)
                assert len(found) == ml.number_of_entries(EARLIEST, ml.last_confirmed_entry)
        await store.close()
        engine.drop_unsynced()
