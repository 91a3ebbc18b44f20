"""Block reads: entries of ledgers in an object store, for all readers of a process.

Rule: blocks that several readers want are requested once; neighbouring blocks share a request. For
a reader that continues where an earlier one ended, the next blocks are requested before it asks. A
request goes on while a reader waits for it, and is cancelled with the last one. What a request
returns is verified by the index before any reader sees it, and so is what the disk cache returns.
Must not know: how long a reader waits, and how many may; see tier_reads.

| limit                | when it is reached                                                 |
|----------------------|--------------------------------------------------------------------|
| `memory_bytes_max`   | blocks are evicted, used ones first; none is read ahead            |
| `REQUEST_BYTES`      | further blocks are in another request, unless one block is larger  |
| `AHEAD_BYTES`        | nothing more is read ahead for this reader                         |
| `READERS_REMEMBERED` | the reader that waited longest counts as a new one                 |
| `INDEXES_MAX`        | the index that was not asked for longest is forgotten              |
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING
from uuid import UUID

from kledger.ledger.engine.base import Buffer
from kledger.ledger.errors import AlreadyClosed, Corrupt, LedgerError, TierUnavailable
from kledger.ledger.offload.object_layout import (
    LedgerIndex,
    data_name,
    decode_index,
    index_name,
)
from kledger.ledger.offload.tier_cache import TierCache
from kledger.ledger.read_ahead_cache import CachedRange, ReadAheadCache
from kledger.runtime.blocking import BlockingRunner, PoolClosed
from kledger.runtime.containment import NamedUnit
from kledger.runtime.keyed_locks import KeyedLocks
from kledger.runtime.tasks import Supervisor

if TYPE_CHECKING:
    from kledger.ledger.offload.object_store import ObjectStore  # loads a library

MEMORY_BYTES = 32 << 20
REQUEST_BYTES = 4 << 20
AHEAD_BYTES = 8 << 20
READERS_REMEMBERED = 1024
INDEXES_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSource:
    """The data object of a ledger.

    Attributes:
        store: that has it.
        folder: before its name in the store, with the slash; "" for none.
        index: of the ledger.
    """

    store: "ObjectStore"
    folder: str
    index: LedgerIndex

    @property
    def key(self) -> int:
        """What no other copy of any ledger has."""
        return self.index.attempt.int

    def cached_name(self, block: int) -> str:
        """Return the name of a block in the disk cache."""
        return f"{self.index.attempt}-{block}"

    async def fetch(self, first: int, end: int) -> Sequence[Buffer]:
        """Request the blocks from `first` to `end` (exclusive).

        Returns:
            Their bytes; fewer than the index says if the object is truncated.

        Raises:
            TierUnavailable, NonRecoverable: see ObjectStore.
            Corrupt: the object ends before them.
        """
        index = self.index
        name = self.folder + data_name(index.ledger_id, index.attempt)
        start, stop = index.offsets[first], index.end_offset(end - 1)
        try:
            data = memoryview(await self.store.get_range(name, start, stop - start))
        except TierUnavailable:
            if (size := await self.store.size(name)) < stop:
                raise Corrupt(f"{name}: expected {index.data_size} bytes, got {size}") from None
            raise
        edges = [*(index.offsets[block] - start for block in range(first, end)), stop - start]
        return [data[begin:after] for begin, after in pairwise(edges)]


@dataclass(slots=True, eq=False)
class _Fetch:
    """Blocks on their way: `first` to `end` (exclusive).

    Attributes:
        reserved_bytes: in memory, if nobody waited for the blocks when they were requested.
        waiting: how many readers wait.
        blocks: the entries of each block, or why it has none, when it ended.
        error: of the request.
    """

    source: BlockSource
    first: int
    end: int
    reserved_bytes: int
    ended: asyncio.Future[None]
    task: asyncio.Task[None] | None = None
    waiting: int = 0
    blocks: dict[int, Sequence[Buffer] | Corrupt] = field(default_factory=dict)
    error: LedgerError | None = None


class BlockReads:
    """Reads of all ledgers that are in object stores."""

    def __init__(
        self,
        *,
        supervisor: Supervisor,
        pool: BlockingRunner,
        cache: TierCache | None = None,
        memory_bytes_max: int = MEMORY_BYTES,
    ) -> None:
        """Make one.

        Args:
            supervisor: owns the requests.
            pool: for the verification of blocks.
            cache: of blocks, on disk.
            memory_bytes_max: limit of blocks in memory that were read ahead or may be read again.
        """
        self._supervisor = supervisor
        self._pool = pool
        self._cache = cache
        self._memory = ReadAheadCache(memory_bytes_max)
        self._fetches: dict[tuple[int, int], _Fetch] = {}  # by key and block
        self._recent_ends: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._indexes: OrderedDict[UUID, LedgerIndex] = OrderedDict()
        self._reading_index: KeyedLocks[UUID] = KeyedLocks()

    @property
    def memory_bytes(self) -> int:
        """Bytes of the blocks in memory, and of those that are being read ahead."""
        return self._memory.expected_bytes + self._memory.used_bytes

    async def read(
        self, source: BlockSource, first: int, *, end: int, bytes_max: int
    ) -> Sequence[Buffer]:
        """Return the entries from `first` up to `end` (exclusive); see TieredLedger.read."""
        index, key = source.index, source.key
        is_continuing = self._recent_ends.pop((key, first), self) is None
        first_block = index.block_of(first)
        blocks_end = _blocks_end(index, first_block, bytes_max, end)
        self._request(source, first_block, blocks_end)
        found: Sequence[Buffer] = ()
        at, left = first, bytes_max
        for block in range(first_block, blocks_end):
            try:
                entries = await self._entries_of(source, block)
            except LedgerError:
                if not found:
                    raise
                break  # the next read begins with the failing block and raises
            begin = index.first_entries[block]
            taken = _within(entries[at - begin : end - begin], left, is_first=not found)
            if not taken:
                break
            found = [*found, *taken] if found else taken
            at += len(taken)
            left -= sum(map(len, taken))
            self._touch(key, at - 1, at)
            if at < min(end, index.end_entry(block)):
                break
        self._recent_ends[key, at] = None
        if len(self._recent_ends) > READERS_REMEMBERED:
            self._recent_ends.popitem(last=False)
        if is_continuing and at < index.entries and not self._supervisor.is_closed:
            self._read_ahead(source, index.block_of(at))
        return found

    async def read_index(
        self, store: "ObjectStore", folder: str, ledger_id: int, attempt: UUID
    ) -> LedgerIndex:
        """Return the index of a copy, from a cache or with one request for all that wait for it.

        Raises:
            TierUnavailable, NonRecoverable, Corrupt: see LedgerOffloader.open.
        """
        async with self._reading_index.holding(attempt):
            index = self._indexes.get(attempt)
            if index is None:
                index = await self._fetch_index(store, folder, ledger_id, attempt)
                self._indexes[attempt] = index
                if len(self._indexes) > INDEXES_MAX:
                    self._indexes.popitem(last=False)
            self._indexes.move_to_end(attempt)
        return index

    async def _fetch_index(
        self, store: "ObjectStore", folder: str, ledger_id: int, attempt: UUID
    ) -> LedgerIndex:
        cached_name = f"{attempt}-index"
        if self._cache is not None and (cached := await self._cache.get(cached_name)) is not None:
            try:
                return decode_index(cached, ledger_id, attempt)
            except Corrupt:
                await self._cache.drop(cached_name)
        data = await store.get(folder + index_name(ledger_id, attempt))
        index = decode_index(data, ledger_id, attempt)
        if self._cache is not None:
            await self._cache.put(cached_name, data)
        return index

    async def drop(self, attempt: UUID) -> None:
        """Forget a copy that is deleted."""
        self._indexes.pop(attempt, None)
        self._memory.drop(attempt.int)
        if self._cache is not None:
            await self._cache.drop(f"{attempt}-")

    # Blocks

    async def _entries_of(self, source: BlockSource, block: int) -> Sequence[Buffer]:
        """Return the entries of a block, from memory or when its request ends."""
        first = source.index.first_entries[block]
        cached = self._memory.find(source.key, first)
        if cached is not None:
            return cached.buffers
        self._request(source, block, block + 1)
        fetch = self._fetches[source.key, block]
        fetch.waiting += 1
        try:
            await asyncio.wait([fetch.ended])
        finally:
            fetch.waiting -= 1
            if not fetch.waiting and not fetch.ended.done() and fetch.task is not None:
                self._end(fetch)  # at once, so that no reader joins it any more
                fetch.task.cancel()
        found = fetch.error or fetch.blocks[block]
        if isinstance(found, LedgerError):
            raise copy(found) from found
        return found

    def _touch(self, key: int, entry_id: int, upto: int) -> None:
        cached = self._memory.find(key, entry_id)
        if cached is not None:
            self._memory.touch(cached, upto)

    def _read_ahead(self, source: BlockSource, block: int) -> None:
        """Request the blocks from `block` on that are missing, in requests that are full.

        What would be left for a smaller request waits for more, unless the object ends with it.
        """
        index = source.index
        upto = bisect_left(index.offsets, index.offsets[block] + AHEAD_BYTES)
        missing = next((b for b in range(block, upto) if not self._is_expected(source, b)), upto)
        while missing < upto and (end := _request_end(index, missing)) <= upto:
            self._request(source, missing, end, is_ahead=True)
            missing = end

    def _is_expected(self, source: BlockSource, block: int) -> bool:
        first = source.index.first_entries[block]
        return (
            self._memory.find(source.key, first) is not None or (source.key, block) in self._fetches
        )

    # Requests

    def _request(
        self, source: BlockSource, first: int, end: int, *, is_ahead: bool = False
    ) -> None:
        """Request the blocks of a range that are not expected, several with one request."""
        index = source.index
        begin = None
        for block in range(first, end):
            if self._is_expected(source, block):
                if begin is not None:
                    self._start(source, begin, block, is_ahead=is_ahead)
                    begin = None
            elif begin is None:
                begin = block
            elif index.end_offset(block) - index.offsets[begin] > REQUEST_BYTES:
                self._start(source, begin, block, is_ahead=is_ahead)
                begin = block
        if begin is not None:
            self._start(source, begin, end, is_ahead=is_ahead)

    def _start(self, source: BlockSource, first: int, end: int, *, is_ahead: bool) -> None:
        size = source.index.end_offset(end - 1) - source.index.offsets[first]
        if self._supervisor.is_closed:
            raise AlreadyClosed("the store is closed")
        if is_ahead and not self._memory.reserve(size):
            return
        fetch = _Fetch(
            source,
            first,
            end,
            reserved_bytes=size if is_ahead else 0,
            ended=asyncio.get_running_loop().create_future(),
        )
        unit = NamedUnit("background work", "a read of a tier")
        fetch.task = self._supervisor.spawn(self._run(fetch), "read of a tier", unit=unit)
        for block in range(first, end):
            self._fetches[source.key, block] = fetch
        fetch.task.add_done_callback(lambda _: self._end(fetch))

    async def _run(self, fetch: _Fetch) -> None:
        source = fetch.source
        try:
            await self._take_cached(fetch)
            missing = [each for each in range(fetch.first, fetch.end) if each not in fetch.blocks]
            if not missing:
                return
            first, end = missing[0], missing[-1] + 1
            requested = await source.fetch(first, end)
            decoded = await self._pool.run(_decoded, source.index, first, requested)
            fetch.blocks.update(enumerate(decoded, first))
        except LedgerError as error:
            fetch.error = error
            return
        except PoolClosed:
            return  # the store is closing
        self._end(fetch)
        if self._cache is not None:
            for block, data in enumerate(requested, first):
                if not isinstance(fetch.blocks[block], Corrupt):
                    await self._cache.put(source.cached_name(block), data)

    async def _take_cached(self, fetch: _Fetch) -> None:
        """Take blocks from the disk; a damaged one is requested again."""
        if self._cache is None:
            return
        for block in range(fetch.first, fetch.end):
            name = fetch.source.cached_name(block)
            data = await self._cache.get(name)
            if data is not None:
                (found,) = await self._pool.run(_decoded, fetch.source.index, block, [data])
                if isinstance(found, Corrupt):
                    await self._cache.drop(name)
                else:
                    fetch.blocks[block] = found

    def _end(self, fetch: _Fetch) -> None:
        """Keep the blocks in memory and wake the readers; once."""
        if fetch.ended.done():
            return
        source = fetch.source
        self._memory.release(fetch.reserved_bytes)
        for block in range(fetch.first, fetch.end):
            del self._fetches[source.key, block]
        if fetch.error is None and len(fetch.blocks) < fetch.end - fetch.first:
            fetch.error = AlreadyClosed("the store was closed during the read")
        for block, found in fetch.blocks.items():
            if not isinstance(found, Corrupt):
                self._keep(source, block, found)
        fetch.ended.set_result(None)

    def _keep(self, source: BlockSource, block: int, entries: Sequence[Buffer]) -> None:
        cached = CachedRange(source.key, source.index.first_entries[block], entries)
        if self._memory.reserve(cached.size):
            self._memory.release(cached.size)
            self._memory.put(cached, is_used=False)


def _blocks_end(index: LedgerIndex, first: int, bytes_max: int, end: int) -> int:
    """Return the number after the last block that a read needs, which begins in block `first`."""
    by_size = bisect_left(index.offsets, index.offsets[first] + bytes_max)
    return max(first + 1, min(by_size, bisect_left(index.first_entries, end)))


def _request_end(index: LedgerIndex, first: int) -> int:
    """Return the number after the last block of a full request that begins with block `first`."""
    limit = index.offsets[first] + REQUEST_BYTES
    if index.data_size <= limit:
        return index.blocks
    return max(first + 1, bisect_right(index.offsets, limit) - 1)


def _decoded(
    index: LedgerIndex, first: int, blocks: Sequence[Buffer]
) -> list[Sequence[Buffer] | Corrupt]:
    """Return the entries of each block; for a damaged one its error, as others are not affected."""
    found: list[Sequence[Buffer] | Corrupt] = []
    for block, data in enumerate(blocks, first):
        try:
            found.append(index.decode_block(block, data))
        except Corrupt as error:
            found.append(error)
    return found


def _within(entries: Sequence[Buffer], bytes_max: int, *, is_first: bool) -> Sequence[Buffer]:
    """Return the entries that fit, and the first one of a read whatever its size."""
    left = bytes_max
    for number, entry in enumerate(entries):
        left -= len(entry)
        if left < 0 and not (is_first and number == 0):
            return entries[:number]
    return entries
