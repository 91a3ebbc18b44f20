"""Columns say the same as the records that the reader of batches yields one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.compression import Codec
from kledger.batches.errors import BatchError, CorruptBatch
from kledger.batches.header import BATCH_OVERHEAD, read_header
from kledger.batches.reader import iterate_batches, iterate_records
from kledger.spark import record_columns
from kledger.spark.record_columns import RecordColumns, decode_batches

parts = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=5), parts), max_size=3)
records = st.builds(
    NewRecord,
    value=parts,
    key=parts,
    timestamp=st.integers(-(2**40), 2**45),
    headers=headers,
    attributes=st.just(0),
)
Row = tuple[object, ...]


def rows_of(columns: RecordColumns) -> list[Row]:
    headers = None if columns.headers is None else columns.headers.to_pylist()
    return [
        (offset, timestamp, key, value, headers[row] if headers else None)
        for row, (offset, timestamp, key, value) in enumerate(
            zip(
                columns.offset.tolist(),
                columns.timestamp_ms.tolist(),
                columns.key.to_pylist(),
                columns.value.to_pylist(),
                strict=True,
            )
        )
    ]


def decoded(
    data: bytes, *, start: int = 0, end: int = 1 << 40, with_headers: bool = True
) -> list[Row]:
    """Decode with batches side by side, and one by one; both are the same, or both are errors."""
    results: list[list[Row] | str] = []
    for least in (0, 1 << 30):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(record_columns, "SIDE_BY_SIDE_MIN", least)
            batches = iterate_batches(data)
            try:
                found = decode_batches(batches, start=start, end=end, with_headers=with_headers)
                results.append([row for columns in found for row in rows_of(columns)])
            except CorruptBatch:
                results.append("corrupt")
    assert results[0] == results[1]
    if isinstance(results[0], str):
        raise CorruptBatch(results[0])
    return results[0]


def one_by_one(data: bytes) -> list[Row]:
    return [
        (
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            [{"key": name, "value": value} for name, value in record.headers] or None,
        )
        for _, batch in iterate_batches(data)
        for record in iterate_records(batch)
    ]


@given(st.lists(st.tuples(st.lists(records, min_size=1, max_size=20), st.sampled_from(Codec))))
def test_columns_are_what_the_reader_yields(
    batches: list[tuple[list[NewRecord], Codec]],
) -> None:
    data, offset = b"", 7
    for content, codec in batches:
        data += build_batch(content, codec=codec, base_offset=offset)
        offset += len(content) + 3  # as if some at the end were compacted
    assert one_by_one(data) == decoded(data)


def test_long_varints_are_read() -> None:
    content = [
        NewRecord(b"x" * size, b"k" * size, timestamp=number << 30, headers=[("h", b"v" * size)])
        for number, size in enumerate((0, 1, 12, 13, 63, 64, 8191, 8192, 1_100_000))
    ]
    data = bytes(build_batch(content))
    assert one_by_one(data) == decoded(data)


def test_only_offsets_of_the_range_are_decoded() -> None:
    data = bytes(build_batch([NewRecord(b"%d" % n) for n in range(10)], base_offset=100))
    assert [(n, b"%d" % (n - 100)) for n in (103, 104)] == [
        (row[0], row[3]) for row in decoded(data, start=103, end=105)
    ]
    assert [] == decoded(data, start=110)


def test_append_time_holds_for_every_record() -> None:
    data = bytes(build_batch([NewRecord(b"a", timestamp=5)] * 3, log_append_time_ms=77))
    (columns,) = decode_batches(iterate_batches(data), start=0, end=9, with_headers=False)
    assert [77, 77, 77] == columns.timestamp_ms.tolist()
    assert [1, 1, 1] == columns.timestamp_type.tolist()
    assert [0, 1, 2] == columns.batch_index.tolist()
    assert columns.headers is None


@given(st.data())
def test_damage_that_no_checksum_found_is_an_error_or_other_records(data: st.DataObject) -> None:
    batch = build_batch([NewRecord(b"v" * n, b"k", headers=[("h", b"x")]) for n in range(1, 40, 9)])
    at = data.draw(st.integers(BATCH_OVERHEAD, len(batch) - 1))
    batch[at] = data.draw(st.integers(0, 255))
    try:
        decoded(bytes(batch))
    except BatchError:
        return
    assert len(decoded(bytes(batch))) <= read_header(batch).record_count


@pytest.mark.parametrize("missing", [1, 2, 5])
def test_a_body_that_ends_early_is_corrupt(missing: int) -> None:
    whole = build_batch([NewRecord(b"value", b"key")] * 2)
    cut = build_batch([NewRecord(b"value", b"key")] * 2)[: len(whole) - missing]
    header = read_header(whole)._replace(batch_length=len(cut) - 12)
    with pytest.raises(CorruptBatch):
        list(decode_batches([(header, memoryview(cut))], start=0, end=9, with_headers=False))


@pytest.mark.parametrize("count", [-1, 1 << 30])
def test_a_count_that_no_body_can_hold_takes_no_memory(count: int) -> None:
    whole = build_batch([NewRecord(b"value", b"key")] * 2)
    header = read_header(whole)._replace(record_count=count)
    with pytest.raises(CorruptBatch, match=f"{count} records"):
        list(decode_batches([(header, memoryview(whole))], start=0, end=9, with_headers=False))
