"""Words for tests of cold reads: a hundred small entries on an engine that counts and can fail."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kledger.ledger.config import StoreConfig
from kledger.ledger.engine.base import Buffer, CommitGroup
from kledger.ledger.reads.cold_reads import ColdReads
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.runtime.blocking import BlockingPool, BlockingRunner
from kledger.runtime.tasks import Supervisor
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

    async def read(
        self, first: int, entries: int = 2, count: int = COUNT, *, is_background: bool = False
    ) -> list[bytes]:
        """Read as many entries as fit into the bytes of so many."""
        found = await self.cold.read(
            1,
            first,
            count=count,
            upto=COUNT,
            bytes_max=entries * SIZE,
            is_background=is_background,
        )
        return [bytes(each) for each in found]

    def read_resident(self, first: int, entries: int = 2) -> list[bytes]:
        """Read without a task as many entries as fit into the bytes of so many."""
        found = self.cold.read_resident(1, first, count=COUNT, upto=COUNT, bytes_max=entries * SIZE)
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
            assert kept <= self.cold._read_ahead_cache.limit

    async def walked(self) -> None:
        """Wait for all walks."""
        await asyncio.gather(*self.walks)
        await self.at_rest()

    async def visited(self) -> int:
        """Read at two positions, as several readers do; return the number of reads so far."""
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
    read_ahead: int = 1000,
    engine: FaultyEngine | None = None,
    pool: BlockingRunner | None = None,
    **limits: int,
) -> AsyncIterator[Bench]:
    engine, pool, supervisor = engine or FaultyEngine(None), pool or BlockingPool(), Supervisor()
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


class AllResident(FaultyEngine):
    """An engine whose page cache has everything; only reads of a thread are counted."""

    def read_resident(  # type: ignore[override]
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[Buffer] | None:
        """Read past the faults."""
        return self._inner.read(ledger_id, first_entry, last_entry, bytes_max)
