"""Simulated tier: a `LedgerOffloader` over a bucket, for one life of a process.

Rule: every call takes time. It may fail before or after it has done its work, or hang for much
longer than the store waits.
Must not know: the store on top.
"""

from collections.abc import Mapping
from functools import partial
from uuid import UUID

from kledger.ledger import (
    Corrupt,
    InvalidArgument,
    LedgerOffloader,
    NonRecoverable,
    OffloadSource,
)
from kledger.ledger.testing import MemoryCopy
from tests.simulation.bucket import Bucket, CopyKey
from tests.simulation.clock import SimulatedClock
from tests.simulation.faults import Faults, InjectedFault
from tests.simulation.schedule import Schedule

URL = "simulated:"
HANG_MS = 20_000
PIECE_BYTES = 60


class SimulatedTier:
    """The tier, and the factory that gives it."""

    name = "simulated"

    def __init__(
        self, bucket: Bucket, faults: Faults, clock: SimulatedClock, schedule: Schedule
    ) -> None:
        self.location = {"bucket": "one"}
        self._bucket = bucket
        self._faults = faults
        self._clock = clock
        self._schedule = schedule

    # OffloaderFactory

    def from_url(self, url: str) -> LedgerOffloader:
        if url != URL:
            raise InvalidArgument(f"url: expected {URL}, got {url}")
        return self

    def from_location(self, name: str, location: Mapping[str, str]) -> LedgerOffloader | None:
        return self if (name, dict(location)) == (self.name, self.location) else None

    # LedgerOffloader

    async def offload(
        self, source: OffloadSource, attempt: UUID, location: Mapping[str, str]
    ) -> None:
        key = source.ledger_id, attempt
        await self._begin()
        self._bucket.begin(key)
        count = 0
        try:
            while count < source.entries:
                entries = await source.read(count, bytes_max=PIECE_BYTES)
                count += len(entries)
                self._bucket.write(key, [bytes(each) for each in entries])
                await self._begin()
            self._bucket.end(key)
            await self._end()
        finally:
            self._bucket.break_off(key, self._clock.now_ms())

    async def open(self, ledger_id: int, attempt: UUID, location: Mapping[str, str]) -> MemoryCopy:
        await self._begin()
        key = ledger_id, attempt
        copy = MemoryCopy(len(self._entries_of(key)), partial(self._read, key))
        await self._end()
        return copy

    async def delete(self, ledger_id: int, attempt: UUID, location: Mapping[str, str]) -> None:
        await self._begin()
        self._bucket.copies(self._clock.now_ms())
        self._bucket.delete((ledger_id, attempt))
        await self._end()

    # Inside

    def _entries_of(self, key: CopyKey) -> list[bytes]:
        copy = self._bucket.copies(self._clock.now_ms()).get(key)
        if copy is None:
            raise NonRecoverable(f"there is no copy {key}")
        if not copy.is_whole:
            raise Corrupt(f"copy {key} is not whole")
        return copy.entries

    async def _read(self, key: CopyKey, first: int, end: int) -> list[bytes]:
        await self._begin()
        entries = self._entries_of(key)[first:end]
        await self._end()
        return entries

    async def _begin(self) -> None:
        try:
            self._faults.ask("tier hang")
        except InjectedFault:
            await self._clock.sleep(HANG_MS)
        await self._clock.sleep(self._schedule.pick((0, 0, 1, 1, 5, 30)))
        self._faults.ask("tier")

    async def _end(self) -> None:
        self._faults.ask("tier")
