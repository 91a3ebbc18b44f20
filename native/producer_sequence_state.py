"""Producer sequence: the numbers of one idempotent producer in one partition.

Rule: every batch takes the numbers behind those of the batch before; after a batch that was not
stored a new epoch begins at 0, so that the partition refuses whatever is still on its way from
before. A producer id is drawn and not given out by a server: it stays this producer's own also
when the server is replaced by one that has given out other ids.
Must not know: links, what is in a batch.
"""

from kledger.batches.builder import BatchProducer

PRODUCER_ID_COUNT = 1 << 62
"""Ids given out by a server count from 0; one that is drawn is none of them."""
EPOCH_MAX = 0x7FFF
SEQUENCE_MASK = 0x7FFF_FFFF


class ProducerSequence:
    """Where a producer stands in one partition."""

    __slots__ = ("_epoch", "_next", "_producer_id")

    def __init__(self, producer_id: int) -> None:
        self._producer_id = producer_id
        self._epoch = 0
        self._next = 0

    @property
    def identity(self) -> tuple[int, int]:
        """Producer id and epoch."""
        return self._producer_id, self._epoch

    def take(self, count: int) -> BatchProducer:
        """Return the numbers of the next batch, which has so many records."""
        numbers = BatchProducer(self._producer_id, self._epoch, self._next)
        self._next = (self._next + count) & SEQUENCE_MASK
        return numbers

    def begin_epoch(self, fresh_id: int) -> None:
        """Count from 0 again, under the next epoch; of a fresh id when this one has no more."""
        self._next = 0
        self._epoch += 1
        if self._epoch > EPOCH_MAX:
            self._producer_id = fresh_id
            self._epoch = 0
