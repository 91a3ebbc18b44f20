"""Producer state: which batches of which producers a partition has seen.

Rule: a producer's entry is a value; appending replaces it and hands back the one before, so that a
failed append is undone by putting that one back, newest append first. What is not known is let in:
a producer whose entry expired or never was may begin at any sequence number.
Must not know: logs, clocks; the time is handed in. Source: Kafka's ProducerStateManager and
ProducerAppendInfo, without their transactions.
"""

from collections.abc import Iterable
from typing import NamedTuple

from topics.errors import InvalidProducerEpoch, OutOfOrderSequence

SEQUENCE_MASK = 0x7FFF_FFFF
WINDOW_BATCHES = 5
_EVICTED_PART = 16
_new_tuple = tuple.__new__  # a third of the cost of a class's own constructor


class BatchRange(NamedTuple):
    """One batch of a producer that was appended.

    Attributes:
        log_append_time_ms: time that was answered for it, -1 under CreateTime.
    """

    first_sequence: int
    last_sequence: int
    base_offset: int
    next_offset: int
    log_append_time_ms: int


class ProducerEntry(NamedTuple):
    """What is remembered of one producer: its epoch and its last five batches, oldest first."""

    epoch: int
    batches: tuple[BatchRange, ...]
    active_ms: int


def last_sequence(first_sequence: int, count: int) -> int:
    """Sequence number of the last of `count` records; behind 2^31-1 comes 0."""
    return (first_sequence + count - 1) & SEQUENCE_MASK


class ProducerTable:
    """All producers of one partition."""

    __slots__ = ("_count_max", "_entries", "_expiration_ms")

    def __init__(self, *, expiration_ms: int, count_max: int) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self._expiration_ms = expiration_ms
        self._count_max = count_max

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: int) -> ProducerEntry | None:
        """What is remembered of a producer, expired or not."""
        return self._entries.get(producer_id)

    def items(self) -> Iterable[tuple[int, ProducerEntry]]:
        """All producers."""
        return self._entries.items()

    def admit(
        self, producer_id: int, epoch: int, first_sequence: int, count: int, now_ms: int
    ) -> BatchRange | None:
        """Decide about a batch; nothing changes.

        Returns:
            None: append it. A range: it was appended before, there.

        Raises:
            InvalidProducerEpoch: a newer epoch has written.
            OutOfOrderSequence: it follows none of the remembered batches.
        """
        entry = self._entries.get(producer_id)
        if entry is None or now_ms - entry.active_ms > self._expiration_ms:
            return None
        batches = entry.batches
        if epoch == entry.epoch:
            if not batches or first_sequence == (batches[-1].last_sequence + 1) & SEQUENCE_MASK:
                return None
            return self._find_duplicate(producer_id, entry, first_sequence, count)
        if epoch < entry.epoch:
            raise InvalidProducerEpoch(
                f"epoch {epoch}, expected at least {entry.epoch} (producer {producer_id})"
            )
        if first_sequence != 0:
            raise OutOfOrderSequence(
                f"base sequence {first_sequence}, expected 0 in the new epoch {epoch}"
                f" (producer {producer_id})"
            )
        return None

    @staticmethod
    def _find_duplicate(
        producer_id: int, entry: ProducerEntry, first_sequence: int, count: int
    ) -> BatchRange:
        last = last_sequence(first_sequence, count)
        for each in entry.batches:
            if each.first_sequence == first_sequence and each.last_sequence == last:
                return each
        expected = (entry.batches[-1].last_sequence + 1) & SEQUENCE_MASK
        raise OutOfOrderSequence(
            f"base sequence {first_sequence}, expected {expected} (producer {producer_id},"
            f" epoch {entry.epoch})"
        )

    def append(
        self, producer_id: int, epoch: int, batch: BatchRange, now_ms: int
    ) -> ProducerEntry | None:
        """Remember an admitted batch.

        Returns:
            The entry as it was, for `restore`; None when there was none.
        """
        entries = self._entries
        previous = entries.get(producer_id)
        window: tuple[BatchRange, ...] = (batch,)
        if previous is None:
            if len(entries) >= self._count_max:
                self._evict()
        elif previous.epoch == epoch:
            batches = previous.batches
            # Only batches that join up are kept: behind a gap the producer had been forgotten.
            if batches and batch[0] == (batches[-1][1] + 1) & SEQUENCE_MASK:
                window = (*batches[1 - WINDOW_BATCHES :], batch)
        entries[producer_id] = _new_tuple(ProducerEntry, (epoch, window, now_ms))
        return previous

    def restore(self, producer_id: int, previous: ProducerEntry | None) -> None:
        """Undo the newest `append` of a producer."""
        if previous is None:
            self._entries.pop(producer_id, None)
        else:
            self._entries[producer_id] = previous

    def expire(self, now_ms: int) -> int:
        """Forget producers that were idle for too long; return how many."""
        idle = [
            producer_id
            for producer_id, entry in self._entries.items()
            if now_ms - entry.active_ms > self._expiration_ms
        ]
        for producer_id in idle:
            del self._entries[producer_id]
        return len(idle)

    def _evict(self) -> None:
        """Make room: the longest idle go, a sixteenth of the limit at a time."""
        by_age = sorted(self._entries.items(), key=lambda item: item[1].active_ms)
        for producer_id, _ in by_age[: max(1, self._count_max // _EVICTED_PART)]:
            del self._entries[producer_id]
