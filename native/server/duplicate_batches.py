"""DuplicateBatches: finds the stored copy of a resent batch that the partition no longer remembers.

Rule: a partition remembers the last five batches of a producer, and a native client may have more
than five in flight. Earlier ones are searched in the log, backwards from the oldest remembered one
and within a limit; other batches of the producer that are found on the way answer later calls.
Must not know: links, clients.
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
"""Entries that are searched; batches that were in flight together lie close to each other."""
SEARCH_STEP_ENTRIES = 100
"""Entries of one read."""


class DuplicateBatches:
    """Answers the resent batches of one link."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._found: dict[tuple[int, int, int], SendReceipt] = {}  # by producer id, epoch, sequence

    def check_known(self, batch: Buffer) -> None:
        """Refuse a resent batch if the partition may have evicted its producer.

        A missing producer has written nothing recently, unless it was evicted; then the server
        cannot tell whether this batch is stored.

        Raises:
            Unavailable: the producer may have been evicted.
        """
        log = self._log
        if not log.may_have_evicted_producers:
            return
        with suppress(BatchError):  # the append refuses a wrong batch
            producer_id = read_header(batch).producer_id
            if producer_id not in log.producers():
                raise Unavailable(
                    f"partition {log.topic}-{log.index} has forgotten producer {producer_id}, for "
                    "which it has too many: the message that was sent again is stored, or not"
                )

    async def find(self, batch: Buffer) -> SendReceipt | None:
        """Return the receipt of a batch that its partition has refused.

        Returns:
            None: it is not stored.

        Raises:
            Unavailable: it was stored, but is not found.
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
        """Collect the batches of a producer before a position, back to the wanted one."""
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
    """Return whether a batch is older than all remembered ones of its producer's epoch."""
    if not entry.batches:
        return False
    distance = (entry.batches[0].first_sequence - header.base_sequence) & SEQUENCE_MASK
    return 0 < distance <= SEQUENCE_MASK >> 1
