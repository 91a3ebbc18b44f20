"""Cold reads: entries from the storage, for readers behind the entry cache.

Rule: entries that several readers want are read once. Entries in the page cache are copied at once,
on the event loop and without a task (`read_resident`); a disk is read in a thread, and a reader of
entries that another read already fetches waits for that read. If a ledger has several readers, its
ranges stay in the read-ahead cache for a while; if a read begins where an earlier one ended, the
next range is read ahead. Entries never change, so cached ranges never become stale; those of a
dropped ledger are dropped. A disk read is independent of its readers: it continues when one is
cancelled, and when it fails, each reader gets an error object of its own.
Must not know: managed ledgers, the entry cache.

| limit                      | when it is reached                                              |
|----------------------------|-----------------------------------------------------------------|
| `cold_read_bytes_max`      | further reads wait in order                                     |
| `cold_reads_waiting_max`   | further reads get TooManyRequests                               |
| `read_ahead_bytes_max`     | cached ranges are evicted, used ones first; no range read ahead |
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from kledger.ledger.config import StoreConfig
from kledger.ledger.engine.base import Buffer, StorageEngine
from kledger.ledger.errors import AlreadyClosed, LedgerError, from_engine
from kledger.ledger.read_ahead_cache import CachedRange, RangeKey, ReadAheadCache
from kledger.ledger.read_limiter import ReadLimiter
from kledger.runtime.blocking import BlockingRunner
from kledger.runtime.containment import NamedUnit
from kledger.runtime.tasks import Supervisor

RESIDENT_BYTES_PER_TICK = 4 << 20
"""Bytes that the event loop copies in one tick, in about a millisecond; threads read the rest."""
REMEMBERED_READS_MAX = 1024
"""Ends of reads that are remembered to detect sequential readers; also ledgers with a pattern."""
SHARED_READS = 32
"""After so many reads that each begin where the previous one ended, a ledger counts as read by one
reader, and its reads are not shared any more."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class _ReadRequest(NamedTuple):
    """Entries that a reader still wants: `first` to `end` (exclusive), at most `bytes_max`.

    With `is_first` the first entry is wanted whatever its size. With `is_background` the event loop
    copies nothing.
    """

    ledger_id: int
    first: int
    end: int
    bytes_max: int
    is_first: bool
    is_background: bool

    def within_limits(self, buffers: Sequence[Buffer], begin: int) -> Sequence[Buffer]:
        """Return the wanted part of `buffers`, whose first is the entry `begin`."""
        start = self.first - begin
        end = min(len(buffers), self.end - begin)
        left = self.bytes_max
        for index in range(start, end):
            left -= len(buffers[index])
            if left < 0 and not (self.is_first and index == start):
                return buffers[start:index]
        return buffers[start:end]


@dataclass(slots=True)
class _AccessPattern:
    """How a ledger was read lately.

    Attributes:
        end: the entry after the latest read.
        shared: for how many more reads the ledger counts as shared by several readers.
        entry_size: average bytes of an entry, 0 before the first read.
    """

    end: int
    shared: int = 0
    entry_size: int = 0

    def record_start(self, first: int, kept_bytes_max: int) -> None:
        """Note where a read begins: near `end`, but not at it, it is that of another reader.

        Farther away, what one of them took is evicted before another one comes; it may also be one
        reader, which reads everything again.
        """
        is_near = abs(first - self.end) * self.entry_size <= kept_bytes_max
        if first != self.end and is_near:
            self.shared = SHARED_READS
        elif self.shared:
            self.shared -= 1


@dataclass(slots=True, eq=False)
class _InflightRead:
    """One read of the storage in flight.

    Attributes:
        last: the last entry that it may return.
        expected_end: the entry before which it will probably end.
        is_ahead: whether it reads ahead, into room reserved in the cache.
        waiting: the readers that wait for its end.
    """

    ledger_id: int
    first: int
    last: int
    bytes_max: int
    expected_end: int
    is_ahead: bool
    buffers: Sequence[Buffer] = ()
    error: LedgerError | None = None
    is_dropped: bool = False
    waiting: list[asyncio.Future[None]] = field(default_factory=list)


class ColdReads:
    """All entry reads from the storage of one store."""

    def __init__(
        self,
        engine: StorageEngine,
        config: StoreConfig,
        *,
        read_ahead_bytes_max: int,
        pool: BlockingRunner,
        supervisor: Supervisor,
    ) -> None:
        self._engine = engine
        self._pool = pool
        self._supervisor = supervisor
        self._limiter = ReadLimiter(config.cold_read_bytes_max, config.cold_reads_waiting_max)
        self._read_ahead_cache = ReadAheadCache(read_ahead_bytes_max)
        self._inflight_reads: list[_InflightRead] = []
        self._recent_ends: OrderedDict[RangeKey, None] = OrderedDict()
        self._patterns: OrderedDict[int, _AccessPattern] = OrderedDict()
        self._tick_bytes = 0  # copied from the page cache

    @property
    def in_flight_bytes(self) -> int:
        """Bytes that are being read from disk, by their limits."""
        return self._limiter.in_flight_bytes

    @property
    def ahead_bytes(self) -> int:
        """Bytes that were read ahead and not used up yet, or are being read ahead."""
        return self._read_ahead_cache.expected_bytes

    @property
    def kept_bytes(self) -> int:
        """Bytes that were used and are kept for further readers."""
        return self._read_ahead_cache.used_bytes

    async def read(
        self,
        ledger_id: int,
        first: int,
        *,
        count: int,
        upto: int,
        bytes_max: int,
        is_background: bool = False,
    ) -> Sequence[Buffer]:
        """Return entries of a ledger from `first` on, at least one.

        If at least half of what fits is in memory, the rest is not read from disk: the caller
        continues later, like other readers of the same ledger.

        Args:
            ledger_id: the ledger.
            first: id of the first entry.
            count: how many entries at most.
            upto: id after the last entry that exists.
            bytes_max: total size at most; the first entry is returned whatever its size.
            is_background: a thread also copies what the page cache has, since the reader has more
                time than others have for the event loop.

        Raises:
            TooManyRequests: too many reads are waiting.
            NonRecoverable, Corrupt, StorageFailed, Fenced: the first entry cannot be read.
            AlreadyClosed: the store is closed.
        """
        if not is_background and (
            found := self.read_resident(
                ledger_id, first, count=count, upto=upto, bytes_max=bytes_max
            )
        ):
            return found
        pattern = self._pattern_of(ledger_id, first)
        pattern.record_start(first, self._read_ahead_cache.limit)
        request = _ReadRequest(
            ledger_id,
            first,
            min(upto, first + count),
            bytes_max,
            is_first=True,
            is_background=is_background,
        )
        is_reading_on = self._recent_ends.pop((ledger_id, first), self) is None
        found = await self._gather(request)
        end = pattern.end = first + len(found)
        _remember(self._recent_ends, (ledger_id, end), None)
        if is_reading_on and end < upto:
            following = request._replace(first=end, end=min(upto, end + count))
            if is_background or not self._is_resident(following, _size(found) // len(found)):
                self._read_ahead(ledger_id, end, following.end, bytes_max)
        return found

    def read_resident(
        self, ledger_id: int, first: int, *, count: int, upto: int, bytes_max: int
    ) -> Sequence[Buffer]:
        """Do what `read` does with what the page cache has, without a task or a thread.

        Returns:
            At least one entry; () if only `read` can return it, and nothing was noted.

        Raises:
            Corrupt: the page cache has an entry that is damaged.
        """
        if self._is_expected(ledger_id, first):
            return ()
        end = min(upto, first + count)
        buffers = self._copy_resident(
            _ReadRequest(ledger_id, first, end, bytes_max, is_first=True, is_background=False)
        )
        if buffers:
            pattern = self._pattern_of(ledger_id, first)
            pattern.entry_size = _size(buffers) // len(buffers)
            pattern.record_start(first, self._read_ahead_cache.limit)
            pattern.end = first + len(buffers)
            self._keep_if_shared(ledger_id, first, buffers)
        return buffers

    def drop(self, ledger_id: int) -> None:
        """Forget a ledger; reads of it in flight are not cached."""
        self._read_ahead_cache.drop(ledger_id)
        self._patterns.pop(ledger_id, None)
        for inflight in self._inflight_reads:
            if inflight.ledger_id == ledger_id:
                inflight.is_dropped = True

    # From the page cache

    def _copy_resident(self, request: _ReadRequest) -> Sequence[Buffer]:
        """Return entries from the page cache; () if one is missing, or for a thread to read."""
        if request.is_background or self._tick_bytes >= RESIDENT_BYTES_PER_TICK:
            return ()
        ledger_id, first, end, bytes_max, is_first, _ = request
        if not is_first:
            end = min(end, self._read_ahead_cache.next_first(ledger_id, first))
        try:
            buffers = self._engine.read_resident(ledger_id, first, end - 1, bytes_max)
        except Exception as error:
            raise from_engine(error) from error
        if buffers is None:
            return ()
        if not self._tick_bytes:
            asyncio.get_running_loop().call_soon(self._tick_ended)
        self._tick_bytes += _size(buffers)
        return buffers

    def _is_resident(self, request: _ReadRequest, entry_size: int) -> bool:
        """Return whether the page cache has the last entry of a request, if all have that size.

        Where a disk is read in order, the kernel reads ahead, too, but only the next few entries.
        """
        count = max(1, request.bytes_max // max(1, entry_size))
        last = min(request.end, request.first + count) - 1
        try:
            return bool(self._engine.read_resident(request.ledger_id, last, last, 1))
        except Exception:  # noqa: BLE001 - the read of that entry meets it again
            return False

    def _keep_if_shared(self, ledger_id: int, first: int, buffers: Sequence[Buffer]) -> None:
        if self._pattern_of(ledger_id, first).shared:
            self._read_ahead_cache.put(CachedRange(ledger_id, first, buffers), is_used=True)

    def _tick_ended(self) -> None:
        self._tick_bytes = 0

    # Shared reads

    def _is_expected(self, ledger_id: int, entry_id: int) -> bool:
        """Return whether an entry is cached, or will probably be returned by a read in flight."""
        if self._read_ahead_cache.find(ledger_id, entry_id) is not None:
            return True
        return self._inflight_read_of(ledger_id, entry_id) is not None

    async def _gather(self, request: _ReadRequest) -> Sequence[Buffer]:
        """Collect entries in order: from the cache, from reads in flight, from new reads."""
        ledger_id, first, end, bytes_max, _, is_background = request
        found: Sequence[Buffer] = ()
        at, left = first, bytes_max
        while at < end and (left > 0 or not found):
            request = _ReadRequest(ledger_id, at, end, left, not found, is_background)
            taken = self._take_cached(request)
            if taken is None:
                try:
                    taken = await self._fetch(request, is_enough=2 * left <= bytes_max)
                except LedgerError:
                    if not found:
                        raise
                    break  # the next read begins with the failing entry and raises
            if taken is not None:
                if not taken:
                    break
                found = [*found, *taken] if found else taken
                at += len(taken)
                left -= _size(taken)
        return found

    def _take_cached(self, request: _ReadRequest) -> Sequence[Buffer] | None:
        """Take from the read-ahead cache; None if it lacks the entry, () if that is too large."""
        cached = self._read_ahead_cache.find(request.ledger_id, request.first)
        if cached is None:
            return None
        taken = request.within_limits(cached.buffers, cached.first)
        is_shared = self._pattern_of(request.ledger_id, request.first).shared > 0
        self._read_ahead_cache.touch(cached, request.first + len(taken), is_kept=is_shared)
        return taken

    async def _fetch(self, request: _ReadRequest, *, is_enough: bool) -> Sequence[Buffer] | None:
        """Wait for the read in flight that will return the entry, or start one.

        Args:
            request: what is wanted.
            is_enough: whether the reader has enough entries to not wait for a disk.

        Returns:
            The entries; () if the next is too large or `is_enough`; None to look again.
        """
        inflight = self._inflight_read_of(request.ledger_id, request.first)
        if not request.is_first:
            if inflight is None and (resident := self._copy_resident(request)):
                wanted = request.within_limits(resident, request.first)
                if wanted:
                    self._keep_if_shared(request.ledger_id, request.first, wanted)
                return wanted
            if is_enough:
                return ()
        if inflight is None:
            inflight = self._start_read(
                request.ledger_id, request.first, request.end, request.bytes_max
            )
        finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        inflight.waiting.append(finished)
        await finished
        if inflight.error is not None:
            if inflight.first == request.first:
                raise copy(inflight.error) from inflight.error
            return None
        taken = self._take_cached(request)
        if taken is None and request.first < inflight.first + len(inflight.buffers):
            return request.within_limits(inflight.buffers, inflight.first)  # it was not cached
        return taken

    def _read_ahead(self, ledger_id: int, first: int, end: int, bytes_max: int) -> None:
        if self._is_expected(ledger_id, first) or self._supervisor.is_closed:
            return
        if self._read_ahead_cache.reserve(bytes_max):
            self._start_read(ledger_id, first, end, bytes_max, is_ahead=True)

    def _pattern_of(self, ledger_id: int, first: int) -> _AccessPattern:
        """Return the access pattern of a ledger; a new one takes this read for a sequential one."""
        pattern = self._patterns.get(ledger_id)
        if pattern is None:
            pattern = _AccessPattern(first)
            _remember(self._patterns, ledger_id, pattern)
        return pattern

    # One read of the storage

    def _inflight_read_of(self, ledger_id: int, entry_id: int) -> _InflightRead | None:
        for inflight in self._inflight_reads:
            if (
                inflight.ledger_id == ledger_id
                and inflight.first <= entry_id < inflight.expected_end
            ):
                return inflight
        return None

    def _start_read(
        self, ledger_id: int, first: int, end: int, bytes_max: int, *, is_ahead: bool = False
    ) -> _InflightRead:
        """Start a read that ends where a cached range or another read in flight begins."""
        if self._supervisor.is_closed:
            raise AlreadyClosed("the store is closed")
        others = [
            f.first for f in self._inflight_reads if f.ledger_id == ledger_id and f.first > first
        ]
        end = min(end, self._read_ahead_cache.next_first(ledger_id, first), *others)
        entry_size = self._pattern_of(ledger_id, first).entry_size or bytes_max
        inflight = _InflightRead(
            ledger_id=ledger_id,
            first=first,
            last=end - 1,
            bytes_max=bytes_max,
            expected_end=min(end, first + max(1, bytes_max // entry_size)),
            is_ahead=is_ahead,
        )
        self._inflight_reads.append(inflight)
        task = self._supervisor.spawn(self._run_read(inflight), "ledger cold read")
        run, unit = self._supervisor.containment.run, NamedUnit("background work", "a cold read")
        task.add_done_callback(lambda _: run(unit, self._finish_read, inflight))
        return inflight

    async def _run_read(self, inflight: _InflightRead) -> None:
        ledger_id, first, size = inflight.ledger_id, inflight.first, inflight.bytes_max
        try:
            await self._limiter.enter(size)
        except LedgerError as error:
            inflight.error = error
            return
        try:
            inflight.buffers = await self._pool.run(
                self._engine.read, ledger_id, first, inflight.last, size
            )
        except Exception as error:  # noqa: BLE001 - raised to each reader that waits
            inflight.error = from_engine(error)
            inflight.error.__cause__ = error
        finally:
            self._limiter.leave(size)

    def _finish_read(self, inflight: _InflightRead) -> None:
        """Wake the readers, and cache the entries if there is room."""
        self._inflight_reads.remove(inflight)
        if inflight.is_ahead:
            self._read_ahead_cache.release(inflight.bytes_max)
        buffers, ledger_id = inflight.buffers, inflight.ledger_id
        if not buffers and inflight.error is None:
            inflight.error = AlreadyClosed("the store was closed during the read")
        for waiter in inflight.waiting:  # each looks again in a later tick
            if not waiter.done():
                waiter.set_result(None)
        if buffers and not inflight.is_dropped:
            pattern = self._pattern_of(ledger_id, inflight.first)
            pattern.entry_size = _size(buffers) // len(buffers)
            if len(inflight.waiting) > 1:
                pattern.shared = SHARED_READS
            if inflight.is_ahead or pattern.shared:
                cached = CachedRange(ledger_id, inflight.first, buffers)
                self._read_ahead_cache.put(cached, is_used=not inflight.is_ahead)


def _remember(known: OrderedDict[Key, Value], key: Key, value: Value) -> None:
    """Add to what is remembered, and forget the oldest beyond the limit."""
    known[key] = value
    if len(known) > REMEMBERED_READS_MAX:
        known.popitem(last=False)


def _size(buffers: Sequence[Buffer]) -> int:
    return sum(map(len, buffers))
