"""Producer ids: numbers for idempotent producers, each assigned once and never again.

Rule: ids come from a block whose end was durable before the first of them was assigned; a restart
begins after the last block, so at most a block is lost and no id is repeated.
Must not know: clients, epochs, transactions.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kledger.ledger.record_table import RecordRows, RecordTable
from kledger.ledger.row_format import NO_VERSION, U64, RowFormat

if TYPE_CHECKING:
    from kledger.ledger import TableStore

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

    @property
    def is_used_up(self) -> bool:
        """Whether there is no next id."""
        return self.next_id >= self.end

    def take(self) -> int | None:
        """Return the next id, or None when the block is used up."""
        if self.is_used_up:
            return None
        self.next_id += 1
        return self.next_id - 1

    def start_block(self, start: int) -> None:
        """Go on with the durable block that begins at `start`."""
        assert start >= self.end, f"block from {start} overlaps the one up to {self.end}"
        self.next_id, self.end = start, start + PRODUCER_ID_BLOCK_SIZE


class ProducerIds:
    """Assigns producer ids; the only record is the end of the last block of any broker."""

    def __init__(self, tables: "TableStore") -> None:
        self._ends = RecordTable(tables, _ROWS)
        self._changing = tables.change_lock()
        self._ends.load()
        self._block = ProducerIdBlock(self._reserved_end, self._reserved_end)

    async def next_id(self) -> int:
        """Return an id that was never assigned before, across restarts too.

        Raises:
            LedgerError: the next block could not be made durable.
        """
        while (producer_id := self._block.take()) is None:
            async with self._changing:
                if self._block.is_used_up:
                    await self._reserve()
        return producer_id

    async def _reserve(self) -> None:
        start = self._reserved_end
        error = await self._ends.submit(_KEY, start + PRODUCER_ID_BLOCK_SIZE)
        if error is not None:
            raise error
        self._block.start_block(start)

    @property
    def _reserved_end(self) -> int:
        return self._ends.get(_KEY) or 0
