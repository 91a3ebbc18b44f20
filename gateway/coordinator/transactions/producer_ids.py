"""ProducerIds: numbers for idempotent producers, each given out once and never again.

Rule: ids come from a block whose end was durable before the first of them left; a restart begins
behind the last block, so at most a block is lost and nothing is repeated.
Must not know: who asks, epochs, transactions.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kledger.ledger.row_format import NO_VERSION, U64, RowFormat
from kledger.runtime.signal import Signal

if TYPE_CHECKING:
    from kledger.ledger import LedgerError, LedgerStore

PRODUCER_IDS_KEY = b"gateway/producer_ids"
PRODUCER_ID_BLOCK_SIZE = 1_000
_RESERVED_ENDS = RowFormat[int]("producer ids", {NO_VERSION: U64})
"""The end of the last block."""


@dataclass(slots=True)
class ProducerIdBlock:
    """The ids from `next_id` up to, not including, `end` may be given out."""

    next_id: int
    end: int

    def take(self) -> int | None:
        """Return the next id, or None when the block is used up."""
        if self.next_id >= self.end:
            return None
        self.next_id += 1
        return self.next_id - 1

    def start_block(self, start: int) -> None:
        """Go on with the durable block that begins at `start`."""
        assert start >= self.end, f"block from {start} overlaps the one up to {self.end}"
        self.next_id, self.end = start, start + PRODUCER_ID_BLOCK_SIZE


class ProducerIds:
    """Gives out producer ids of one store."""

    def __init__(self, store: "LedgerStore") -> None:
        stored = store.get_row(PRODUCER_IDS_KEY)
        self._store = store
        self._reserved_end = _RESERVED_ENDS.decode(stored) if stored is not None else 0
        self._block = ProducerIdBlock(self._reserved_end, self._reserved_end)
        self._is_reserving = False
        self._reserved = Signal()
        self._error: LedgerError | None = None

    async def next_id(self) -> int:
        """Return an id that nobody got before, across restarts too.

        Raises:
            LedgerError: the next block could not be made durable.
        """
        while True:
            version = self._reserved.version
            producer_id = self._block.take()
            if producer_id is not None:
                return producer_id
            if not self._is_reserving:
                self._reserve()
            await self._reserved.wait_beyond(version)
            if self._error is not None:
                raise self._error

    def _reserve(self) -> None:
        start = self._reserved_end

        def reserved(error: "LedgerError | None") -> None:
            self._is_reserving = False
            self._error = error
            if error is None:
                self._reserved_end = start + PRODUCER_ID_BLOCK_SIZE
                self._block.start_block(start)
            self._reserved.notify()

        end = _RESERVED_ENDS.encode(start + PRODUCER_ID_BLOCK_SIZE)
        self._store.append_rows_nowait([(PRODUCER_IDS_KEY, end)], reserved)
        self._is_reserving = True
