"""ProducerSequence: the sequence numbers of one idempotent producer in one partition.

Rule: the sequence of a batch continues that of the batch before. After a batch that was not stored,
a new epoch begins at 0, so that the partition refuses earlier batches that are still in flight. The
client draws the producer id at random, so it stays unique when another server takes over.
Must not know: links, the content of a batch.
"""

from kledger.batches.builder import BatchProducer

PRODUCER_ID_COUNT = 1 << 62
"""Random ids are below it. Servers assign ids from 0 upwards, so a collision is unlikely."""
EPOCH_MAX = 0x7FFF
SEQUENCE_MASK = 0x7FFF_FFFF


class ProducerSequence:
    """The next sequence number, the epoch and the id of a producer in one partition."""

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
        """Return the sequence of the next batch, which has `count` records."""
        numbers = BatchProducer(self._producer_id, self._epoch, self._next)
        self._next = (self._next + count) & SEQUENCE_MASK
        return numbers

    def begin_epoch(self, fresh_id: int) -> None:
        """Count from 0 in the next epoch; after the last epoch, with `fresh_id`."""
        self._next = 0
        self._epoch += 1
        if self._epoch > EPOCH_MAX:
            self._producer_id = fresh_id
            self._epoch = 0
