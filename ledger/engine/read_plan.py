"""Read plan: which parts of the log files to read for a run of entries.

Rule: neighbours become one read as long as what lies between them is small and the read is bounded.
Must not know: files.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kledger.ledger.engine.frames import HEADER_SIZE
from kledger.ledger.engine.index_keys import EntryPlace

GAP_BYTES_MAX = 32 * 1024
"""Reading this much for nothing costs less than a second call."""
SPAN_BYTES_MAX = 4 * 1024 * 1024


@dataclass(slots=True)
class Span:
    """One read: the bytes from `start` to `end` of a file, and the entries inside."""

    file: int
    start: int
    end: int
    places: list[EntryPlace]


def plan_spans(places: Sequence[EntryPlace]) -> list[Span]:
    """Join the frames of entries, in the order given, into as few reads as is sensible."""
    spans: list[Span] = []
    for place in places:
        start, end = place.position, place.position + HEADER_SIZE + place.data_length
        last = spans[-1] if spans else None
        if (
            last is not None
            and last.file == place.file
            and 0 <= start - last.end <= GAP_BYTES_MAX
            and end - last.start <= SPAN_BYTES_MAX
        ):
            last.end = end
            last.places.append(place)
        else:
            spans.append(Span(place.file, start, end, [place]))
    return spans
