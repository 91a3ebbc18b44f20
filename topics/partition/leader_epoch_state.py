"""Leader epochs of a partition: under which epoch which of its offsets were written.

Rule: an epoch begins at the end of the log and ends where the next one begins; that never changes,
as no leader cuts off what another one has stored. An epoch without records is forgotten when the
next one begins at the same offset. A log of which nothing is known was written under epoch 0, and
so was what lies before the first epoch that is known. Batches carry their epoch, so the history can
be made again from the log.
Source: Kafka's LeaderEpochFileCache (KIP-101, KIP-320).
Must not know: the leader, where it is stored.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

FIRST_EPOCH = 0
"""Of a log that has had one leader, and of what lies before the first known epoch."""
EPOCHS_MAX = 1_000
"""Of one partition, 12 bytes each in its checkpoint; one more forgets the oldest."""


class EpochStart(NamedTuple):
    """An epoch and the offset at which it begins."""

    epoch: int
    start_offset: int


class LeaderEpochHistory:
    """The epochs of one partition, ascending, as are their starts."""

    __slots__ = ("_starts", "latest")

    def __init__(self, starts: Iterable[EpochStart] = ()) -> None:
        self._starts = list(starts)
        self.latest = self._starts[-1].epoch if self._starts else FIRST_EPOCH
        """Under which the log is written now, or was written last."""

    def begin(self, epoch: int, offset: int) -> None:
        """Begin an epoch at the end of the log; nothing if it is no newer than the latest one."""
        if epoch <= self.latest:
            return
        starts = self._starts
        while starts and starts[-1].start_offset >= offset:
            starts.pop()
        starts.append(EpochStart(epoch, offset))
        del starts[:-EPOCHS_MAX]
        self.latest = epoch

    def kept(self, log_start_offset: int) -> tuple[EpochStart, ...]:
        """Return what must be stored: the epochs of offsets from the log start on, and the latest.

        The first may begin before the log start.
        """
        return tuple(self._starts[max(self._row(log_start_offset), 0) :])

    def epoch_of(self, offset: int) -> int:
        """Return the epoch of an offset; at the end of the log the latest one."""
        row = self._row(offset)
        return FIRST_EPOCH if row < 0 else self._starts[row].epoch

    def end_of(
        self, epoch: int, *, log_start_offset: int, end_offset: int
    ) -> tuple[int, int] | None:
        """Return where an epoch ends in a log, as OffsetForLeaderEpoch does.

        Args:
            epoch: that is asked for.
            log_start_offset: of the log.
            end_offset: of the log.

        Returns:
            An epoch and the offset after its last record, in four cases: the latest epoch ends with
            the log; a known one, or one between two, ends where the next known one begins, and of
            these the epoch is the last one known up to there; one before all that the log has ends
            where the log begins; a newer one is None.
        """
        if epoch >= self.latest:
            return (epoch, end_offset) if epoch == self.latest else None
        known = self._known(log_start_offset)
        following = next(each for each in known if each.epoch > epoch)
        before = [each.epoch for each in known if each.epoch <= epoch]
        return (before[-1] if before else epoch), following.start_offset

    def _known(self, log_start_offset: int) -> list[EpochStart]:
        """Return the epochs of what the log has, the first one cut off at its start."""
        row = self._row(log_start_offset)
        first = EpochStart(self.epoch_of(log_start_offset), log_start_offset)
        return [first, *self._starts[row + 1 :]]

    def _row(self, offset: int) -> int:
        return bisect_right(self._starts, offset, key=lambda each: each.start_offset) - 1
