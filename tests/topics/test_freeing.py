"""A partition that is closed goes with its last user, and with it all that it was made of.

It was seventy objects in cycles: what was closed as idle stayed in memory until a collection of
everything, which holds up the loop for seconds.
"""

import asyncio
from contextlib import suppress

from kledger.topics.errors import UnknownPartition
from kledger.topics.partition.partition_log import PartitionLog
from tests.batches.words import batch
from tests.freed import Freed, without_collection
from tests.topics.words import TopicStore, append, open_topics, outcome


async def used(opened: TopicStore, freed: Freed) -> PartitionLog:
    """A partition of which everything was used."""
    log = await opened.log()
    freed.watch(log=log, ledger=log.managed_ledger)
    for value in "abc":
        assert (await append(log, batch(value, producer=7, sequence=ord(value) - 97))).error is None
    assert 0 == outcome(await append(log, batch("a", producer=7, sequence=0)))
    log.read_nowait(0, 100)
    await log.read(0, 100)
    await log.offset_for_timestamp(0)
    await log.locate(1)
    await log.delete_records(1)
    return log


async def refused(log: PartitionLog) -> None:
    """Use a partition that is closed."""
    assert UnknownPartition is outcome(await append(log, batch("x")))
    assert isinstance((await log.read(0, 1)).error, UnknownPartition)
    with suppress(UnknownPartition):
        await log.locate(0)
        raise AssertionError("it was found")


async def test_a_closed_partition_is_freed() -> None:
    async with open_topics() as opened:
        with without_collection() as freed:
            log = await used(opened, freed)
            await opened.registry.all()[0].close_partition(0)
            assert 0 == opened.store.cached_bytes
            await refused(log)
            del log
            await asyncio.sleep(0)
            assert [] == freed.left()


async def test_one_that_was_made_for_its_first_record_is_freed() -> None:
    async with open_topics() as opened:
        topic = await opened.registry.create("orders", partitions=1)
        with without_collection() as freed:
            log = topic.create_partition(0)
            assert log is not None
            freed.watch(log=log, ledger=log.managed_ledger)
            await append(log, batch("a"))
            await topic.close_partition(0)
            del log
            await asyncio.sleep(0)
            assert [] == freed.left()


async def test_a_partition_of_a_deleted_topic_is_freed() -> None:
    async with open_topics() as opened:
        with without_collection() as freed:
            log = await used(opened, freed)
            await opened.registry.delete("orders")
            await opened.registry.finish_deletions()
            await refused(log)
            del log
            await asyncio.sleep(0)
            assert [] == freed.left()


async def test_a_partition_that_a_fault_closed_is_freed() -> None:
    async with open_topics() as opened:
        with without_collection() as freed:
            log = await used(opened, freed)
            log.close_after_fault()
            await opened.log()
            del log
            await asyncio.sleep(0)
            assert [] == freed.left()
