"""The index bytes, byte by byte; that Kafka's own tools agree is checked in compat_tests."""

from struct import iter_unpack

from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.header import BatchHeader, read_header
from kledger.batches.segment_index import POSITION_MAX, RELATIVE_OFFSET_MAX, SegmentIndex


def header(offset: int, count: int = 1, *, time: int = 1000, size: int = 100) -> BatchHeader:
    value = bytes(size - 61 - 10)
    batch = build_batch([NewRecord(value, timestamp=time)] * count, base_offset=offset)
    return read_header(batch)._replace(batch_length=size - 12)


def offsets(index: SegmentIndex) -> list[tuple[int, ...]]:
    return list(iter_unpack(">ii", index.offsets))


def times(index: SegmentIndex) -> list[tuple[int, ...]]:
    return list(iter_unpack(">qi", index.times))


def test_bytes_are_kafkas() -> None:
    index = SegmentIndex(70, interval_bytes=150)
    for number in range(4):
        index.add(header(70 + 2 * number, 2, time=500 + number))
    index.end()
    assert bytes.fromhex("00000005 000000c8") == index.offsets
    assert bytes.fromhex("00000000000001f6 00000005 00000000000001f7 00000007") == index.times


def test_an_entry_comes_before_the_batch_after_the_interval() -> None:
    index = SegmentIndex(0, interval_bytes=100)
    for number in range(6):
        index.add(header(number, time=number))
    assert [(2, 200), (4, 400)] == offsets(index), "exactly the interval is not more than it"
    assert 600 == index.size


def test_times_only_rise_and_name_the_batch_of_the_largest() -> None:
    index = SegmentIndex(0, interval_bytes=1)
    for number, time in enumerate([10, 30, 20, 30, 40, 5]):
        index.add(header(number, time=time))
    index.end()
    assert [(30, 1), (40, 4)] == times(index)
    assert [1, 2, 3, 4, 5] == [offset for offset, _ in offsets(index)]


def test_batches_without_a_time_have_no_time_entry() -> None:
    index = SegmentIndex(0)
    index.add(header(0, time=-1))
    index.end()
    assert b"" == index.times


def test_room() -> None:
    index = SegmentIndex(10)
    large = header(10, size=500)
    assert index.has_room(large, 200), "the first batch always has room"
    index.add(large)
    assert index.has_room(header(11), 600)
    assert not index.has_room(header(11), 599)
    assert index.has_room(header(10 + RELATIVE_OFFSET_MAX), 1000)
    assert not index.has_room(header(11 + RELATIVE_OFFSET_MAX), 1000)
    index.size = POSITION_MAX - 50
    assert not index.has_room(header(12), 1 << 40)
