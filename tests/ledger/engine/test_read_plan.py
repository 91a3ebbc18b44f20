"""Which reads become one."""

import pytest

from kledger.ledger.engine.frames import HEADER_SIZE
from kledger.ledger.engine.index_keys import EntryPlace
from kledger.ledger.engine.read_plan import GAP_BYTES_MAX, SPAN_BYTES_MAX, plan_spans

FRAME = HEADER_SIZE + 100


def place(entry_id: int, position: int, *, file: int = 1, size: int = 100) -> EntryPlace:
    return EntryPlace(entry_id, file, position, size)


def shape(*places: EntryPlace) -> list[tuple[int, int, int, int]]:
    """Return file, start, end and number of entries of each span."""
    return [(each.file, each.start, each.end, len(each.places)) for each in plan_spans(places)]


def test_nothing_is_no_read() -> None:
    assert [] == shape()


def test_neighbours_are_one_read() -> None:
    assert [(1, 0, 3 * FRAME, 3)] == shape(*(place(n, n * FRAME) for n in range(3)))


@pytest.mark.parametrize(
    ("gap", "spans"), [(0, 1), (1, 1), (GAP_BYTES_MAX, 1), (GAP_BYTES_MAX + 1, 2)]
)
def test_gap_decides(gap: int, spans: int) -> None:
    assert spans == len(shape(place(0, 0), place(1, FRAME + gap)))


def test_files_and_steps_back_divide() -> None:
    assert 2 == len(shape(place(0, 0), place(1, FRAME, file=2)))
    assert 2 == len(shape(place(0, FRAME), place(1, 0)))


def test_reads_are_bounded() -> None:
    size = SPAN_BYTES_MAX // 2
    frame = size + HEADER_SIZE
    spans = plan_spans([place(n, n * frame, size=size) for n in range(4)])
    assert [1, 1, 1, 1] == [len(span.places) for span in spans]
    huge = plan_spans([place(0, 0, size=2 * SPAN_BYTES_MAX)])
    assert 2 * SPAN_BYTES_MAX + HEADER_SIZE == huge[0].end
