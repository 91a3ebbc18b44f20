"""A partition against a list: appends, duplicates, failures, trims, restarts, in any order."""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, Literal, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kledger.batches.builder import BatchProducer, NewRecord, build_batch
from kledger.batches.reader import iterate_records
from kledger.ledger import StoreConfig
from kledger.ledger.engine.errors import StorageWriteFailed
from kledger.ledger.testing import FaultyEngine
from kledger.topics.errors import OffsetOutOfRange, TopicStorageFailed
from kledger.topics.keys import PartitionKeys, ids_after
from kledger.topics.partition.partition_log import BYTES_UNKNOWN, PartitionLog
from tests.batches.words import NOW_MS
from tests.topics.words import TopicStore, append, open_topics, outcome, submit

T = TypeVar("T")
SEGMENTS = {"internal.segment.bytes": "1500"}
COUNTS = st.integers(1, 4)
Kept = tuple[int, int, bytes]  # offset, timestamp, value


class PartitionAgainstList(RuleBasedStateMachine):
    """The model keeps every record ever acknowledged, the log start, and the producer's batches."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.engine = FaultyEngine(None)
        self.stack = AsyncExitStack()
        self.records: list[Kept] = []
        self.log_start = 0
        self.sequence = 0
        self.sent: list[tuple[int, int, int]] = []  # first sequence, count, base offset
        self.number = 0
        self.clock_ms = NOW_MS

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @initialize()
    def open(self) -> None:
        self.run(self._open())

    async def _open(self) -> None:
        self.opened: TopicStore = await self.stack.enter_async_context(
            open_topics(
                self.engine,
                now_ms=self.clock_ms,
                store_config=StoreConfig(durability="fsync"),
                is_closed_cleanly=False,
            )
        )
        self.log: PartitionLog = await self.opened.log(configs=SEGMENTS)

    def make(self, count: int, codec: int, shift: int, sequence: int | None) -> bytearray:
        records = []
        for _ in range(count):
            self.number += 1
            time = NOW_MS + (self.number * 7 + shift * 13) % 50
            records.append(NewRecord(b"%d" % self.number, key=b"k" * 20, timestamp=time))
        producer = BatchProducer(9, 0, sequence) if sequence is not None else BatchProducer()
        return build_batch(records, codec=codec, producer=producer)

    def remember(self, data: bytearray, base: int) -> None:
        for record in iterate_records(data):
            assert record.value is not None
            self.records.append((base + record.offset, record.timestamp, record.value))

    @property
    def end(self) -> int:
        return self.records[-1][0] + 1 if self.records else 0

    @rule(count=COUNTS, codec=st.sampled_from([0, 1, 2, 3, 4]), shift=st.integers(0, 9))
    def append_plain(self, count: int, codec: int, shift: int) -> None:
        data = self.make(count, codec, shift, None)
        assert self.end == outcome(self.run(append(self.log, data)))
        self.remember(data, self.end)

    @rule(count=COUNTS)
    def append_idempotent(self, count: int) -> None:
        data = self.make(count, 0, 0, self.sequence)
        base = self.end
        assert base == outcome(self.run(append(self.log, data)))
        self.sent.append((self.sequence, count, base))
        self.remember(data, base)
        self.sequence += count

    @rule(back=st.integers(1, 5))
    def repeat(self, back: int) -> None:
        if back <= len(self.sent):
            first, count, base = self.sent[-back]
            again = self.make(count, 0, 0, first)
            assert base == outcome(self.run(append(self.log, again)))

    @rule(counts=st.lists(COUNTS, min_size=1, max_size=4), failing=st.booleans())
    def append_pipelined(self, counts: list[int], failing: bool) -> None:
        self.run(self._pipelined(counts, failing=failing))

    async def _pipelined(self, counts: list[int], *, failing: bool) -> None:
        batches, sequence = [], self.sequence
        for count in counts:
            batches.append(self.make(count, 0, 3, sequence))
            sequence += count
        if failing:
            self.engine.fail_next("commit", StorageWriteFailed("no space"))
        answers = await asyncio.gather(*[submit(self.log, each) for each in batches])
        if failing:
            assert [TopicStorageFailed] * len(batches) == [outcome(each) for each in answers]
            return
        for data, count, answer in zip(batches, counts, answers, strict=True):
            base = self.end
            assert base == outcome(answer)
            self.sent.append((self.sequence, count, base))
            self.remember(data, base)
            self.sequence += count

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        offset = int(self.end * part)
        low = self.run(self.log.delete_records(offset))
        self.log_start = max(self.log_start, offset)
        assert self.log_start == low

    @rule(size=st.integers(200, 3000))
    def trim_by_size(self, size: int) -> None:
        async def work() -> None:
            await self.opened.registry.alter_configs("orders", {"retention.bytes": str(size)})
            await self.log.enforce_retention()
            await self.opened.registry.alter_configs("orders", {"retention.bytes": None})

        self.run(self.log.delete_records(self.log_start))  # a crash may have cut that off
        before = self.log.size_bytes
        self.run(work())
        assert self.log.size_bytes >= min(before, size)
        assert self.log_start <= self.log.log_start_offset <= self.end
        self.log_start = self.log.log_start_offset

    @rule(is_closed_cleanly=st.booleans())
    def restart(self, is_closed_cleanly: bool) -> None:
        async def work() -> None:
            if is_closed_cleanly:
                await self.opened.registry.close()
            await self.stack.aclose()
            await self._open()

        self.run(work())

    @rule(
        counts=st.lists(COUNTS, min_size=1, max_size=4),
        early=st.integers(1, 4),
        moment=st.sampled_from(["commit", "sync"]),
    )
    def crash(self, counts: list[int], early: int, moment: Literal["commit", "sync"]) -> None:
        """Everything unsynced is lost while appends are on their way; nothing answered is."""
        self.run(self._crash(counts, early, moment))

    async def _crash(
        self, counts: list[int], early: int, moment: Literal["commit", "sync"]
    ) -> None:
        batches, sequence = [], self.sequence
        for count in counts:
            batches.append((self.make(count, 0, 3, sequence), count))
            sequence += count
        hold = self.engine.hold_next(moment)
        answers = [submit(self.log, data) for data, _ in batches[:early]]
        await hold.reached()
        answers += [submit(self.log, data) for data, _ in batches[early:]]
        self.engine.drop_unsynced()
        answered = [each.done() and each.result().error is None for each in answers]
        await self.stack.aclose()
        await self._open()
        for (data, count), was_answered in zip(batches, answered, strict=True):
            base = self.end
            if base == self.log.high_watermark:
                assert not was_answered, f"lost the answered batch at {base}"
                return
            self.sent.append((self.sequence, count, base))
            self.remember(data, base)
            self.sequence += count

    @rule(
        part=st.floats(0, 1),
        later=st.integers(0, 4),
        moment=st.sampled_from(["commit", "sync"]),
    )
    def crash_while_trimming(
        self, part: float, later: int, moment: Literal["commit", "sync"]
    ) -> None:
        """Whichever step is cut off, the log start is the old or the new one."""
        self.run(self._crash_while_trimming(int(self.end * part), later, moment))

    async def _crash_while_trimming(
        self, offset: int, later: int, moment: Literal["commit", "sync"]
    ) -> None:
        for _ in range(later):
            self.engine.delay_next(moment, 0)
        hold = self.engine.hold_next(moment)
        trimming = asyncio.ensure_future(self.log.delete_records(offset))
        reaching = asyncio.ensure_future(hold.reached())
        await asyncio.wait([trimming, reaching], return_when=asyncio.FIRST_COMPLETED)
        was_answered = trimming.done()
        self.engine.drop_unsynced()
        reaching.cancel()
        await asyncio.gather(trimming, reaching, return_exceptions=True)
        await self.stack.aclose()
        await self._open()
        moved = max(offset, self.log_start)
        assert self.log.log_start_offset in ({moved} if was_answered else {moved, self.log_start})
        self.log_start = self.log.log_start_offset

    @rule()
    def rows_are_of_ledgers_that_are_there(self) -> None:
        self.run(self.opened.store.flush())
        keys = PartitionKeys(self.log.topic_id, 0)
        kept = {info.ledger_id for info in self.log._ledger.ledgers}
        for prefix in (keys.ledger_summaries, keys.intervals):
            found = [ids_after(key, prefix) for key, _ in self.opened.store.scan_rows(prefix)]
            assert {ids[0] for ids in found} <= kept

    @rule(after=st.integers(-2, 55))
    def find_time(self, after: int) -> None:
        alive = [(time, offset) for offset, time, _ in self.records if offset >= self.log_start]
        first = next((each for each in alive if each[0] >= NOW_MS + after), None)
        assert first == self.run(self.log.offset_for_timestamp(NOW_MS + after))
        newest = min(alive, key=lambda each: (-each[0], each[1]), default=None)
        if alive:
            middle = alive[len(alive) // 2][1]
            position = self.run(self.log._lookup.find(middle))
            entry = self.run(self.log._ledger.read_entry(position))
            assert middle in [record.offset for record in iterate_records(entry.buffer)]
        assert newest == self.run(self.log.max_timestamp_offset())

    @rule(part=st.floats(0, 1), max_bytes=st.integers(1, 2000), first=st.booleans())
    def read(self, part: float, max_bytes: int, first: bool) -> None:
        offset = int(self.end * part)
        found = self.run(self.log.read(offset, max_bytes, first_batch_always=first))
        if offset < self.log_start:
            assert isinstance(found.error, OffsetOutOfRange)
            return
        assert found.error is None
        whole = self.run(self.log.read(offset, 1 << 30))
        assert self.log.available_bytes(offset, self.end) in (whole.size, BYTES_UNKNOWN)
        assert found.size == sum(len(each) for each in found.chunks)
        assert found.size <= max_bytes or (first and len(found.chunks) == 1)
        assert (self.end, self.log_start) == (found.high_watermark, found.log_start_offset)
        got = [
            (r.offset, r.timestamp, r.value) for each in found.chunks for r in iterate_records(each)
        ]
        if got:
            assert got[0][0] <= offset <= got[-1][0]
            assert self.records[got[0][0] : got[-1][0] + 1] == got
        else:
            assert not first or offset == self.end

    @invariant()
    def ends_are_those_of_the_model(self) -> None:
        if hasattr(self, "log"):
            assert (self.log_start, self.end) == (
                self.log.log_start_offset,
                self.log.high_watermark,
            )

    def teardown(self) -> None:
        self.run(self.stack.aclose())
        self.loop.close()


PartitionAgainstList.TestCase.settings = settings(
    max_examples=30, stateful_step_count=25, deadline=None
)
TestPartitionAgainstList = PartitionAgainstList.TestCase
