"""Partition tier: the tier as a partition uses it, with a folder of its own.

Rule: all objects of a partition lie below `<tenant>/<namespace>/<topic>-<topic id>/<partition>/`;
a topic that is created again shares none with the one before. While a ledger is copied, the
smallest timestamp of its records is found and stored, as nothing else of the log says it.
Must not know: which ledgers are copied, and when.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from kledger.batches.time_search import oldest_by_headers, oldest_of
from kledger.ledger import (
    AlreadyClosed,
    Buffer,
    LedgerOffloader,
    LedgerStore,
    OffloadSource,
    TieredLedger,
    UploadingOffloader,
)
from kledger.runtime.blocking import PoolClosed
from kledger.runtime.compute_process import ComputeProcessDied
from kledger.topics.keys import PartitionKeys
from kledger.topics.partition import records
from kledger.topics.topic_names import namespace_of


class PartitionTier(LedgerOffloader, Protocol):
    """The folder of one partition in a tier."""

    def object_names(self, ledger_id: int, attempt: UUID) -> Mapping[str, str]:
        """Return the names of the objects of a copy in the folder, by what they are."""
        ...

    async def put_whole(self, name: str, data: bytes) -> None:
        """Store a small object in the folder, replacing what has that name at once.

        Raises:
            TierUnavailable: it may or may not be stored.
        """
        ...

    async def delete_whole(self, name: str) -> None:
        """Delete a small object of the folder; what does not exist is no error.

        Raises:
            TierUnavailable: it may still be there.
        """
        ...


class Tier(Protocol):
    """The tier of a server."""

    def below(self, path: str) -> PartitionTier:
        """Return a folder of it."""
        ...


def tier_folder(topic: str, topic_id: UUID, index: int) -> str:
    """Return the folder of a partition, from the resolved name of its topic."""
    return f"{namespace_of(topic)}/{topic.rpartition('/')[2]}-{topic_id.hex}/{index}"


class PartitionOffloader:
    """The offloader of a partition's managed ledger: its tier, and what is found while copying.

    Attributes:
        before_copy: awaited before each ledger of a run is copied; None between runs.
    """

    def __init__(self, tier: PartitionTier, store: LedgerStore, keys: PartitionKeys) -> None:
        self.tier = tier
        self.before_copy: Callable[[], Awaitable[None]] | None = None
        self._store = store
        self._keys = keys

    @property
    def name(self) -> str:
        """See LedgerOffloader."""
        return self.tier.name

    @property
    def location(self) -> Mapping[str, str]:
        """See LedgerOffloader."""
        return self.tier.location

    async def offload(
        self, source: OffloadSource, attempt: UUID, location: Mapping[str, str]
    ) -> None:
        """See LedgerOffloader."""
        if self.before_copy is not None:
            await self.before_copy()
        timed = _TimedSource(source, self._store)
        await self.tier.offload(timed, attempt, location)
        row = records.encode_first_timestamp(timed.first_timestamp)
        await self._store.put_rows([(self._keys.first_timestamp(source.ledger_id), row)])

    async def open(
        self, ledger_id: int, attempt: UUID, location: Mapping[str, str]
    ) -> TieredLedger:
        """See LedgerOffloader."""
        return await self.tier.open(ledger_id, attempt, location)

    async def delete(self, ledger_id: int, attempt: UUID, location: Mapping[str, str]) -> None:
        """See LedgerOffloader."""
        await self.tier.delete(ledger_id, attempt, location)

    async def abort_uploads(
        self, ledger_id: int, attempt: UUID, location: Mapping[str, str]
    ) -> None:
        """See UploadingOffloader."""
        if isinstance(self.tier, UploadingOffloader):
            await self.tier.abort_uploads(ledger_id, attempt, location)


class _TimedSource:
    """A ledger that is being copied, and the smallest timestamp of what was read of it."""

    def __init__(self, source: OffloadSource, store: LedgerStore) -> None:
        self.ledger_id = source.ledger_id
        self.entries = source.entries
        self.size = source.size
        self._source = source
        self._compute_pool = store.compute_pool
        self._found: int | None = None

    @property
    def first_timestamp(self) -> int:
        """The smallest timestamp, -1 if no record has one."""
        return -1 if self._found is None else self._found

    async def read(self, first: int, *, bytes_max: int) -> Sequence[Buffer]:
        """See OffloadSource."""
        entries = await self._source.read(first, bytes_max=bytes_max)
        oldest = await self._oldest(b"".join(entries))
        if oldest is not None and (self._found is None or oldest < self._found):
            self._found = oldest
        return entries

    async def _oldest(self, batches: bytes) -> int | None:
        try:
            (found,) = await self._compute_pool.map(oldest_of, [(batches,)])
        except ComputeProcessDied:  # its memory did not suffice for the records
            return oldest_by_headers(batches)
        except PoolClosed as error:
            raise AlreadyClosed("the store was closed during an offload") from error
        return found
