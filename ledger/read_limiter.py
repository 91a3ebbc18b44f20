"""Read limiter: how many bytes are read at once, from the storage or from a tier.

Rule: no read overtakes another one.
Must not know: what is read.
"""

import asyncio
from collections import deque

from kledger.ledger.errors import TooManyRequests


class ReadLimiter:
    """Limits the bytes that are read at once.

    Reads that do not fit wait in order; one larger than the limit runs alone; when `waiting_max`
    reads wait, the next is refused.
    """

    def __init__(self, bytes_max: int, waiting_max: int) -> None:
        self.in_flight_bytes = 0
        self._bytes_max = bytes_max
        self._waiting_max = waiting_max
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def enter(self, size: int) -> None:
        """Wait until there is room; the caller must call `leave` afterwards.

        Raises:
            TooManyRequests: too many reads are waiting.
        """
        if not self._queue and self._has_room(size):
            self.in_flight_bytes += size
            return
        if len(self._queue) >= self._waiting_max:
            raise TooManyRequests(
                f"{len(self._queue)} reads of the storage are waiting "
                f"(cold_reads_waiting_max); {self.in_flight_bytes} bytes are being read"
            )
        admission: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((size, admission))
        try:
            await admission
        except asyncio.CancelledError:
            if admission.done() and not admission.cancelled():
                self.leave(size)
            raise

    def leave(self, size: int) -> None:
        """Return the room, and admit the next reads of the queue."""
        self.in_flight_bytes -= size
        while self._queue:
            size, admission = self._queue[0]
            if not admission.done():
                if not self._has_room(size):
                    return
                self.in_flight_bytes += size
                admission.set_result(None)
            self._queue.popleft()

    def _has_room(self, size: int) -> bool:
        in_flight = self.in_flight_bytes
        return in_flight == 0 or in_flight + size <= self._bytes_max
