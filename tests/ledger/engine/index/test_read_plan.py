"""Which entries are read together."""

import pytest

from kledger.ledger.engine.index.index_keys import EntryLocation
from kledger.ledger.engine.index.read_plan import GAP_BYTES_MAX, READ_BYTES_MAX, plan_reads
from kledger.ledger.engine.log.frames import HEADER_SIZE

FRAME = HEADER_SIZE + 100


def location(entry_id: int, position: int, *, file: int = 1, size: int = 100) -> EntryLocation:
    return EntryLocation(entry_id, file, position, size)


def shape(*locations: EntryLocation) -> list[tuple[int, int, int, int]]:
    """Return file, start, end and number of entries of each span."""
    return [
        (each.file, each.start, each.end, len(each.locations)) for each in plan_reads(locations)
    ]


def test_nothing_is_no_read() -> None:
    assert [] == shape()


def test_adjacent_entries_are_one_read() -> None:
    assert [(1, 0, 3 * FRAME, 3)] == shape(*(location(n, n * FRAME) for n in range(3)))


@pytest.mark.parametrize(
    ("gap", "spans"), [(0, 1), (1, 1), (GAP_BYTES_MAX, 1), (GAP_BYTES_MAX + 1, 2)]
)
def test_gap_decides(gap: int, spans: int) -> None:
    assert spans == len(shape(location(0, 0), location(1, FRAME + gap)))


def test_another_file_or_a_lower_position_begins_a_new_read() -> None:
    assert 2 == len(shape(location(0, 0), location(1, FRAME, file=2)))
    assert 2 == len(shape(location(0, FRAME), location(1, 0)))


def test_reads_are_bounded() -> None:
    size = READ_BYTES_MAX // 2
    frame = size + HEADER_SIZE
    spans = plan_reads([location(n, n * frame, size=size) for n in range(4)])
    assert [1, 1, 1, 1] == [len(span.locations) for span in spans]
    huge = plan_reads([location(0, 0, size=2 * READ_BYTES_MAX)])
    assert 2 * READ_BYTES_MAX + HEADER_SIZE == huge[0].end
