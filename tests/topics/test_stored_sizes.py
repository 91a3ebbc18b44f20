"""Sizes of closed partitions, without opening any."""

from kledger.ledger.engine.errors import StorageError
from kledger.ledger.engine.memory import MemoryEngine
from kledger.topics.stored_sizes import stored_sizes
from tests.batches.words import batch
from tests.topics.partition.test_compaction import COMPACTED, LIMITS, keyed
from tests.topics.words import append, open_topics


async def test_sizes_of_closed_partitions_are_read_without_opening() -> None:
    async with open_topics() as opened:
        topic = await opened.registry.create("a", partitions=4)
        records = batch("x")
        for index in range(3):
            for _ in range(index + 1):
                await append(await topic.open_partition(index), records)
        for index in (0, 1):
            await topic.close_partition(index)
        found = await stored_sizes(opened.store, [(topic, index) for index in range(4)])
        size = len(records)
        assert {(topic, 0): size, (topic, 1): 2 * size} == found, "2 is open, 3 was never"
        assert [False, False] == [topic.is_open(index) for index in (0, 1)]


async def test_what_compactions_have_kept_counts() -> None:
    """Regression: it was left out, and the size fell to nothing when the partition closed."""
    async with open_topics() as opened:
        log = await opened.log(configs=COMPACTED)
        await keyed(log, *(f"k{n % 3}={n}" for n in range(20)))
        await log.managed_ledger.roll_over()
        await log.compact(LIMITS)
        size, topic = log.size_bytes, opened.registry.all()[0]
        assert size > 0
        await topic.close_partition(0)
        assert {(topic, 0): size} == await stored_sizes(opened.store, [(topic, 0)])


class Unreadable(MemoryEngine):
    """Does not find rows once it is broken."""

    is_broken = False

    def get(self, key: bytes) -> bytes | None:
        if self.is_broken:
            raise StorageError("input/output error")
        return super().get(key)


async def test_what_cannot_be_read_is_unknown() -> None:
    engine = Unreadable()
    async with open_topics(engine) as opened:
        topic = await opened.registry.create("a", partitions=1)
        await append(await topic.open_partition(0), batch("x"))
        await topic.close_partition(0)
        engine.is_broken = True
        assert {} == await stored_sizes(opened.store, [(topic, 0)])
        engine.is_broken = False
