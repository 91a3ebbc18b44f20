"""A managed ledger against a list, through everything that can happen to it, in any order."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kledger.ledger import (
    EARLIEST,
    LATEST,
    Fenced,
    LedgerError,
    LedgerState,
    LedgerStore,
    ManagedLedger,
    ManagedLedgerConfig,
    Position,
    StorageFailed,
    StoreConfig,
    Terminated,
)
from kledger.ledger.metadata.retention_plan import plan_trim
from kledger.ledger.testing import FaultyEngine, ManualClock
from tests.ledger.words import datas

Result = TypeVar("Result")

CONFIG = ManagedLedgerConfig(
    max_entries_per_ledger=4,
    max_bytes_per_ledger=60,
    max_rollover_ms=1000,
    retention_ms=1500,
    retention_bytes=400,
)


class ManagedLedgerMachine(RuleBasedStateMachine):
    """`entries` is every acknowledged entry ever; what was trimmed is a beginning of it."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock(1000)
        self.engine = FaultyEngine(None)
        self.entries: list[tuple[Position, bytes]] = []
        self.trimmed_before = EARLIEST
        self.properties: dict[str, str] = {}
        self.terminated = False
        self.count = 0
        self.last = EARLIEST

    @initialize(cache_bytes=st.sampled_from([0, 500, 10_000]))
    def start(self, cache_bytes: int) -> None:
        self.config = StoreConfig(cache_bytes=cache_bytes)
        self.open_store()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.loop.run_until_complete(work)

    def open_store(self) -> None:
        async def opening() -> tuple[LedgerStore, ManagedLedger]:
            store = await LedgerStore.open(
                None, engine=self.engine, clock=self.clock, config=self.config
            )
            return store, await store.open_managed_ledger("orders", config=CONFIG)

        self.store, self.ml = self.run(opening())

    async def append_some(self, sizes: list[int]) -> list[tuple[Position, bytes, bool]]:
        """Append at once; return position, data and whether it was acknowledged, in order."""
        outcomes: list[tuple[Position, bytes, bool]] = []
        for size in sizes:
            data = b"%d " % self.count + bytes(size)
            self.count += 1

            def done(position: Position, error: LedgerError | None, data: bytes = data) -> None:
                outcomes.append((position, data, error is None))

            self.ml.append_nowait(data, 1, self.count, done)
        await self.store.flush()
        assert len(outcomes) == len(sizes)
        return outcomes

    @precondition(lambda self: not self.terminated)
    @rule(sizes=st.lists(st.integers(0, 70), min_size=1, max_size=9))
    def append(self, sizes: list[int]) -> None:
        outcomes = self.run(self.append_some(sizes))
        assert all(is_acknowledged for _, _, is_acknowledged in outcomes)
        self.entries += [(position, data) for position, data, _ in outcomes]

    @precondition(lambda self: not self.terminated)
    @rule(sizes=st.lists(st.integers(0, 70), min_size=1, max_size=9))
    def append_and_fail(self, sizes: list[int]) -> None:
        self.engine.fail_next("commit")
        outcomes = self.run(self.append_some(sizes))
        assert not any(is_acknowledged for _, _, is_acknowledged in outcomes)

    @precondition(lambda self: not self.terminated)
    @rule(count=st.integers(1, 6), failures=st.integers(0, 2))
    def add(self, count: int, failures: int) -> None:
        """Appends that `add_entry` retries are stored once, in order."""
        for _ in range(failures):
            self.engine.fail_next("commit")
        added = [b"%d" % (self.count + number) for number in range(count)]
        self.count += count

        async def adding() -> list[Position]:
            return await asyncio.gather(*(self.ml.add_entry(data) for data in added))

        self.entries += zip(self.run(adding()), added, strict=True)

    @precondition(lambda self: self.terminated)
    @rule()
    def append_behind_the_end(self) -> None:
        try:
            self.run(self.ml.add_entry(b"x"))
        except Terminated:
            return
        raise AssertionError("a terminated managed ledger took an entry")

    @rule()
    def reopen(self) -> None:
        before = self.ml
        self.ml = self.run(self.store.open_managed_ledger("orders", config=CONFIG))
        assert LedgerState.FENCED is before.state
        try:
            self.run(before.read_entries(EARLIEST, 1))
        except Fenced:
            return
        raise AssertionError("a fenced handle was served")

    @rule()
    def restart(self) -> None:
        self.run(self.store.close())
        self.open_store()

    @rule(sizes=st.lists(st.integers(0, 70), max_size=5))
    def crash(self, sizes: list[int]) -> None:
        """Cut the power over a group that was not synced."""

        async def crashing() -> None:
            hold = self.engine.hold_next("sync")
            if self.terminated:
                self.store.append_rows_nowait([(b"k", b"v")], lambda error: None)
            for _ in [] if self.terminated else [0, *sizes]:
                self.ml.append_nowait(b"lost", 1, 0, lambda position, error: None)
            await hold.reached()
            self.engine.drop_unsynced()
            await self.store.close()

        self.run(crashing())
        self.open_store()

    @precondition(lambda self: not self.terminated)
    @rule()
    def roll_over(self) -> None:
        self.run(self.ml.roll_over())

    @rule(ms=st.sampled_from([1, 400, 1100]))
    def let_time_pass(self, ms: int) -> None:
        self.clock.advance(ms)

    async def settle(self) -> None:
        """Let pending trims and timers run."""
        for _ in range(3):
            for _ in range(4):
                await asyncio.sleep(0)
            await self.store.flush()

    @rule()
    def trim(self) -> None:
        selected = plan_trim(
            self.ml.ledgers, now_ms=self.clock.now_ms(), retention_ms=1500, retention_bytes=400
        )
        expected = [i.ledger_id for i in self.ml.ledgers if i.ledger_id not in selected]
        self.run(self.ml.trim())
        assert expected == [info.ledger_id for info in self.ml.ledgers]

    @rule()
    def truncate(self) -> None:
        self.run(self.ml.truncate())
        assert 1 >= len(self.ml.ledgers)

    @rule(key=st.sampled_from("ab"), value=st.none() | st.sampled_from("xy"), fails=st.booleans())
    def set_property(self, key: str, value: str | None, *, fails: bool) -> None:
        if fails:
            self.engine.fail_next("commit")
        try:
            self.run(self.ml.set_property(key, value))
        except StorageFailed:
            assert fails
            return
        self.properties.pop(key, None)
        if value is not None:
            self.properties[key] = value

    @precondition(lambda self: not self.terminated and self.count > 40)
    @rule()
    def terminate(self) -> None:
        end = self.run(self.ml.terminate())
        self.terminated = True
        assert end == self.ml.last_confirmed_entry

    @rule(start=st.integers(0, 1 << 30), count=st.integers(1, 12), bytes_max=st.integers(1, 200))
    def read_somewhere(self, start: int, count: int, bytes_max: int) -> None:
        if not self.entries:
            return
        position, _ = self.entries[start % len(self.entries)]
        present = [each for each in self.present() if each[0] >= position][:count]
        found = self.run(self.ml.read_entries(position, count))
        assert present == [(entry.position, entry.data) for entry in found]
        within = self.run(self.ml.read_entries(position, count, bytes_max=bytes_max))
        assert found[: len(within)] == within
        assert 1 >= len(within) or sum(entry.size for entry in within) <= bytes_max
        following = found[len(within) :]
        assert not following or sum(e.size for e in [*within, following[0]]) > bytes_max

    def present(self) -> list[tuple[Position, bytes]]:
        """All entries of the listed ledgers must exist."""
        listed = {info.ledger_id for info in self.ml.ledgers}
        present = [each for each in self.entries if each[0].ledger_id in listed]
        assert self.entries[len(self.entries) - len(present) :] == present
        return present

    @invariant()
    def equals_the_list(self) -> None:
        if not hasattr(self, "ml"):
            return
        self.run(self.settle())
        present = self.present()
        found = self.run(self.ml.read_entries(EARLIEST, 1 << 30))
        assert present == [(entry.position, entry.data) for entry in found]
        assert len(present) == self.ml.number_of_entries(EARLIEST, LATEST)
        assert sum(map(len, datas(found))) == self.ml.total_size
        assert self.properties == self.ml.properties
        if present:
            assert present[-1][0] == self.ml.last_confirmed_entry
        infos = self.ml.ledgers
        assert all(info.entries for info in infos[:-1]), "no empty ledgers are left"
        assert self.terminated == (not infos or infos[-1].closed_ms is not None)
        assert all(info.entries <= 4 for info in infos)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.run(self.store.close())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


TestManagedLedgerMachine = ManagedLedgerMachine.TestCase
TestManagedLedgerMachine.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
