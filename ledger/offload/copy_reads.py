"""Copy reads: reads entries of copies in a tier, with limits of their own.

Rule: opened copies are kept, up to a limit, and closed when no read needs them. Reads beyond a
limit wait in order, then are refused. Nothing here touches the storage of the store or its threads.
Must not know: managed ledgers, which copy is read.

| limit                     | when it is reached                                |
|---------------------------|---------------------------------------------------|
| `COPIES_OPEN_MAX`         | the copy that was not read for longest is closed  |
| `READS_MAX`               | further reads wait                                |
| `offload_read_bytes_max`  | further reads wait                                |
| `READS_WAITING_MAX`       | further reads get TooManyRequests                 |
| `offload_read_timeout_ms` | the read gets TierUnavailable, waiting included   |
| `CLOSE_TIMEOUT_MS`        | the release of a copy is given up                 |
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from kledger.ledger.engine.base import Buffer
from kledger.ledger.errors import TooManyRequests
from kledger.ledger.metadata.records import OffloadContext
from kledger.ledger.offload.offloader import LedgerOffloader, TieredLedger
from kledger.ledger.offload.tier_calls import TierCalls
from kledger.ledger.read_limiter import ReadLimiter

COPIES_OPEN_MAX = 64
READS_MAX = 16
READS_WAITING_MAX = 1_000
READ_TIMEOUT_MS = 20_000
CLOSE_TIMEOUT_MS = 60_000
READ_BYTES_MAX = 64 << 20
READ_BYTES_MIN = 1 << 20
"""What a read counts at least, since a tier reads whole blocks."""


@dataclass(slots=True, eq=False)
class _OpenCopy:
    ledger: TieredLedger
    reads: int = 0
    is_forgotten: bool = False


class CopyReads:
    """Reads entries of copies for all managed ledgers of a store."""

    def __init__(
        self,
        calls: TierCalls,
        *,
        bytes_max: int = READ_BYTES_MAX,
        timeout_ms: int = READ_TIMEOUT_MS,
    ) -> None:
        """Make one.

        Args:
            calls: of the tiers.
            bytes_max: limit of what is read at once; a larger read is alone.
            timeout_ms: how long a read may take.
        """
        self._calls = calls
        self._limiter = ReadLimiter(bytes_max, READS_WAITING_MAX)
        self._timeout_ms = timeout_ms
        self._open: OrderedDict[UUID, _OpenCopy] = OrderedDict()
        self._slots = asyncio.Semaphore(READS_MAX)
        self._waiting_count = 0

    async def read(
        self,
        offloader: LedgerOffloader,
        ledger_id: int,
        copy: OffloadContext,
        first: int,
        *,
        end: int,
        bytes_max: int,
    ) -> Sequence[Buffer]:
        """Return entries from `first` up to `end` (exclusive), at least one.

        Args:
            offloader: reaches the copy.
            ledger_id: of the ledger that it is a copy of.
            copy: a complete copy.
            first: id of the first entry.
            end: id after the last one wanted; at most the ledger's.
            bytes_max: total size at most; the first entry is returned whatever its size.

        Raises:
            TierUnavailable: the tier did not answer as it should, or not in time.
            NonRecoverable, Corrupt: the copy is not whole.
            TooManyRequests: too many reads wait for the tier.
            AlreadyClosed: the store is closed.
        """
        what = f"reading ledger {ledger_id} from {copy.driver}"
        if self._waiting_count >= READS_WAITING_MAX:
            raise TooManyRequests(f"{self._waiting_count} reads of the tier are waiting")
        self._waiting_count += 1
        try:
            work = partial(
                self._read, offloader, ledger_id, copy, first, end=end, bytes_max=bytes_max
            )
            return await self._calls.call(work, what, timeout_ms=self._timeout_ms)
        finally:
            self._waiting_count -= 1

    def forget(self, attempt: UUID) -> None:
        """Release what is kept of a copy that is not needed any more."""
        opened = self._open.pop(attempt, None)
        if opened is not None:
            opened.is_forgotten = True
            self._close_if_unused(opened)

    async def _read(
        self,
        offloader: LedgerOffloader,
        ledger_id: int,
        copy: OffloadContext,
        first: int,
        *,
        end: int,
        bytes_max: int,
    ) -> Sequence[Buffer]:
        """Read when there is room; the tier is called in a task of its own.

        So a call that goes on after its cancellation keeps nothing that other reads wait for.
        """
        size = max(bytes_max, READ_BYTES_MIN)
        async with self._slots:
            await self._limiter.enter(size)
            try:
                opened = self._open.get(copy.attempt)
                if opened is None:
                    ledger = await self._calls.call(
                        partial(offloader.open, ledger_id, copy.attempt, copy.location),
                        f"opening a copy of ledger {ledger_id}",
                        timeout_ms=None,
                        release_late=self._close,
                    )
                    opened = self._remember(copy.attempt, _OpenCopy(ledger))
                self._open.move_to_end(copy.attempt)
                opened.reads += 1
                try:
                    return await self._calls.call(
                        partial(opened.ledger.read, first, end=end, bytes_max=bytes_max),
                        f"reading a copy of ledger {ledger_id}",
                        timeout_ms=None,
                    )
                finally:
                    opened.reads -= 1
                    self._close_if_unused(opened)
            finally:
                self._limiter.leave(size)

    def _remember(self, attempt: UUID, opened: _OpenCopy) -> _OpenCopy:
        """Keep an opened copy, unless another read has opened it meanwhile; close the oldest."""
        if (other := self._open.get(attempt)) is not None:
            opened.is_forgotten = True
            self._close_if_unused(opened)
            return other
        self._open[attempt] = opened
        if len(self._open) > COPIES_OPEN_MAX:
            self.forget(next(iter(self._open)))
        return opened

    def _close_if_unused(self, opened: _OpenCopy) -> None:
        if opened.is_forgotten and not opened.reads:
            self._close(opened.ledger)

    def _close(self, ledger: TieredLedger) -> None:
        self._calls.start_unattended(ledger.close, "closing a copy", timeout_ms=CLOSE_TIMEOUT_MS)
