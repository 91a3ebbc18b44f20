"""Read limiter: how many bytes are read from disk at once.

Rule: who does not fit waits in order; a read larger than the limit goes alone; beyond so many who
wait, the next is refused at once.
Must not know: what is read.
"""

import asyncio
from collections import deque

from kledger.ledger.errors import TooManyRequests


class ReadLimiter:
    """The reads under way, and the queue of those that are not."""

    def __init__(self, bytes_max: int, waiting_max: int) -> None:
        self.in_flight_bytes = 0
        self._bytes_max = bytes_max
        self._waiting_max = waiting_max
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def enter(self, size: int) -> None:
        """Wait until there is room; whoever got it calls `leave`.

        Raises:
            TooManyRequests: too many are waiting.
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
        """Give the room back; the next in the queue get it."""
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
