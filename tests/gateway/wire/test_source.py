"""The text of a function under construction."""

from kledger.gateway.wire.messages.k00_produce import ProduceRequest, ProduceResponse
from kledger.gateway.wire.messages.k01_fetch import FetchPartition, FetchResponse
from kledger.gateway.wire.schema import SCALARS, WireType, fields_of
from kledger.gateway.wire.source import (
    FieldLocation,
    FunctionSource,
    fields_in,
    has_records,
    size_min,
)


def test_lines_blocks_and_constants() -> None:
    out = FunctionSource("def twice(x):")
    limit = out.constant("LIMIT", 40)
    with out.block(f"if x > {limit}:", FieldLocation("x", "a number")):
        out.add("return None")
    out.add("return x * 2")
    twice = out.compile("twice", "<test>")
    assert (6, None) == (twice(3), twice(41))
    assert {2: [FieldLocation("x", "a number")]} == out.locations


def test_names_are_not_used_twice() -> None:
    out = FunctionSource("def f():")
    assert out.fresh("a") != out.fresh("a")
    value = object()
    assert out.constant("C", value) == out.constant("C", value)
    assert out.constant("C", object()) != out.constant("C", value)


def test_fields_are_split_by_version() -> None:
    plain, tagged, absent = fields_in(FetchPartition, 17)
    assert "partition_max_bytes" == plain[-1].name
    assert ["replica_directory_id"] == [one.name for one in tagged]
    assert ["high_watermark"] == [one.name for one in absent]
    assert [0, 1] == [one.tag for one in fields_in(FetchPartition, 18)[1]]


def test_smallest_size_of_a_value() -> None:
    def smallest(name: str, *, is_flexible: bool) -> int:
        return size_min(SCALARS[name], 0, is_flexible=is_flexible, is_nullable=False)

    assert (8, 16) == (smallest("int64", is_flexible=True), smallest("uuid", is_flexible=False))
    assert (1, 2) == (smallest("string", is_flexible=True), smallest("string", is_flexible=False))
    assert (1, 4) == (smallest("bytes", is_flexible=True), smallest("bytes", is_flexible=False))
    array = WireType("array", element=SCALARS["int8"])
    assert 4 == size_min(array, 0, is_flexible=False, is_nullable=True)
    partition = WireType("struct", struct=FetchPartition)
    assert 33 == size_min(partition, 12, is_flexible=True, is_nullable=False)
    assert 16 == size_min(partition, 4, is_flexible=False, is_nullable=False)
    assert 1 == size_min(partition, 12, is_flexible=True, is_nullable=True)


def test_records_are_found_at_any_depth() -> None:
    assert has_records(ProduceRequest)
    assert has_records(FetchResponse)
    assert not has_records(ProduceResponse)
    assert not has_records(FetchPartition)
    assert fields_of(ProduceRequest)
