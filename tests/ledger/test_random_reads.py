"""Random reads against a list of all entries, while the log is appended, trimmed and reopened.

A failure names the seed of its run, and the run is the same again with it.
"""

from bisect import bisect_left, bisect_right
from random import Random

import pytest

from kledger.ledger import (
    EARLIEST,
    LATEST,
    Entry,
    LedgerError,
    LedgerStore,
    ManagedLedger,
    ManagedLedgerConfig,
    Position,
    StoreConfig,
)
from kledger.ledger.testing import FaultyEngine

LIMITS = ManagedLedgerConfig(max_entries_per_ledger=9, max_bytes_per_ledger=300)
READS_PER_CHANGE = 40
ENTRIES_MAX = 400
ALL_BYTES = 1 << 30


class Log:
    """A managed ledger, and beside it what must be in it."""

    def __init__(self, seed: int, cache_bytes: int) -> None:
        self.random = Random(seed)
        self.cache_bytes = cache_bytes
        self.engine = FaultyEngine(None)
        self.positions: list[Position] = []
        self.datas: list[bytes] = []
        self.count = 0
        self.last = EARLIEST
        self.read_count = 0
        self.from_memory_count = 0

    async def open(self) -> None:
        config = StoreConfig(durability="os", cache_bytes=self.cache_bytes)
        self.store = await LedgerStore.open(None, engine=self.engine, config=config)
        await self.reopen()

    async def reopen(self) -> None:
        self.ml: ManagedLedger = await self.store.open_managed_ledger("orders", config=LIMITS)

    # What happens to the log

    def submit(self) -> None:
        """Append; what is confirmed is in the list from then on."""
        data = b"%d:" % self.count + bytes(self.random.randrange(40))
        self.count += 1

        def done(position: Position, error: LedgerError | None) -> None:
            if error is None:
                self.positions.append(position)
                self.datas.append(data)

        self.ml.append_nowait(data, 1, 1, done)

    async def change(self) -> None:
        """Make one random change, to the log and to the list."""
        roll = self.random.random()
        for _ in range(self.random.randrange(1, 12)):
            self.submit()
        if roll < 0.10:
            await self.ml.roll_over()
        elif roll < 0.20 and self.positions:
            await self.ml.trim_before(self.random.choice(self.positions))
        elif roll < 0.22:
            await self.ml.truncate()
        elif roll < 0.26:
            await self.reopen()
        elif roll < 0.32:
            self.engine.fail_next("commit")
        elif len(self.positions) > ENTRIES_MAX:
            await self.ml.trim_before(self.positions[ENTRIES_MAX // 2])
        self.forget_trimmed()
        self.read_some(3)  # unconfirmed entries are not visible
        await self.store.flush()
        self.forget_trimmed()
        self.count_some(3)
        assert self.last <= self.ml.last_confirmed_entry, "it never goes back"
        self.last = self.ml.last_confirmed_entry

    def count_some(self, count: int) -> None:
        """Check the number of entries between two positions, and from one to the end."""
        for _ in range(count):
            start, end = self.place(), self.place()
            exact = bisect_right(self.positions, end) - bisect_left(self.positions, start)
            assert max(0, exact) == self.ml.number_of_entries(start, end), (start, end)
            backlog = len(self.positions) - bisect_left(self.positions, start)
            assert backlog == self.ml.number_of_entries(start, LATEST), start

    def forget_trimmed(self) -> None:
        """Remove what was trimmed, which is a prefix of the list."""
        listed = {info.ledger_id for info in self.ml.ledgers}
        trimmed = sum(position.ledger_id not in listed for position in self.positions)
        del self.positions[:trimmed], self.datas[:trimmed]
        assert all(position.ledger_id in listed for position in self.positions)

    # What is read

    def place(self) -> Position:
        """Return a position that exists, did exist, or never will."""
        roll = self.random.random()
        if roll < 0.04 or not self.positions:
            return self.random.choice((EARLIEST, LATEST))
        ledger_id, entry_id = self.positions[self.random.randrange(len(self.positions))]
        if roll < 0.7:
            return Position(ledger_id, entry_id)
        ledger_id += self.random.randrange(-3, 4)
        return Position(ledger_id, self.random.randrange(-1, 12))

    def question(self) -> tuple[Position, int, int | None, Position]:
        random = self.random
        count = random.choice((1, 1, 2, 5, 17, 1000))
        bytes_max = random.choice((None, None, 1, 50, 200))
        return self.place(), count, bytes_max, LATEST if random.random() < 0.7 else self.place()

    def expected(
        self, start: Position, count: int, bytes_max: int | None, end: Position
    ) -> tuple[list[Position], list[bytes]]:
        """Answer from the list."""
        first = bisect_left(self.positions, start)
        upto = min(bisect_right(self.positions, end), first + count)
        if bytes_max is not None:
            left = bytes_max
            for index in range(first, upto):
                left -= len(self.datas[index])
                if left < 0 and index > first:
                    upto = index
                    break
        return self.positions[first:upto], self.datas[first:upto]

    def read_some(self, count: int) -> None:
        """Read what memory has; what it does not have is no answer."""
        for _ in range(count):
            start, limit, bytes_max, end = self.question()
            found = self.ml.read_cached(start, limit, bytes_max, end)
            if found is not None:
                self.from_memory_count += 1
                self.check(found, start, limit, bytes_max, end)
            at_once = self.ml.read_resident(start, limit, bytes_max or 1000)
            positions, datas = self.expected(start, limit, bytes_max or 1000, LATEST)
            assert positions[: len(at_once)] == [entry[0] for entry in at_once]
            assert datas[: len(at_once)] == [entry[1] for entry in at_once]

    async def read_one(self) -> None:
        start, limit, bytes_max, end = self.question()
        found = await self.ml.read_entries(start, limit, end, bytes_max=bytes_max)
        self.check(found, start, limit, bytes_max, end)

    def check(
        self,
        found: list[Entry],
        start: Position,
        limit: int,
        bytes_max: int | None,
        end: Position,
    ) -> None:
        self.read_count += 1
        positions, datas = self.expected(start, limit, bytes_max, end)
        assert positions == [entry[0] for entry in found], (start, limit, bytes_max, end)
        assert datas == [entry[1] for entry in found], (start, limit, bytes_max, end)


async def drive(seed: int, cache_bytes: int, reads: int) -> Log:
    """Change and read alternately until so many reads have ended."""
    log = Log(seed, cache_bytes)
    await log.open()
    while log.read_count < reads:
        await log.change()
        log.read_some(READS_PER_CHANGE)
        await log.read_one()
    await log.store.close()
    return log


async def drive_all(reads: int, seed: int) -> None:
    """Run most of the reads from memory, the others partly or wholly from the storage."""
    warm = await drive(seed, ALL_BYTES, reads * 90 // 100)
    half = await drive(seed + 1, 3000, reads * 8 // 100)
    cold = await drive(seed + 2, 0, reads * 2 // 100)
    assert warm.from_memory_count > warm.read_count * 9 // 10
    assert 0 < half.from_memory_count < half.read_count
    assert reads <= warm.read_count + half.read_count + cold.read_count
    assert warm.engine.calls["read"] < warm.read_count // 10 < cold.engine.calls["read"] * 100


@pytest.mark.parametrize("seed", [1])
async def test_20_000_random_reads_equal_a_list(seed: int) -> None:
    await drive_all(20_000, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [100])
async def test_1_000_000_random_reads_equal_a_list(seed: int) -> None:
    await drive_all(1_000_000, seed)
