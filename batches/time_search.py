"""Time search: the record of a time in one batch.

Rule: records count from an offset on, in offset order; a record that cannot be read ends the batch.
Must not know: logs, indexes.
"""

from collections.abc import Generator
from contextlib import closing
from operator import attrgetter

from kledger.batches.buffers import Buffer
from kledger.batches.errors import CorruptBatch
from kledger.batches.pacing import Pause, no_pause
from kledger.batches.reader import RecordTime, iterate_times


def first_since(
    batch: Buffer, start_offset: int, timestamp: int, pause: Pause = no_pause
) -> RecordTime | None:
    """Return the first record whose time in ms is not before `timestamp`; None: there is none."""
    with closing(_times(batch, start_offset, pause)) as times:
        return next((each for each in times if each.timestamp >= timestamp), None)


def newest_since(batch: Buffer, start_offset: int, pause: Pause = no_pause) -> RecordTime | None:
    """Return the first of the records with the largest time; None: there are no records."""
    return max(_times(batch, start_offset, pause), key=attrgetter("timestamp"), default=None)


def _times(batch: Buffer, start_offset: int, pause: Pause) -> Generator[RecordTime, None, None]:
    try:
        for each in iterate_times(batch, pause=pause):
            if each.offset >= start_offset:
                yield each
    except CorruptBatch:
        return
