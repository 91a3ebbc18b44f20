"""Reads of the storage: in turn, within limits, and in advance for who reads on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.cold_reads import ENDS_MAX, SHARED_READS, ColdReads
from ledger.config import StoreConfig
from ledger.engine.base import Buffer, CommitGroup
from ledger.engine.errors import EntryCorrupt
from ledger.errors import (
    AlreadyClosed,
    Corrupt,
    NonRecoverable,
    StorageFailed,
    TooManyRequests,
)
from ledger.testing import FaultyEngine, ManualClock
from runtime.blocking import BlockingPool
from runtime.tasks import Supervisor
from tests.ledger.words import settled

SIZE = 10
COUNT = 100


class Bench:
    """Cold reads over an engine with a hundred entries of ten bytes in ledger 1."""

    def __init__(self, engine: FaultyEngine, cold: ColdReads, supervisor: Supervisor) -> None:
        self.engine = engine
        self.cold = cold
        self.supervisor = supervisor
        self.walks: list[asyncio.Task[None]] = []

    @property
    def reads(self) -> int:
        """How often the storage was read."""
        return self.engine.calls["read"]

    async def read(self, first: int, entries: int = 2, count: int = COUNT) -> list[bytes]:
        """Read as many entries as fit into the bytes of so many."""
        found = await self.cold.read(1, first, count=count, upto=COUNT, bytes_max=entries * SIZE)
        return [bytes(each) for each in found]

    def walk(self, begin: int, step: int) -> None:
        """Begin to read everything from an entry on."""
        self.walks.append(asyncio.ensure_future(self._walk(begin, step)))

    async def _walk(self, at: int, step: int) -> None:
        while at < COUNT:
            found = await self.read(at, step)
            assert entries(at, at + len(found) - 1) == found
            at += len(found)
            kept = self.cold.kept_bytes + self.cold.ahead_bytes
            assert kept <= self.cold._shelf.limit

    async def walked(self) -> None:
        """Wait for all walks."""
        await asyncio.gather(*self.walks)
        await self.at_rest()

    async def visited(self) -> int:
        """Read here and there, as several readers do; return how many reads it took."""
        await self.read(90)
        await self.read(80)
        return self.reads

    async def at_rest(self) -> None:
        """Wait until nothing is read in advance."""
        while self.supervisor.task_count:
            await settled(ManualClock())


def entries(first: int, last: int) -> list[bytes]:
    return [b"%010d" % number for number in range(first, last + 1)]


@asynccontextmanager
async def bench(
    read_ahead: int = 1000, engine: FaultyEngine | None = None, **limits: int
) -> AsyncIterator[Bench]:
    engine, pool, supervisor = engine or FaultyEngine(None), BlockingPool(), Supervisor()
    group = CommitGroup(entries=[(1, n, data) for n, data in enumerate(entries(0, COUNT - 1))])
    engine.commit(group, sync=True)
    engine.index(group)
    config = StoreConfig(**limits)  # type: ignore[arg-type]
    cold = ColdReads(
        engine, config, read_ahead_bytes_max=read_ahead, pool=pool, supervisor=supervisor
    )
    yield Bench(engine, cold, supervisor)
    engine.close()
    await supervisor.close()
    pool.close()
    assert 0 == cold.in_flight_bytes


async def test_who_reads_on_finds_the_next_piece_there() -> None:
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
        assert 3 + 8 == on.reads, "every piece is read once"


async def test_reader_waits_for_the_piece_on_its_way() -> None:
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


async def test_smaller_request_leaves_the_rest_and_a_larger_one_takes_what_is_there() -> None:
    async with bench() as on:
        await on.read(0, 4)
        await on.read(4, 4)
        await on.at_rest()
        reads = on.reads
        assert entries(8, 8) == await on.read(8, 1)
        assert entries(9, 9) == await on.read(9, 4, count=1)
        assert reads == on.reads
        assert entries(10, 11) == await on.read(10, 4)


async def test_failed_reading_in_advance_is_heard_by_who_comes_for_it() -> None:
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


async def test_pieces_in_advance_are_bounded_and_the_oldest_goes() -> None:
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
        assert reads < on.reads, "the first reader's piece had gone"


async def test_nothing_is_read_in_advance_without_room_or_behind_the_end() -> None:
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
            for number in range(ENDS_MAX + 10):
                await on.cold.read(1, number % 90, count=1, upto=COUNT, bytes_max=SIZE)
        assert len(on.cold._ends) <= ENDS_MAX
        await on.at_rest()


async def test_reads_beyond_the_limit_wait_in_turn_and_too_many_are_refused() -> None:
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


async def test_missing_entry_is_told() -> None:
    async with bench() as on:
        with pytest.raises(NonRecoverable):
            await on.cold.read(2, 0, count=1, upto=1, bytes_max=SIZE)


# From the page cache


class AllResident(FaultyEngine):
    """An engine whose page cache has everything; what a thread reads is counted all the same."""

    def read_resident(  # type: ignore[override]
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[Buffer] | None:
        """Read past the faults."""
        return self._inner.read(ledger_id, first_entry, last_entry, bytes_max)


async def test_what_is_resident_needs_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a limit in each turn of the loop; the rest is read in threads."""
    monkeypatch.setattr("ledger.cold_reads.RESIDENT_BYTES_PER_TURN", 3 * SIZE)
    async with bench(engine=AllResident(None)) as on:
        for turn, at in enumerate((0, 4, 8)):
            assert entries(at, at + 1) == await on.read(at)
            assert entries(at + 50, at + 51) == await on.read(at + 50)
            assert turn == on.reads
            assert entries(at + 30, at + 31) == await on.read(at + 30)
            assert turn + 1 == on.reads
            await on.at_rest()


async def test_a_damaged_resident_entry_is_told() -> None:
    class Damaged(AllResident):
        def read_resident(self, *_: object) -> None:
            raise EntryCorrupt(1, 0, "planted")

    async with bench(engine=Damaged(None)) as on:
        with pytest.raises(Corrupt):
            await on.read(0)
        assert 0 == on.reads


async def test_nothing_is_kept_for_one_reader() -> None:
    """What it took is memory that the next read can have; keeping it cost a quarter more CPU."""
    for engine in (None, AllResident(None)):
        async with bench(engine=engine) as on:
            for first in range(0, COUNT, 2):
                assert entries(first, first + 1) == await on.read(first)
                await on.at_rest()
                assert 0 == on.cold.kept_bytes


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


# Together


async def test_readers_at_one_place_cause_one_read() -> None:
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
    """The second waits for the first and reads the missing rest alone; nothing needs to be kept."""
    async with bench(read_ahead) as on:
        await on.read(90, 2)  # tells how large entries are
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
        for gone in (reading[0], reading[3]):
            gone.cancel()
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


async def test_a_failure_of_others_further_up_is_not_mine() -> None:
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


async def test_a_closed_store_leaves_nobody_waiting() -> None:
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


async def test_readers_that_walk_close_to_each_other_share_the_pieces() -> None:
    """Fifty readers, each some entries behind the one before, in steps of four entries."""
    async with bench(read_ahead=40 * SIZE) as on:
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
    turns=st.lists(st.integers(0, 3), min_size=25, max_size=25),
    limit=st.integers(0, 200),
    is_resident=st.booleans(),
)
def test_any_reads_at_once_get_what_they_asked_for(
    reads: list[tuple[int, int, int]], turns: list[int], limit: int, is_resident: bool
) -> None:
    """From the first entry on, without a gap, within count and bytes; and the bounds hold."""

    async def check() -> None:
        engine = AllResident(None) if is_resident else None
        async with bench(limit, engine=engine, cold_read_bytes_max=50) as on:
            reading = []
            for (first, count, size), pause in zip(reads, turns, strict=False):
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
