"""Cold reads: entries from the storage, for readers that are behind what is in memory.

Rule: what the page cache has is copied at once, on the loop. For what a disk has to deliver there
is a thread, and who reads on where an earlier read ended gets the next piece read in advance, one
at a time.
Entries never change, so a piece that was read early is as good as a late one. What is read at once
is bounded in bytes and waits in order; what was read in advance is bounded too, the oldest goes.
Must not know: managed ledgers, what memory holds.

| limit                      | reached                                                  |
|----------------------------|----------------------------------------------------------|
| `cold_read_bytes_max`      | further reads wait their turn                            |
| `cold_reads_waiting_max`   | further reads get TooManyRequests                        |
| `read_ahead_bytes_max`     | pieces that nobody came for go; none is read in advance  |
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ledger.config import StoreConfig
from ledger.engine.base import Buffer, StorageEngine
from ledger.errors import LedgerError, TooManyRequests, from_engine
from runtime.blocking import BlockingRunner
from runtime.tasks import Supervisor

logger = logging.getLogger(__name__)

RESIDENT_BYTES_PER_TURN = 4 << 20
"""What is copied on the loop in one turn, about a millisecond of work; threads do the rest."""
ENDS_MAX = 1024
"""Reads that are remembered, to notice who reads on."""
Place: TypeAlias = tuple[int, int]


@dataclass(slots=True)
class _Piece:
    """Entries read in advance; `size` is what they may take while they are on their way."""

    size: int
    buffers: Sequence[Buffer] = ()
    waiting: list[asyncio.Future[None]] = field(default_factory=list)
    is_there: bool = False


class ColdReads:
    """All reads of one store's storage."""

    def __init__(
        self,
        engine: StorageEngine,
        config: StoreConfig,
        *,
        read_ahead_bytes_max: int,
        pool: BlockingRunner,
        supervisor: Supervisor,
    ) -> None:
        self.ahead_bytes = 0
        """Bytes of all pieces, there or on their way."""
        self.in_flight_bytes = 0
        self._engine = engine
        self._config = config
        self._read_ahead_bytes_max = read_ahead_bytes_max
        self._pool = pool
        self._supervisor = supervisor
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._pieces: OrderedDict[Place, _Piece] = OrderedDict()
        self._ends: OrderedDict[Place, None] = OrderedDict()
        self._turn_bytes = 0  # copied from the page cache

    async def read(
        self, ledger_id: int, first: int, *, count: int, upto: int, bytes_max: int
    ) -> Sequence[Buffer]:
        """Return entries of a ledger from `first` on, at least one.

        Args:
            ledger_id: the ledger.
            first: id of the first entry.
            count: at most so many.
            upto: id behind the last entry that exists.
            bytes_max: stop before more than this, but not before the first.

        Raises:
            TooManyRequests: too many reads are waiting.
            NonRecoverable, Corrupt, StorageFailed, Fenced: the first entry cannot be read.
        """
        place = ledger_id, first
        last = min(upto, first + count) - 1
        if resident := self._read_resident(place, last, bytes_max):
            return resident
        is_reading_on = self._ends.pop(place, self) is None
        buffers = await self._take_ahead(place, min(count, upto - first), bytes_max)
        if not buffers:
            buffers = await self._read_now(place, last, bytes_max)
        end = first + len(buffers)
        self._ends[ledger_id, end] = None
        if len(self._ends) > ENDS_MAX:
            self._ends.popitem(last=False)
        if is_reading_on and end < upto:
            self._read_ahead((ledger_id, end), min(upto, end + count) - 1, bytes_max)
        return buffers

    # From the page cache

    def _read_resident(self, place: Place, last: int, bytes_max: int) -> Sequence[Buffer]:
        """Return what the page cache has, nothing where it lacks something or the turn is full."""
        if self._turn_bytes >= RESIDENT_BYTES_PER_TURN:
            return ()
        try:
            buffers = self._engine.read_resident(*place, last, bytes_max)
        except Exception as error:
            raise from_engine(error) from error
        if buffers is None:
            return ()
        if not self._turn_bytes:
            asyncio.get_running_loop().call_soon(self._turn_ended)
        self._turn_bytes += _size(buffers)
        return buffers

    def _turn_ended(self) -> None:
        self._turn_bytes = 0

    # In advance

    async def _take_ahead(self, place: Place, count: int, bytes_max: int) -> Sequence[Buffer]:
        """Return what was read in advance from a place on, as much as is asked for."""
        piece = self._pieces.get(place)
        if piece is not None and not piece.is_there:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            piece.waiting.append(waiter)
            await waiter
            piece = self._pieces.get(place)
        if piece is None or not piece.is_there:
            return ()
        self._drop(place)
        taken = _fitting(piece.buffers, count, bytes_max)
        if rest := piece.buffers[taken:]:
            self._keep((place[0], place[1] + taken), _Piece(_size(rest), rest, is_there=True))
        return piece.buffers[:taken]

    def _read_ahead(self, place: Place, last: int, bytes_max: int) -> None:
        if place in self._pieces or self._supervisor.is_closed:
            return
        while self.ahead_bytes + bytes_max > self._read_ahead_bytes_max:
            oldest = next((each for each in self._pieces if self._pieces[each].is_there), None)
            if oldest is None:
                return
            self._drop(oldest)
        self._keep(place, piece := _Piece(bytes_max))
        self._supervisor.spawn(self._fill(piece, place, last), "ledger read-ahead")

    async def _fill(self, piece: _Piece, place: Place, last: int) -> None:
        try:
            buffers = await self._read_now(place, last, piece.size)
            self._drop(place)
            self._keep(place, _Piece(_size(buffers), buffers, is_there=True))
        except LedgerError:
            logger.debug("reading %d:%d in advance failed", *place)  # who comes for it will hear
        finally:
            if self._pieces.get(place) is piece:
                self._drop(place)
            for waiter in piece.waiting:
                if not waiter.done():
                    waiter.set_result(None)

    def _keep(self, place: Place, piece: _Piece) -> None:
        self._pieces[place] = piece
        self.ahead_bytes += piece.size

    def _drop(self, place: Place) -> None:
        self.ahead_bytes -= self._pieces.pop(place).size

    # Now

    async def _read_now(self, place: Place, last: int, bytes_max: int) -> Sequence[Buffer]:
        ledger_id, first = place
        await self._enter(bytes_max)
        try:
            return await self._pool.run(self._engine.read, ledger_id, first, last, bytes_max)
        except Exception as error:
            raise from_engine(error) from error
        finally:
            self._leave(bytes_max)

    async def _enter(self, size: int) -> None:
        """Wait until there is room; a read larger than the limit goes alone."""
        if not self._queue and self._has_room(size):
            self.in_flight_bytes += size
            return
        if len(self._queue) >= self._config.cold_reads_waiting_max:
            raise TooManyRequests(
                f"{len(self._queue)} reads of the storage are waiting "
                f"(cold_reads_waiting_max); {self.in_flight_bytes} bytes are being read"
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave(size)
            raise

    def _leave(self, size: int) -> None:
        self.in_flight_bytes -= size
        while self._queue:
            size, turn = self._queue[0]
            if not turn.done():
                if not self._has_room(size):
                    return
                self.in_flight_bytes += size
                turn.set_result(None)
            self._queue.popleft()

    def _has_room(self, size: int) -> bool:
        in_flight = self.in_flight_bytes
        return in_flight == 0 or in_flight + size <= self._config.cold_read_bytes_max


def _fitting(buffers: Sequence[Buffer], count: int, bytes_max: int) -> int:
    """Return how many of the first buffers are asked for; one always is."""
    size = 0
    for index, buffer in enumerate(buffers[:count]):
        size += len(buffer)
        if index and size > bytes_max:
            return index
    return min(count, len(buffers))


def _size(buffers: Sequence[Buffer]) -> int:
    return sum(map(len, buffers))
