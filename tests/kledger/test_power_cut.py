"""A power cut at every single operation of a run of topics, producers and committed offsets.

What was acknowledged under `fsync`, or was there at the last checkpoint under `os`, is there once
and in order; a batch is there as a whole or not at all; a committed offset neither goes back nor
lies beyond the log; and an unanswered batch that its producer sends again is stored once.
"""

import asyncio
import contextlib
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from uuid import UUID

import pytest

from kledger.ledger import LedgerError, StoreConfig
from kledger.ledger.engine.faulty import Operation
from kledger.ledger.testing import FaultyEngine
from kledger.offsets import NO_EXPIRY, CommittedOffset, OffsetStore, TopicPartition
from kledger.topics import TopicsError
from tests.batches.words import batch
from tests.topics.words import SMALL_SEGMENTS, TopicStore, all_values, open_topics, outcome, submit

PARTITIONS = 2
STEPS = 5
DURABILITIES = ["fsync", "os"]


class PowerWent(Exception):
    """An append or a commit failed."""


@dataclass
class Partition:
    """The batches that a producer sent to a partition, and their outcomes."""

    sent: list[list[bytes]] = field(default_factory=list)
    acknowledged: int = 0
    committed: int = 0

    def next_batch(self) -> bytearray:
        """Make the next batch, of one to three records."""
        number = len(self.sent)
        self.sent.append([b"%d.%d" % (number, each) for each in range(number % 3 + 1)])
        return self.batch_of(number)

    def batch_of(self, number: int) -> bytearray:
        """Make a batch again, as a producer does without an answer."""
        return batch(*self.sent[number], producer=9, sequence=self.end_of(number))

    def end_of(self, count: int) -> int:
        """Return the offset behind so many batches, which is the next sequence as well."""
        return sum(map(len, self.sent[:count]))


@dataclass
class Run:
    """A run and its acknowledgements; `durable` is what must survive a power cut."""

    engine: FaultyEngine
    durability: str
    partitions: list[Partition] = field(
        default_factory=lambda: [Partition() for _ in range(PARTITIONS)]
    )
    durable: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)] * PARTITIONS)
    topics: set[str] = field(default_factory=set)

    @property
    def config(self) -> StoreConfig:
        """Settings of the store."""
        return StoreConfig(durability=self.durability)  # type: ignore[arg-type]

    def acknowledged(self) -> list[tuple[int, int]]:
        return [(each.acknowledged, each.committed) for each in self.partitions]

    async def go(self, opened: TopicStore) -> None:
        """Produce, commit what was read, change topics."""
        await opened.registry.create("orders", partitions=PARTITIONS, configs=SMALL_SEGMENTS)
        self.topics.add("orders")
        offsets = OffsetStore(opened.store)
        for step in range(STEPS):
            await asyncio.gather(*(self._produce(opened, index) for index in range(PARTITIONS)))
            for index in range(PARTITIONS):
                await self._commit(opened, offsets, index)
            if self.durability == "os" and step % 2 == 1:
                self.engine.checkpoint()
                self.durable = self.acknowledged()
        await opened.registry.create("more", partitions=1)
        self.topics.add("more")
        await opened.registry.delete("more")
        self.topics.discard("more")

    async def _produce(self, opened: TopicStore, index: int) -> None:
        topic = opened.registry.get("orders")
        assert topic is not None
        log = await topic.open_partition(index)
        partition = self.partitions[index]
        for answer in [submit(log, partition.next_batch()) for _ in range(2)]:
            if (await answer).error is not None:
                raise PowerWent
            partition.acknowledged += 1
            self._note()

    async def _commit(self, opened: TopicStore, offsets: OffsetStore, index: int) -> None:
        """Commit what a consumer has read, with another append on its way."""
        topic = opened.registry.get("orders")
        log = topic.partition(index) if topic else None
        assert log is not None
        partition = self.partitions[index]
        read_up_to = log.high_watermark
        pending = submit(log, partition.next_batch())
        ended = offsets.commit("g", {TopicPartition("orders", index): at(read_up_to)})
        if (await pending).error is not None or await ended is not None:
            raise PowerWent
        partition.committed = read_up_to
        partition.acknowledged += 1
        self._note()

    def _note(self) -> None:
        if self.durability == "fsync":
            self.durable = self.acknowledged()


def at(offset: int) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", 0, NO_EXPIRY, UUID(int=1))


async def check(run: Run) -> None:
    """Open again, compare, send again what was not acknowledged, compare again."""
    async with open_topics(run.engine, store_config=run.config) as opened:
        topic = opened.registry.get("orders")
        if topic is None:
            assert [(0, 0)] * PARTITIONS == run.durable
            return
        offsets = OffsetStore(opened.store)
        offsets.load()
        for index, partition in enumerate(run.partitions):
            log = await topic.open_partition(index)
            acknowledged, committed = run.durable[index]
            values = await all_values(log)
            ends = [0, *accumulate(map(len, partition.sent))]
            assert len(values) == log.high_watermark
            assert len(values) in ends[acknowledged:]
            whole = ends.index(len(values))
            assert [value for each in partition.sent[:whole] for value in each] == values
            found = offsets.committed("g", TopicPartition("orders", index))
            assert committed <= (found.offset if found else 0) <= log.high_watermark
            for number in range(max(0, whole - 3), len(partition.sent)):
                assert ends[number] == outcome(await submit(log, partition.batch_of(number)))
            everything = [value for each in partition.sent for value in each]
            assert everything == await all_values(log)
        if run.durability == "fsync":
            assert run.topics <= {each.name for each in opened.registry.all()}


async def recorded(durability: str) -> dict[str, int]:
    """Run without a fault; return how many operations of each kind began."""
    run = Run(FaultyEngine(None), durability)
    async with open_topics(run.engine, store_config=run.config, is_closed_cleanly=False) as opened:
        await run.go(opened)
        calls = dict(run.engine.calls)
    await check(run)
    return calls


async def cut_at(engine: FaultyEngine, durability: str, op: Operation, index: int) -> None:
    """Cut the power at one operation, then compare."""
    run = Run(engine, durability)
    for _ in range(index):
        engine.delay_next(op, 0)
    hold = engine.hold_next(op)
    async with open_topics(engine, store_config=run.config, is_closed_cleanly=False) as opened:
        going = asyncio.ensure_future(run.go(opened))
        reached = asyncio.ensure_future(hold.reached())
        await asyncio.wait([going, reached], return_when=asyncio.FIRST_COMPLETED)
        engine.drop_unsynced()
        with contextlib.suppress(LedgerError, TopicsError, PowerWent):
            await going
    await check(run)


@pytest.mark.parametrize(
    ("durability", "op"), [("fsync", "commit"), ("fsync", "sync"), ("os", "commit")]
)
async def test_power_cut_at_every_operation(durability: str, op: Operation) -> None:
    count = (await recorded(durability))[op]
    assert 15 < count
    for index in range(2, count):
        await cut_at(FaultyEngine(None), durability, op, index)


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("durability", DURABILITIES)
async def test_power_cut_on_disk(durability: str, step: int, tmp_path: Path) -> None:
    count = (await recorded(durability))["commit"]
    for index in range(2, count, step):
        engine = FaultyEngine(tmp_path / str(index))
        await cut_at(engine, durability, "commit", index)
        engine.close()
