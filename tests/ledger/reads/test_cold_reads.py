"""Reads of the storage: in order, within limits, and ahead for sequential readers."""

import asyncio

import pytest

from kledger.ledger.engine.base import Buffer
from kledger.ledger.engine.errors import EntryCorrupt
from kledger.ledger.errors import Corrupt, NonRecoverable, StorageFailed, TooManyRequests
from kledger.ledger.reads.cold_reads import REMEMBERED_READS_MAX, SHARED_READS
from kledger.ledger.testing import ManualClock
from tests.ledger.cold_words import COUNT, SIZE, AllResident, bench, entries
from tests.ledger.words import settled


async def test_sequential_reader_finds_the_next_range_in_the_cache() -> None:
    async with bench() as on:
        assert entries(0, 1) == await on.read(0)
        await on.at_rest()
        assert (1, 0) == (on.reads, on.cold.ahead_bytes), "one read alone is no reading on"
        assert entries(2, 3) == await on.read(2)
        await on.at_rest()
        assert (3, 2 * SIZE) == (on.reads, on.cold.ahead_bytes)
        for first in range(4, 20, 2):
            assert entries(first, first + 1) == await on.read(first)
            await on.at_rest()
        assert 3 + 8 == on.reads, "every range is read once"


async def test_reader_waits_for_the_read_in_flight() -> None:
    async with bench() as on:
        await on.read(0)
        await on.read(2)
        await on.at_rest()
        hold = on.engine.hold_next("read")
        await on.read(4)
        await hold.reached()
        waiting = [asyncio.ensure_future(on.read(6)) for _ in range(2)]
        await settled(ManualClock())
        assert not any(each.done() for each in waiting)
        hold.release()
        assert [entries(6, 7)] * 2 == await asyncio.gather(*waiting)


async def test_smaller_request_leaves_the_rest_and_a_larger_one_takes_what_is_cached() -> None:
    async with bench() as on:
        await on.read(0, 4)
        await on.read(4, 4)
        await on.at_rest()
        reads = on.reads
        assert entries(8, 8) == await on.read(8, 1)
        assert entries(9, 9) == await on.read(9, 4, count=1)
        assert reads == on.reads
        assert entries(10, 11) == await on.read(10, 4)


async def test_failed_read_ahead_fails_its_reader() -> None:
    async with bench() as on:
        await on.read(0)
        on.engine.delay_next("read", 0)
        on.engine.fail_next("read", OSError(5, "broken"))
        await on.read(2)
        await on.at_rest()
        assert 0 == on.cold.ahead_bytes
        on.engine.fail_next("read", OSError(5, "still broken"))
        with pytest.raises(StorageFailed, match="still broken"):
            await on.read(4)
        assert entries(4, 5) == await on.read(4)


async def test_ranges_read_ahead_are_bounded_and_the_oldest_is_evicted() -> None:
    async with bench(read_ahead=5 * SIZE) as on:
        for start in (0, 20, 40):
            await on.read(start)
            await on.read(start + 2)
            await on.at_rest()
            assert on.cold.ahead_bytes <= 5 * SIZE
        reads = on.reads
        await on.read(44)
        assert reads == on.reads
        await on.read(4)
        assert reads < on.reads, "the first reader's range was evicted"


async def test_nothing_is_read_ahead_beyond_the_limit_or_the_end() -> None:
    async with bench(read_ahead=0) as on:
        for first in range(0, COUNT, 20):
            await on.read(first, 20)
        assert 5 == on.reads
    async with bench() as on:
        for first in range(0, COUNT, 50):
            await on.read(first, 50)
            await on.at_rest()
        assert 2 == on.reads


async def test_ends_that_are_remembered_are_bounded() -> None:
    async with bench() as on:
        for _ in range(2):
            for number in range(REMEMBERED_READS_MAX + 10):
                await on.cold.read(1, number % 90, count=1, upto=COUNT, bytes_max=SIZE)
        assert len(on.cold._recent_ends) <= REMEMBERED_READS_MAX
        await on.at_rest()


async def test_reads_beyond_the_limit_wait_in_order_and_too_many_are_refused() -> None:
    async with bench(cold_read_bytes_max=5 * SIZE, cold_reads_waiting_max=2) as on:
        hold = on.engine.hold_next("read")
        first = asyncio.ensure_future(on.read(0, 4))
        await hold.reached()
        second, third = asyncio.ensure_future(on.read(20, 4)), asyncio.ensure_future(on.read(40, 1))
        await settled(ManualClock())
        assert (1, 4 * SIZE) == (on.reads, on.cold.in_flight_bytes)
        with pytest.raises(TooManyRequests, match="cold_reads_waiting_max"):
            await on.read(60)
        second.cancel()
        hold.release()
        assert entries(0, 3) == await first
        assert entries(40, 40) == await third
        assert entries(60, 60 + 8) == await on.read(60, 9), "one read may exceed the limit"


async def test_missing_entry_raises() -> None:
    async with bench() as on:
        with pytest.raises(NonRecoverable):
            await on.cold.read(2, 0, count=1, upto=1, bytes_max=SIZE)


# From the page cache


async def test_what_is_resident_needs_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a limit in each tick; the rest is read in threads."""
    monkeypatch.setattr("kledger.ledger.reads.cold_reads.RESIDENT_BYTES_PER_TICK", 3 * SIZE)
    async with bench(engine=AllResident(None)) as on:
        for tick, at in enumerate((0, 4, 8)):
            assert entries(at, at + 1) == await on.read(at)
            assert entries(at + 50, at + 51) == await on.read(at + 50)
            assert tick == on.reads
            assert entries(at + 30, at + 31) == await on.read(at + 30)
            assert tick + 1 == on.reads
            await on.at_rest()


async def test_the_event_loop_copies_nothing_for_a_background_reader() -> None:
    async with bench(engine=AllResident(None)) as on:
        assert entries(0, 3) == await on.read(0, 4, is_background=True)
        assert 1 == on.reads
        assert entries(4, 7) == await on.read(4, 4, is_background=True)
        await on.at_rest()
        assert 3 == on.reads, "the next range is read ahead, as from a disk"
        assert entries(6, 11) == await on.read(6, 8, is_background=True)


async def test_a_damaged_resident_entry_raises() -> None:
    class Damaged(AllResident):
        def read_resident(self, *_: object) -> None:
            raise EntryCorrupt(1, 0, "planted")

    async with bench(engine=Damaged(None)) as on:
        with pytest.raises(Corrupt):
            await on.read(0)
        assert 0 == on.reads


async def test_what_the_page_cache_has_needs_no_task() -> None:
    async with bench(engine=AllResident(None)) as on:
        assert entries(3, 5) == on.read_resident(3, 3)
        assert entries(6, 7) == on.read_resident(6, 2)
        assert 0 == on.cold.kept_bytes, "it reads in order"
        assert entries(0, 1) == on.read_resident(0, 2)
        assert 2 * SIZE == on.cold.kept_bytes, "there is a second reader"
        assert [] == on.read_resident(1, 1), "the read-ahead cache is not asked without a task"
        assert entries(1, 2) == await on.read(1)
        assert 0 == on.reads


async def test_no_task_means_no_wait_for_a_disk_or_for_another_read() -> None:
    async with bench() as on:
        assert [] == on.read_resident(0, 2)
    async with bench(engine=AllResident(None)) as on:
        reading = asyncio.ensure_future(on.read(0, 4, is_background=True))
        await asyncio.sleep(0)
        assert [] == on.read_resident(0, 2), "a thread is about to return it"
        assert entries(0, 3) == await reading


async def test_a_page_cache_that_has_the_rest_ends_reading_ahead() -> None:
    """One read by a thread made all later ones read ahead by threads: twice the CPU, for good."""

    class PartlyResident(AllResident):
        missing = range(COUNT)

        def read_resident(  # type: ignore[override]
            self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
        ) -> list[Buffer] | None:
            found = super().read_resident(ledger_id, first_entry, last_entry, bytes_max) or ()
            wanted = range(first_entry, first_entry + len(found))
            return None if set(wanted) & set(self.missing) else list(found)

    engine = PartlyResident(None)
    async with bench(engine=engine) as on:
        await on.read(0)
        await on.read(2)
        await on.at_rest()
        assert (3, 2 * SIZE) == (on.reads, on.cold.ahead_bytes), "the disk is read ahead"
        engine.missing = range(7, COUNT)
        assert entries(4, 5) == await on.read(4)
        await on.at_rest()
        assert 4 == on.reads, "the beginning of the next range is what the kernel reads ahead"
        engine.missing = range(6)
        assert entries(6, 7) == await on.read(6)
        await on.at_rest()
        assert (4, 0) == (on.reads, on.cold.ahead_bytes)
        assert entries(8, 9) == on.read_resident(8), "no task is needed any more"


async def test_a_damaged_entry_further_on_fails_nobody_before_it() -> None:
    class DamagedBehind(AllResident):
        def read_resident(  # type: ignore[override]
            self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
        ) -> list[Buffer] | None:
            if first_entry >= 4:
                raise EntryCorrupt(ledger_id, first_entry, "planted")
            return None

    async with bench(engine=DamagedBehind(None)) as on:
        assert entries(0, 1) == await on.read(0)
        assert entries(2, 3) == await on.read(2)
        with pytest.raises(Corrupt):
            await on.read(8)


async def test_nothing_is_kept_for_one_reader() -> None:
    """What it took is memory that the next read can have; keeping it cost a quarter more CPU."""
    for engine in (None, AllResident(None)):
        async with bench(engine=engine) as on:
            for first in range(0, COUNT, 2):
                assert entries(first, first + 1) == await on.read(first)
                await on.at_rest()
                assert 0 == on.cold.kept_bytes


async def test_nothing_is_kept_for_readers_far_from_each_other() -> None:
    """What one of them takes would be evicted before another one comes."""
    for engine in (None, AllResident(None)):
        async with bench(read_ahead=20 * SIZE, engine=engine) as on:
            for first in range(0, 40, 2):
                await on.read(first)
                await on.read(first + 50)
                await on.at_rest()
                assert 0 == on.cold.kept_bytes
            await on.read(70)
            await on.at_rest()
            assert on.cold.kept_bytes, "that is near"


async def test_only_what_a_reader_takes_is_kept() -> None:
    """The next read begins with the entry that did not fit: it would find that kept, alone."""
    async with bench(engine=AllResident(None)) as on:
        await on.read(4)
        await on.read(4)
        assert 2 * SIZE == on.cold.kept_bytes
        found = await on.cold.read(1, 4, count=COUNT, upto=COUNT, bytes_max=2 * SIZE + 5)
        assert entries(4, 5) == [bytes(each) for each in found]
        assert 2 * SIZE == on.cold.kept_bytes


async def test_keeping_ends_some_time_after_the_other_readers_left() -> None:
    async with bench(read_ahead=COUNT * SIZE) as on:
        await on.visited()
        kept = []
        for first in range(60):
            await on.read(first, 1)
            await on.at_rest()
            kept.append(on.cold.kept_bytes)
        assert kept[SHARED_READS // 2] < kept[SHARED_READS] == kept[-1]


async def test_what_is_copied_a_second_time_is_shared_from_then_on() -> None:
    copies: list[int] = []

    class Watched(AllResident):
        def read_resident(  # type: ignore[override]
            self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
        ) -> list[Buffer] | None:
            copies.append(first_entry)
            return super().read_resident(ledger_id, first_entry, last_entry, bytes_max)

    async with bench(engine=Watched(None)) as on:
        for _ in range(10):
            assert entries(4, 7) == await on.read(4, 4)
        assert [4, 4] == copies
        assert 4 * SIZE == on.cold.kept_bytes
        assert entries(2, 5) == await on.read(2, 4)
        assert entries(6, 9) == await on.read(6, 4), "the rest is copied and put behind"
        assert [4, 4, 2, 8] == copies
