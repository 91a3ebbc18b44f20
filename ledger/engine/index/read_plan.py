"""Read plan: which parts of the log files to read for a run of entries.

Rule: neighbours become one read as long as what lies between them is small and the read is bounded.
Must not know: files.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kledger.ledger.engine.index.index_keys import EntryLocation
from kledger.ledger.engine.log.frames import HEADER_SIZE

GAP_BYTES_MAX = 32 * 1024
"""Reading this much for nothing costs less than a second call."""
READ_BYTES_MAX = 4 * 1024 * 1024


@dataclass(slots=True)
class ReadRange:
    """One read: the bytes from `start` to `end` of a file, and the entries inside."""

    file: int
    start: int
    end: int
    locations: list[EntryLocation]


def plan_reads(locations: Sequence[EntryLocation]) -> list[ReadRange]:
    """Join the frames of entries, in the order given, into as few reads as is sensible."""
    read_ranges: list[ReadRange] = []
    for location in locations:
        start, end = location.position, location.position + HEADER_SIZE + location.data_length
        last = read_ranges[-1] if read_ranges else None
        if (
            last is not None
            and last.file == location.file
            and 0 <= start - last.end <= GAP_BYTES_MAX
            and end - last.start <= READ_BYTES_MAX
        ):
            last.end = end
            last.locations.append(location)
        else:
            read_ranges.append(ReadRange(location.file, start, end, [location]))
    return read_ranges
