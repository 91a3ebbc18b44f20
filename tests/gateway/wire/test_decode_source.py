"""What the decode functions look like, and kinds of fields that no API served now has."""

from uuid import UUID

import pytest

from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.decode_source import _DecoderWriter, compile_decoder
from kledger.gateway.wire.errors import MalformedMessage
from kledger.gateway.wire.messages.k01_fetch import FetchRequest
from kledger.gateway.wire.schema import (
    ApiMessage,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    Struct,
    field,
)


class Point(Struct):
    x: Int8 = 0
    y: Int8 = 0


class Strange(ApiMessage, key=0, versions="0-1", flexible="1+"):
    """Shapes that are allowed and that no message served now has."""

    first: Int16 = 0
    point: Point = field(default_factory=Point)
    last: Int64 = 0
    bools: list[bool] = []
    uuids: list[UUID] = []
    blobs: list[bytes] = []
    nested: list[list[Int32]] = []
    raw: bytes | None = None
    records: Records | None = None
    names: list[str] | None = field(versions="1+", tag=3, default=None)
    topic_id: UUID = field(versions="1+", tag=1, default=UUID(int=5))
    note: bytes = field(versions="1+", tag=2, default=b"-")


STRANGE = Strange(
    first=-2,
    point=Point(x=3, y=-4),
    last=2**40,
    bools=[True, False],
    uuids=[UUID(int=1), UUID(int=2**128 - 1)],
    blobs=[b"", b"b" * 200],
    nested=[[], [1, 2]],
    raw=b"raw",
    records=b"records",
)


def lines(cls: type[ApiMessage], version: int) -> str:
    writer = _DecoderWriter(cls, version)
    writer.finish()
    return "\n".join(writer.out.lines)


def test_run_of_fixed_fields_is_one_read() -> None:
    """Six fields and the tag count of a Fetch partition are one unpack."""
    found = [line for line in lines(FetchRequest, 12).splitlines() if ".fetch_offset" in line]
    assert 1 == len(found)
    assert 7 == found[0].partition(" = ")[0].count(",") + 1
    assert ", n = unpack" in found[0]


@pytest.mark.parametrize("version", [0, 1])
def test_strange_shapes_round_trip(version: int) -> None:
    body = encode(STRANGE, version)
    assert STRANGE == decode(Strange, version, body)
    assert STRANGE == compile_decoder(Strange, version)(memoryview(body), 0)


@pytest.mark.parametrize("version", [0, 1])
def test_strange_shapes_cut_at_every_byte(version: int) -> None:
    body = encode(STRANGE, version)
    for size in range(len(body)):
        with pytest.raises(MalformedMessage):
            decode(Strange, version, body[:size])


def test_tags_with_values() -> None:
    tagged = Strange(names=["a", "b"], topic_id=UUID(int=9), note=b"")
    body = encode(tagged, 1)
    assert tagged == decode(Strange, 1, body)
    assert body.endswith(
        b"\x03" + b"\x01\x10" + UUID(int=9).bytes + b"\x02\x01\x01" + b"\x03\x05\x03\x02a\x02b"
    )


def test_bytes_next_to_records_are_copied() -> None:
    body = bytearray(encode(STRANGE, 1))
    read = decode(Strange, 1, body)
    assert isinstance(read.records, memoryview)
    assert bytes is type(read.raw)
    assert [bytes, bytes] == [type(blob) for blob in read.blobs]


def test_failing_field_inside_a_run_is_named() -> None:
    """The three fields are one unpack; the bytes end in the second."""
    with pytest.raises(MalformedMessage) as caught:
        decode(Strange, 0, b"\x00\x01\x02")
    assert ("point.y", 3, "int8") == (
        caught.value.field,
        caught.value.position,
        caught.value.expected,
    )
