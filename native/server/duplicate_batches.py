"""Stored batches: where a batch is that was sent again, when its producer is known and it is not.

Rule: a partition remembers the last five batches of a producer, and a native client may have more
than five under way. What came before them is looked for in the log, backwards from the oldest that
is remembered and within a limit; what is met on the way answers the batches that follow.
Must not know: who sends.
"""

from contextlib import suppress

from kledger.batches.errors import BatchError
from kledger.batches.header import BatchHeader, read_header
from kledger.ledger import Buffer, Position
from kledger.native.broker import SendReceipt
from kledger.native.errors import Unavailable
from kledger.topics import PartitionLog
from kledger.topics.partition.producer_state import SEQUENCE_MASK, ProducerEntry

SEARCH_ENTRIES_MAX = 10_000
"""How far the log is searched. Batches that were under way together lie close to each other."""
SEARCH_STEP_ENTRIES = 100
"""Entries that are read at once."""


class DuplicateBatches:
    """For the batches that come by one link."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._found: dict[tuple[int, int, int], SendReceipt] = {}  # by producer id, epoch, sequence

    def check_known(self, batch: Buffer) -> None:
        """Refuse a batch that was sent again when its producer may have been forgotten.

        A producer that is missing has written nothing lately, unless it was evicted: then nobody
        knows whether this batch is stored.

        Raises:
            Unavailable: nobody knows.
        """
        log = self._log
        if not log.may_have_evicted_producers:
            return
        with suppress(BatchError):  # what is wrong with a batch is said where it is appended
            producer_id = read_header(batch).producer_id
            if producer_id not in log.producers():
                raise Unavailable(
                    f"partition {log.topic}-{log.index} has forgotten producer {producer_id}, for "
                    "which it has too many: the message that was sent again is stored, or not"
                )

    async def find(self, batch: Buffer) -> SendReceipt | None:
        """Return where a batch is that its partition has refused.

        Returns:
            None: it is not stored.

        Raises:
            Unavailable: it was stored, and is not found.
            TopicsError, LedgerError, BatchError: the log cannot be read.
        """
        header = read_header(batch)
        entry = self._log.producers().get(header.producer_id)
        if entry is None or header.producer_epoch != entry.epoch:
            return None
        for each in entry.batches:
            if each.first_sequence == header.base_sequence:
                position = (await self._log.locate(each.base_offset)).position
                return SendReceipt(position, each.base_offset)
        if not _is_older(header, entry):
            return None
        wanted = header.producer_id, header.producer_epoch, header.base_sequence
        if wanted not in self._found:
            self._found.clear()
            oldest = await self._log.locate(entry.batches[0].base_offset)
            await self._search(header, oldest.position)
        receipt = self._found.get(wanted)
        if receipt is None:
            raise Unavailable(
                f"batch {header.base_sequence} of producer {header.producer_id} was stored before, "
                f"and is not among the {SEARCH_ENTRIES_MAX} entries that were searched"
            )
        return receipt

    async def _search(self, wanted: BatchHeader, end: Position) -> None:
        """Note the batches of a producer before a position, down to the one that is wanted."""
        ledger = self._log.managed_ledger
        producer = wanted.producer_id, wanted.producer_epoch
        for _ in range(SEARCH_ENTRIES_MAX // SEARCH_STEP_ENTRIES):
            start = end
            for _ in range(SEARCH_STEP_ENTRIES):
                start = ledger.previous_position(start)
            for position, buffer in reversed(
                await ledger.read_entries(start, SEARCH_STEP_ENTRIES, end)
            ):
                if position == end:
                    continue
                header = read_header(buffer)
                if (header.producer_id, header.producer_epoch) == producer:
                    receipt = SendReceipt(position, header.base_offset)
                    self._found[*producer, header.base_sequence] = receipt
                    if header.base_sequence == wanted.base_sequence:
                        return
            if start.entry_id < 0 or start == end:
                return
            end = start


def _is_older(header: BatchHeader, entry: ProducerEntry) -> bool:
    """Tell whether a batch comes before all that are remembered of its producer's epoch."""
    if not entry.batches:
        return False
    distance = (entry.batches[0].first_sequence - header.base_sequence) & SEQUENCE_MASK
    return 0 < distance <= SEQUENCE_MASK >> 1
