"""Time search: the record of a time in one batch, and the smallest time of several.

Rule: records count from an offset on, in offset order; a record that cannot be read ends the batch
in which a record is searched.
Must not know: logs, indexes.
"""

from collections.abc import Generator
from contextlib import closing
from operator import attrgetter

from kledger.batches.buffers import Buffer
from kledger.batches.errors import BatchError, CorruptBatch
from kledger.batches.pacing import Pause, no_pause
from kledger.batches.reader import RecordTime, iterate_batches, iterate_times


def first_since(
    batch: Buffer, start_offset: int, timestamp: int, pause: Pause = no_pause
) -> RecordTime | None:
    """Return the first record whose time in ms is not before `timestamp`; None: there is none."""
    with closing(_times(batch, start_offset, pause)) as times:
        return next((each for each in times if each.timestamp >= timestamp), None)


def newest_since(batch: Buffer, start_offset: int, pause: Pause = no_pause) -> RecordTime | None:
    """Return the first of the records with the largest time; None: there are no records."""
    return max(_times(batch, start_offset, pause), key=attrgetter("timestamp"), default=None)


def oldest_of(batches: Buffer, pause: Pause = no_pause) -> int | None:
    """Return the smallest time of the records of several batches; None: there are no records.

    Of a batch whose records cannot be read, the time of the first one counts, which is in its
    header.
    """
    oldest: int | None = None
    for header, batch in iterate_batches(batches):
        found: int | None
        if header.is_log_append_time or header.record_count == 1:
            found = header.max_timestamp
        else:
            try:
                times = (each.timestamp for each in iterate_times(batch, pause=pause))
                found = min(times, default=None)
            except BatchError:
                found = header.base_timestamp
        if found is not None and (oldest is None or found < oldest):
            oldest = found
    return oldest


def oldest_by_headers(batches: Buffer) -> int | None:
    """Return the smallest time of the first records of batches, without reading any record."""
    times = (
        header.max_timestamp if header.is_log_append_time else header.base_timestamp
        for header, _ in iterate_batches(batches)
    )
    return min(times, default=None)


def _times(batch: Buffer, start_offset: int, pause: Pause) -> Generator[RecordTime, None, None]:
    try:
        for each in iterate_times(batch, pause=pause):
            if each.offset >= start_offset:
                yield each
    except CorruptBatch:
        return
