"""Producer state: which batches of which producers a partition has seen.

Rule: a producer's entry is a value; appending replaces it and returns the one before, so that a
failed append is undone by restoring that one, newest append first. The epoch of its coordinator is
beside it, as batches do not change it, and stays when a marker fails: who has decided once has
replaced all older coordinators. An unknown producer is admitted
at any sequence number: its entry may have expired. A marker that ends a transaction under a new
epoch makes the producer begin at 0 again.
Must not know: logs, clocks. Source: Kafka's ProducerStateManager and ProducerAppendInfo.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kledger.topics.errors import CoordinatorFenced, InvalidProducerEpoch, OutOfOrderSequence
from kledger.topics.partition.transaction_state import TransactionEnd

SEQUENCE_MASK = 0x7FFF_FFFF
WINDOW_BATCHES = 5
NO_TRANSACTION = -1
_EVICTED_PART = 16
_new_tuple = tuple.__new__  # a third of the cost of a class's own constructor


class BatchRange(NamedTuple):
    """One batch of a producer that was appended.

    Attributes:
        log_append_time_ms: the time in its result, -1 under CreateTime.
    """

    first_sequence: int
    last_sequence: int
    base_offset: int
    next_offset: int
    log_append_time_ms: int


class ProducerEntry(NamedTuple):
    """What is remembered of one producer: its epoch and its last five batches, oldest first.

    Attributes:
        batches: none after a marker that has raised the epoch.
        transaction_start: the first offset of its open transaction, NO_TRANSACTION without one.
    """

    epoch: int
    batches: tuple[BatchRange, ...]
    active_ms: int
    transaction_start: int = NO_TRANSACTION


def last_sequence(first_sequence: int, count: int) -> int:
    """Sequence number of the last of `count` records; 2^31-1 is followed by 0."""
    return (first_sequence + count - 1) & SEQUENCE_MASK


class ProducerTable:
    """All producers of one partition."""

    __slots__ = ("_count_max", "_entries", "_has_evicted", "coordinator_epochs", "expiration_ms")

    def __init__(self, *, expiration_ms: int, count_max: int) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self.expiration_ms = expiration_ms
        """How long an idle producer is remembered."""
        self.coordinator_epochs: dict[int, int] = {}
        """Of the coordinator that has ended a transaction last, by producer id, unless it is 0."""
        self._count_max = count_max
        self._has_evicted = False

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def may_have_evicted(self) -> bool:
        """Whether a producer may be missing before it has expired, because the table was full."""
        return self._has_evicted or len(self._entries) >= self._count_max - self._evicted_count

    def get(self, producer_id: int) -> ProducerEntry | None:
        """The entry of a producer, expired or not."""
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
        if entry is None or self._is_idle(entry, now_ms):
            return None
        batches = entry.batches
        if epoch == entry.epoch:
            expected = (batches[-1].last_sequence + 1) & SEQUENCE_MASK if batches else 0
            if first_sequence == expected:
                return None
            last = last_sequence(first_sequence, count)
            for each in batches:
                if each.first_sequence == first_sequence and each.last_sequence == last:
                    return each
            raise OutOfOrderSequence(
                f"base sequence {first_sequence}, expected {expected} (producer {producer_id},"
                f" epoch {epoch})"
            )
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

    def append(
        self,
        producer_id: int,
        epoch: int,
        batch: BatchRange,
        now_ms: int,
        transaction_start: int = NO_TRANSACTION,
    ) -> ProducerEntry | None:
        """Remember an admitted batch.

        Args:
            producer_id: of the batch.
            epoch: its epoch.
            batch: what was appended.
            now_ms: wall time.
            transaction_start: of the transaction that it belongs to.

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
            # Only consecutive batches are kept: a gap means that the producer had expired.
            if batches and batch[0] == (batches[-1][1] + 1) & SEQUENCE_MASK:
                window = (*batches[1 - WINDOW_BATCHES :], batch)
        entries[producer_id] = _new_tuple(ProducerEntry, (epoch, window, now_ms, transaction_start))
        return previous

    def admit_end(self, end: TransactionEnd) -> None:
        """Decide about the end of a transaction; nothing changes.

        Raises:
            InvalidProducerEpoch: a newer epoch of the producer has written.
            CoordinatorFenced: a newer coordinator has ended a transaction of the producer.
        """
        producer_id, epoch, _, coordinator_epoch = end
        entry = self._entries.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise InvalidProducerEpoch(
                f"marker of epoch {epoch}, expected at least {entry.epoch} (producer {producer_id})"
            )
        newest = self.coordinator_epochs.get(producer_id)
        if newest is not None and coordinator_epoch < newest:
            raise CoordinatorFenced(
                f"marker of coordinator epoch {coordinator_epoch}, expected at least {newest}"
                f" (producer {producer_id})"
            )

    def end_transaction(self, end: TransactionEnd, now_ms: int) -> ProducerEntry | None:
        """Remember an admitted end; returns as `append`."""
        producer_id, epoch, _, coordinator_epoch = end
        if coordinator_epoch > 0:
            self.coordinator_epochs[producer_id] = coordinator_epoch
        previous = self._entries.get(producer_id)
        batches = previous.batches if previous is not None and previous.epoch == epoch else ()
        if previous is None and len(self._entries) >= self._count_max:
            self._evict()
        self._entries[producer_id] = ProducerEntry(epoch, batches, now_ms)
        return previous

    def restore(self, producer_id: int, previous: ProducerEntry | None) -> None:
        """Undo the newest `append` of a producer."""
        if previous is None:
            self._entries.pop(producer_id, None)
            self.coordinator_epochs.pop(producer_id, None)
        else:
            self._entries[producer_id] = previous

    def expire(self, now_ms: int) -> int:
        """Forget producers that were idle for too long; return how many."""
        idle = [
            producer_id
            for producer_id, entry in self._entries.items()
            if self._is_idle(entry, now_ms)
        ]
        self._forget(idle)
        return len(idle)

    def _is_idle(self, entry: ProducerEntry, now_ms: int) -> bool:
        is_old = now_ms - entry.active_ms > self.expiration_ms
        return is_old and entry.transaction_start == NO_TRANSACTION

    def _evict(self) -> None:
        """Make room: the longest idle go, a sixteenth of the limit at a time.

        Those with an open transaction stay, beyond the limit if need be; the coordinator limits
        how many there are.
        """
        idle = (
            item for item in self._entries.items() if item[1].transaction_start == NO_TRANSACTION
        )
        self._has_evicted = True
        by_age = sorted(idle, key=lambda item: item[1].active_ms)
        self._forget(producer_id for producer_id, _ in by_age[: self._evicted_count])

    def _forget(self, producer_ids: Iterable[int]) -> None:
        for producer_id in producer_ids:
            del self._entries[producer_id]
            self.coordinator_epochs.pop(producer_id, None)

    @property
    def _evicted_count(self) -> int:
        return max(1, self._count_max // _EVICTED_PART)
