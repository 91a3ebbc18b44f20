"""Walks off the event loop: the same result as at once, and what the end of a process means."""

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.errors import InvalidBatch
from kledger.ledger.commits.store_threads import StoreThreads
from kledger.topics.errors import TopicStorageFailed
from kledger.topics.partition.long_walk import run_walk
from kledger.topics.partition.record_walk import WalkNeeded
from tests.runtime.dying_processes import DyingProcesses
from tests.topics.partition.test_record_walk import keyed, walk
from tests.topics.words import open_topics, walked_here


@pytest.mark.parametrize("codec", [0, 2, 4])
async def test_a_process_finds_what_this_one_finds(codec: int) -> None:
    keyless = build_batch([NewRecord(b"v")] * 1000, codec=codec)
    async with open_topics() as at:
        pool = at.store.compute_pool
        good, bad = walk(keyed(1000, codec=codec)), walk(keyless)
        assert walked_here(good) == await run_walk(good, pool)
        expected, found = walked_here(bad).error, (await run_walk(bad, pool)).error
        assert isinstance(expected, InvalidBatch)
        assert isinstance(found, InvalidBatch)
        assert 100 == len(expected.record_errors)
        assert (str(expected), expected.record_errors) == (str(found), found.record_errors)


async def test_a_walk_whose_process_dies_rejects_the_batch_until_it_is_sent_again() -> None:
    async with open_topics(threads=StoreThreads(compute_processes=lambda: DyingProcesses(1))) as at:
        log = await at.log(configs={"cleanup.policy": "compact"})
        for is_stored in (False, True):
            with pytest.raises(WalkNeeded) as needed:
                log.append_nowait(memoryview(keyed(1000)), lambda _: None)
            walked = await run_walk(needed.value.walk, at.store.compute_pool)
            result = log.append_nowait(memoryview(keyed(1000)), lambda _: None, walked=walked)
            assert is_stored == (result is None)
            assert is_stored or (result and isinstance(result.error, TopicStorageFailed))
