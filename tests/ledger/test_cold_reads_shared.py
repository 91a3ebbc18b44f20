"""Reads of the storage that overlap: read once, put together, failed and forgotten for each."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.ledger.engine.base import Buffer
from kledger.ledger.engine.errors import EntryCorrupt
from kledger.ledger.errors import AlreadyClosed, Corrupt, StorageFailed
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.runtime.blocking import InlinePool
from tests.ledger.cold_words import COUNT, SIZE, AllResident, bench, entries
from tests.ledger.words import settled


async def test_readers_at_one_position_cause_one_read() -> None:
    async with bench() as on:
        hold = on.engine.hold_next("read")
        reading = [asyncio.ensure_future(on.read(10, 4)) for _ in range(50)]
        await hold.reached()
        hold.release()
        assert [entries(10, 13)] * 50 == await asyncio.gather(*reading)
        assert 1 == on.reads
        assert [entries(10, 13)] * 50 == [await on.read(10, 4) for _ in range(50)]
        await on.at_rest()
        assert 1 == on.reads


@pytest.mark.parametrize("read_ahead", [1000, 0])
async def test_overlapping_reads_share_what_they_have_in_common(read_ahead: int) -> None:
    """The second waits for the first and reads only the missing rest; nothing is cached."""
    async with bench(read_ahead) as on:
        await on.read(90, 2)  # the cache then knows the size of entries
        hold = on.engine.hold_next("read")
        first = asyncio.ensure_future(on.read(10, 6))
        await hold.reached()
        second = asyncio.ensure_future(on.read(14, 6))
        await settled(ManualClock())
        assert 2 == on.reads
        hold.release()
        assert entries(10, 15) == await first
        assert entries(14, 19) == await second
        await on.at_rest()
        assert 3 == on.reads


async def test_a_read_ends_where_another_one_begins() -> None:
    asked: list[tuple[int, int]] = []

    class Watched(FaultyEngine):
        def read(
            self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
        ) -> list[Buffer]:
            asked.append((first_entry, last_entry))
            return super().read(ledger_id, first_entry, last_entry, bytes_max)

    async with bench(engine=Watched(None)) as on:
        hold = on.engine.hold_next("read")
        first = asyncio.ensure_future(on.read(10, 6))
        await hold.reached()
        second = asyncio.ensure_future(on.read(6, 10))
        await settled(ManualClock())
        hold.release()
        assert entries(10, 15) == await first
        assert entries(6, 15) == await second
        assert [(10, COUNT - 1), (6, 9)] == asked


async def test_only_missing_entries_are_read_and_put_in_order() -> None:
    async with bench() as on:
        before = await on.visited()
        await on.read(10, 2)
        await on.read(16, 2)
        assert before + 2 == on.reads
        assert entries(8, 17) == await on.read(8, 10)
        assert before + 2 + 2 == on.reads, "8 to 9 and 12 to 15"
        assert entries(8, 17) == await on.read(8, 10)
        assert before + 4 == on.reads


async def test_half_of_what_fits_is_enough_not_to_wait_for_the_disk() -> None:
    async with bench() as on:
        before = await on.visited()
        await on.read(10, 4)
        assert entries(12, 13) == await on.read(12, 4)
        assert before + 1 == on.reads
        assert entries(13, 16) == await on.read(13, 4)
        assert before + 2 == on.reads


async def test_an_entry_that_does_not_fit_ends_the_answer() -> None:
    async with bench() as on:
        await on.visited()
        await on.read(10, 4)
        assert entries(12, 12) == [bytes(e) for e in await on.cold.read(
            1, 12, count=9, upto=COUNT, bytes_max=SIZE + 5)]  # fmt: skip
        assert entries(12, 12) == [bytes(e) for e in await on.cold.read(
            1, 12, count=9, upto=COUNT, bytes_max=1)]  # fmt: skip


async def test_a_cancelled_reader_leaves_the_read_to_the_others() -> None:
    async with bench() as on:
        hold = on.engine.hold_next("read")
        reading = [asyncio.ensure_future(on.read(10, 4)) for _ in range(5)]
        await hold.reached()
        for reader in (reading[0], reading[3]):
            reader.cancel()
        await settled(ManualClock())
        hold.release()
        answers = await asyncio.gather(*reading, return_exceptions=True)
        assert [True, False, False, True, False] == [
            isinstance(each, asyncio.CancelledError) for each in answers
        ]
        assert entries(10, 13) == answers[1] == answers[2] == answers[4]
        assert 1 == on.reads


async def test_every_waiting_reader_gets_an_error_of_its_own() -> None:
    async with bench() as on:
        hold = on.engine.hold_next("read")
        reading = [asyncio.ensure_future(on.read(10, 4)) for _ in range(5)]
        await hold.reached()
        hold.fail(OSError(5, "broken"))
        errors = await asyncio.gather(*reading, return_exceptions=True)
        assert [StorageFailed] * 5 == [type(each) for each in errors]
        assert 5 == len({id(each) for each in errors})
        assert 1 == on.reads
        assert entries(10, 13) == await on.read(10, 4)


async def test_a_failure_of_a_later_read_does_not_fail_an_earlier_one() -> None:
    """Only the first entry of a read is known to be bad."""
    async with bench() as on:
        await on.read(90, 2)
        hold = on.engine.hold_next("read")
        first = asyncio.ensure_future(on.read(10, 6))
        await hold.reached()
        second = asyncio.ensure_future(on.read(12, 2))
        await settled(ManualClock())
        hold.fail(EntryCorrupt(1, 10, "planted"))
        with pytest.raises(Corrupt):
            await first
        assert entries(12, 13) == await second


async def test_a_closed_store_fails_waiting_reads() -> None:
    async with bench() as on:
        reading = asyncio.ensure_future(on.read(10, 4))
        await asyncio.sleep(0)
        await on.supervisor.close()
        with pytest.raises(AlreadyClosed):
            await reading
        with pytest.raises(AlreadyClosed):
            await on.read(10, 4)


async def test_a_dropped_ledger_is_forgotten_at_once() -> None:
    async with bench() as on:
        await on.visited()
        await on.read(0)
        await on.read(2)
        await on.at_rest()
        hold = on.engine.hold_next("read")
        reading = [asyncio.ensure_future(on.read(50)) for _ in range(2)]
        await hold.reached()
        assert on.cold.kept_bytes > 0
        assert on.cold.ahead_bytes > 0
        on.cold.drop(1)
        assert (0, 0) == (on.cold.kept_bytes, on.cold.ahead_bytes)
        hold.release()
        assert [entries(50, 51)] * 2 == await asyncio.gather(*reading)
        await on.at_rest()
        assert (0, 0) == (on.cold.kept_bytes, on.cold.ahead_bytes), "nor is what came later kept"


async def test_readers_close_to_each_other_share_ranges() -> None:
    """Fifty readers, each some entries behind the previous one, in steps of four entries.

    Without threads, because a late thread would separate the readers before and after its range.
    """
    async with bench(read_ahead=40 * SIZE, pool=InlinePool()) as on:
        for reader in range(50):
            on.walk(begin=reader % 7, step=4)
        await on.walked()
        assert on.reads <= 2 * COUNT // 4, "50 walks cost less than two"


async def test_readers_far_from_each_other_stay_within_the_limits() -> None:
    async with bench(read_ahead=12 * SIZE, cold_read_bytes_max=8 * SIZE) as on:
        for reader in range(50):
            on.walk(begin=2 * reader, step=2)
        await on.walked()
        alone = sum((COUNT - 2 * reader) // 2 for reader in range(50))
        assert on.reads <= alone, "no more than without sharing"


@given(
    reads=st.lists(
        st.tuples(st.integers(0, COUNT - 1), st.integers(1, 9), st.integers(1, 12)),
        min_size=1,
        max_size=25,
    ),
    pauses=st.lists(st.integers(0, 3), min_size=25, max_size=25),
    limit=st.integers(0, 200),
    is_resident=st.booleans(),
)
def test_any_reads_at_once_get_what_they_asked_for(
    reads: list[tuple[int, int, int]], pauses: list[int], limit: int, is_resident: bool
) -> None:
    """From the first entry on, without a gap, within count and bytes; and the bounds hold."""

    async def check() -> None:
        engine = AllResident(None) if is_resident else None
        async with bench(limit, engine=engine, cold_read_bytes_max=50) as on:
            reading = []
            for (first, count, size), pause in zip(reads, pauses, strict=False):
                reading.append(asyncio.ensure_future(on.read(first, size, count)))
                for _ in range(pause):
                    await asyncio.sleep(0)
                assert on.cold.kept_bytes + on.cold.ahead_bytes <= limit
                if pause == 3:
                    on.cold.drop(1)
            for (first, count, size), found in zip(
                reads, await asyncio.gather(*reading), strict=True
            ):
                assert 1 <= len(found) <= min(count, size)
                assert entries(first, first + len(found) - 1) == found
            await on.at_rest()
            assert on.cold.kept_bytes + on.cold.ahead_bytes <= limit

    asyncio.run(check())
