"""Producer ids: numbers for idempotent producers, each assigned once and never again.

Rule: ids come from a block whose end was durable before the first of them was assigned; a restart
begins after the last block, so at most a block is lost and no id is repeated.
Must not know: clients, epochs, transactions.
"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kledger.ledger.record_table import RecordRows, RecordTable
from kledger.ledger.row_format import NO_VERSION, U64, RowFormat
from kledger.runtime.signal import Signal

if TYPE_CHECKING:
    from kledger.ledger import LedgerStore
    from kledger.runtime.deferred import Deferred

PRODUCER_IDS_KEY = b"gateway/producer_ids"
PRODUCER_ID_BLOCK_SIZE = 1_000
_KEY = "reserved end"
_RESERVED_ENDS = RowFormat[int]("producer ids", {NO_VERSION: U64})
_ROWS = RecordRows[str, int](
    prefix=PRODUCER_IDS_KEY,
    encode_key=lambda _key: PRODUCER_IDS_KEY,
    encode=_RESERVED_ENDS.encode,
    decode=lambda _key, row: (_KEY, _RESERVED_ENDS.decode(row)),
)


@dataclass(slots=True)
class ProducerIdBlock:
    """The ids from `next_id` up to, not including, `end` may be assigned."""

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
    """Assigns the producer ids of one store; its only record is the end of the last block."""

    def __init__(self, store: "LedgerStore") -> None:
        self._ends = RecordTable(store, _ROWS)
        self._ends.load()
        self._block = ProducerIdBlock(self._reserved_end, self._reserved_end)
        self._is_reserving = False
        self._reserved = Signal()
        self._error: Exception | None = None

    async def next_id(self) -> int:
        """Return an id that was never assigned before, across restarts too.

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

    @property
    def _reserved_end(self) -> int:
        return self._ends.get(_KEY) or 0

    def _reserve(self) -> None:
        start = self._reserved_end
        written = self._ends.submit(_KEY, start + PRODUCER_ID_BLOCK_SIZE)
        self._is_reserving = True
        if written.is_resolved:
            self._reserve_ended(start, written)
        else:
            written.when_resolved(partial(self._reserve_ended, start, written))

    def _reserve_ended(self, start: int, written: "Deferred[Exception | None]") -> None:
        self._is_reserving = False
        self._error = written.result()
        if self._error is None:
            self._block.start_block(start)
        self._reserved.notify()
