"""Read plan: which ranges of the log files to read for a list of entries.

Rule: adjacent entries are read together while the gap between them is small and the read bounded.
Must not know: files.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kledger.ledger.engine.index.index_keys import EntryLocation
from kledger.ledger.engine.log.frames import HEADER_SIZE

GAP_BYTES_MAX = 32 * 1024
"""Reading a gap of this size costs less than a second system call."""
READ_BYTES_MAX = 4 * 1024 * 1024


@dataclass(slots=True)
class ReadRange:
    """One read: the bytes from `start` to `end` of a file, and the entries inside."""

    file: int
    start: int
    end: int
    locations: list[EntryLocation]


def plan_reads(locations: Sequence[EntryLocation]) -> list[ReadRange]:
    """Combine the frames of entries, in the given order, into few reads."""
    read_ranges: list[ReadRange] = []
    last = ReadRange(-1, 0, 0, [])
    for location in locations:
        _, file, start, data_length = location
        end = start + HEADER_SIZE + data_length
        if (
            last.file == file
            and 0 <= start - last.end <= GAP_BYTES_MAX
            and end - last.start <= READ_BYTES_MAX
        ):
            last.end = end
            last.locations.append(location)
        else:
            last = ReadRange(file, start, end, [location])
            read_ranges.append(last)
    return read_ranges
