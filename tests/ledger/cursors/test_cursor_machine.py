"""A cursor against plain sets, through acknowledgements, reads, resets, trims and power cuts."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kledger.ledger import (
    EARLIEST,
    LATEST,
    Cursor,
    LedgerStore,
    ManagedLedger,
    ManagedLedgerConfig,
    Position,
    StorageFailed,
)
from kledger.ledger.testing import FaultyEngine, ManualClock

Result = TypeVar("Result")

CONFIG = ManagedLedgerConfig(max_entries_per_ledger=4, retention_bytes=0)
INDEXES = st.integers(0, (1 << 30))
BATCH = 3


class CursorMachine(RuleBasedStateMachine):
    """`entries`: all ever added; `done`: acknowledged or removed; `partial`: rest of batches.

    `read` is what was read since the last rewind; all of it is in memory only.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock(1000)
        self.engine = FaultyEngine(None)
        self.entries: list[Position] = []
        self.done: set[Position] = set()
        self.partial: dict[Position, set[int]] = {}
        self.read: set[Position] = set()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.loop.run_until_complete(work)

    @initialize()
    def start(self) -> None:
        self.open_store()

    def open_store(self) -> None:
        async def opening() -> tuple[LedgerStore, ManagedLedger, Cursor]:
            store = await LedgerStore.open(None, engine=self.engine, clock=self.clock)
            ml = await store.open_managed_ledger("orders", config=CONFIG)
            return store, ml, await ml.open_cursor("c", initial=EARLIEST)

        self.store, self.ml, self.cursor = self.run(opening())
        self.read = set()

    def left(self) -> list[Position]:
        return [each for each in self.entries if each not in self.done]

    def finish(self, positions: set[Position]) -> None:
        self.done |= positions
        for each in positions:
            self.partial.pop(each, None)

    @rule(count=st.integers(1, 7))
    def append(self, count: int) -> None:
        async def adding() -> list[Position]:
            return await asyncio.gather(*(self.ml.add_entry(b"x") for _ in range(count)))

        self.entries += self.run(adding())

    @rule(picks=st.lists(INDEXES, min_size=1, max_size=6), fails=st.booleans())
    def delete(self, picks: list[int], *, fails: bool) -> None:
        """What failed to become durable is acknowledged again, and is then."""
        if not self.entries:
            return
        chosen = {self.entries[pick % len(self.entries)] for pick in picks}
        if fails:
            self.engine.fail_next("commit")
            try:
                self.run(self.cursor.delete(chosen))
            except StorageFailed:
                pass
            else:
                self.run(self.put())
        self.run(self.cursor.delete(chosen))
        self.finish(chosen)

    async def put(self) -> None:
        """Use up a fault that no call has met."""
        try:
            await self.store.put_rows([(b"k", b"v")])
        except StorageFailed:
            return

    @rule(pick=INDEXES)
    def mark_delete(self, pick: int) -> None:
        above = [each for each in self.entries if each >= self.cursor.mark_delete_position]
        if not above:
            return
        upto = above[pick % len(above)]
        self.run(self.cursor.mark_delete(upto))
        self.finish({each for each in self.entries if each <= upto})

    @rule(pick=INDEXES, indexes=st.sets(st.integers(0, BATCH - 1), min_size=1))
    def delete_batch_index(self, pick: int, indexes: set[int]) -> None:
        if not self.entries:
            return
        position = self.entries[pick % len(self.entries)]
        self.run(self.cursor.delete_batch_index(position, indexes, BATCH))
        if position not in self.done:
            partial = self.partial.setdefault(position, set(range(BATCH)))
            partial -= indexes
            if not partial:
                self.finish({position})

    @rule(count=st.integers(1, 6))
    def read_some(self, count: int) -> None:
        """Everything unacknowledged is read once, in order, until a rewind."""
        start = self.cursor.read_position
        expected = [each for each in self.left() if each >= start][:count]
        found = self.run(self.cursor.read(count))
        assert expected == [entry.position for entry in found]
        assert not self.read & set(expected)
        self.read |= set(expected)
        assert {each for each in self.left() if each < self.cursor.read_position} <= self.read

    @rule(picks=st.lists(INDEXES, min_size=1, max_size=6))
    def replay(self, picks: list[int]) -> None:
        if not self.entries:
            return
        chosen = {self.entries[pick % len(self.entries)] for pick in picks}
        before = self.cursor.read_position
        entries, acknowledged = self.run(self.cursor.replay(chosen))
        assert sorted(chosen - self.done) == [entry.position for entry in entries]
        assert chosen & self.done == acknowledged
        assert before == self.cursor.read_position

    @rule()
    def rewind(self) -> None:
        self.run(self.cursor.rewind())
        self.read = set()

    @rule(pick=INDEXES, acknowledged=st.sets(st.integers(0, BATCH - 1)))
    def reset(self, pick: int, acknowledged: set[int]) -> None:
        targets = [each for each in self.entries if self.ml.is_valid_position(each)]
        if not targets:
            return
        target = targets[pick % len(targets)]
        self.run(self.cursor.reset(target, acknowledged=acknowledged, batch_size=BATCH))
        self.done = {each for each in self.entries if each < target}
        self.partial = {target: set(range(BATCH)) - acknowledged}
        if not self.partial[target]:
            self.finish({target})
        self.read = set()

    @rule(count=st.integers(1, 6))
    def skip(self, count: int) -> None:
        left = self.left()
        self.run(self.cursor.skip(count))
        self.finish(set(left[:count]))
        self.read -= self.done
        self.read |= {each for each in self.left() if each < self.cursor.read_position}

    @rule()
    def clear_backlog(self) -> None:
        self.run(self.cursor.clear_backlog())
        self.finish(set(self.entries))

    @rule(how=st.sampled_from(["trim", "truncate", "roll_over"]))
    def trim(self, how: str) -> None:
        """No unacknowledged entry is removed."""
        self.run(getattr(self.ml, how)())

    @rule(pick=INDEXES)
    def trim_before(self, pick: int) -> None:
        """As a log start that is raised: what is removed counts as acknowledged."""
        if not self.entries:
            return
        self.run(self.ml.trim_before(self.entries[pick % len(self.entries)]))
        first = self.ml.first_position
        gone = {each for each in self.entries if each < first}
        if self.entries and not self.ml.number_of_entries(EARLIEST, LATEST):
            gone = set(self.entries)
        self.finish(gone)

    @rule()
    def close_and_open_the_cursor(self) -> None:
        self.run(self.cursor.close())
        position = self.cursor.read_position
        self.cursor = self.run(self.ml.open_cursor("c"))
        assert position == self.cursor.read_position

    @rule()
    def take_over(self) -> None:
        self.ml = self.run(self.store.open_managed_ledger("orders", config=CONFIG))
        self.cursor = self.ml.cursors["c"]
        self.read = set()

    @rule()
    def restart(self) -> None:
        self.run(self.store.close())
        self.open_store()

    @rule(pick=INDEXES)
    def crash(self, pick: int) -> None:
        """Cut the power over an acknowledgement that was not synced."""

        async def crashing() -> None:
            hold = self.engine.hold_next("sync")
            work = asyncio.ensure_future(self.store.put_rows([(b"k", b"v")]))
            await hold.reached()
            if self.entries:
                position = self.entries[pick % len(self.entries)]
                lost = asyncio.ensure_future(self.cursor.delete(position))
                await asyncio.sleep(0)
            self.engine.drop_unsynced()
            await asyncio.gather(work, return_exceptions=True)
            if self.entries:
                await asyncio.gather(lost, return_exceptions=True)
            await self.store.close()

        self.run(crashing())
        self.open_store()

    async def settle(self) -> None:
        """Let the trims after acknowledgements run."""
        for _ in range(3):
            for _ in range(4):
                await asyncio.sleep(0)
            await self.store.flush()

    @invariant()
    def equals_the_sets(self) -> None:
        if not hasattr(self, "ml"):
            return
        self.run(self.settle())
        cursor, left = self.cursor, self.left()
        assert len(left) == cursor.backlog
        holes = {
            each
            for each in self.entries
            for after, upto in cursor.individually_deleted
            if after < each <= upto
        }
        assert {e for e in self.done if e > cursor.mark_delete_position} == holes
        assert not left or left[0] > cursor.mark_delete_position
        assert all(each <= cursor.mark_delete_position or each in holes for each in self.done)
        for position, partial in self.partial.items():
            expected = partial if partial != set(range(BATCH)) else None
            assert expected == cursor.batch_indexes(position)
        assert cursor.read_position > cursor.mark_delete_position
        listed = {info.ledger_id for info in self.ml.ledgers}
        assert all(each.ledger_id in listed for each in left), "an unacknowledged entry was trimmed"

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.run(self.store.close())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


TestCursorMachine = CursorMachine.TestCase
TestCursorMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
