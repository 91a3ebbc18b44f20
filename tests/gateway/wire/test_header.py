"""Request and response headers."""

from typing import Any

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2
from kio.serial import entity_reader

from kledger.gateway.wire.errors import MalformedMessage
from kledger.gateway.wire.header import (
    FLEXIBLE_SINCE,
    NEVER,
    RequestHeader,
    decode_request_header,
    encode_request_header,
    is_flexible,
    response_body_start,
    response_prefix,
)
from tests.gateway.wire.facts import bounds, definitions


def test_first_flexible_versions_are_those_of_kafka() -> None:
    facts = {
        one["apiKey"]: NEVER
        if one["flexibleVersions"] == "none"
        else bounds(one["flexibleVersions"])[0]
        for one in definitions()
        if one["type"] == "request" and "flexibleVersions" in one
    }
    assert facts == FLEXIBLE_SINCE


@pytest.mark.parametrize("client_id", [None, "", "a client", "клиент"])
@pytest.mark.parametrize(("key", "version"), [(0, 8), (0, 9), (18, 0), (18, 3), (17, 1), (75, 0)])
def test_request_header_round_trip(key: int, version: int, client_id: str | None) -> None:
    written = encode_request_header(key, version, 77, client_id)
    header = decode_request_header(memoryview(written + b"body"))
    assert (key, version, 77, client_id, len(written)) == (
        header.api_key,
        header.api_version,
        header.correlation_id,
        header.client_id,
        header.body_start,
    )
    schema = KioHeaderV2 if is_flexible(key, version) else KioHeaderV1
    theirs: Any
    theirs, size = entity_reader(schema)(written, 0)
    assert (len(written), client_id) == (size, theirs.client_id)


def test_unknown_tags_of_the_header_are_stepped_over() -> None:
    plain = encode_request_header(12, 4, 1, "c")
    tagged = plain[:-1] + b"\x02\x00\x02ab\x09\x00"
    assert len(tagged) == decode_request_header(tagged + b"body").body_start


def test_unknown_key_can_still_be_reported() -> None:
    header = decode_request_header(encode_request_header(999, 3, 5, "c"))
    assert (999, 3, 5) == (header.api_key, header.api_version, header.correlation_id)
    assert repr(RequestHeader(999, 3, 5, "c", 11)) == repr(header)


def test_header_cut_at_every_byte_is_refused() -> None:
    written = encode_request_header(12, 4, 1, "client")
    for size in range(len(written)):
        with pytest.raises(MalformedMessage, match="RequestHeader"):
            decode_request_header(memoryview(written[:size]))


@pytest.mark.parametrize(
    ("broken", "field"),
    [
        (b"\x00\x0c\x00\x04\x00\x00\x00\x01\x00\x01\xff\x00", "client_id"),
        (b"\x00\x0c\x00\x04\x00\x00\x00\x01\xff\xfe\x00\x00", "client_id"),
        (b"\x00\x0c\x00\x04\x00\x00\x00\x01\x7f\xffabc", "client_id"),
        (b"\x00\x0c\x00\x04\x00\x00\x00\x01\xff\xff\x01\x00\x09", "tagged fields"),
    ],
)
def test_broken_header_is_refused(broken: bytes, field: str) -> None:
    with pytest.raises(MalformedMessage) as caught:
        decode_request_header(broken)
    assert field == caught.value.field


@pytest.mark.parametrize(
    ("key", "version", "expected"),
    [(12, 3, b"\x00\x00\x00\x07"), (12, 4, b"\x00\x00\x00\x07\x00"), (18, 3, b"\x00\x00\x00\x07")],
)
def test_response_header(key: int, version: int, expected: bytes) -> None:
    """The answer to ApiVersions never has tags: its reader does not know its version yet."""
    size = (len(expected) + 10).to_bytes(4, "big")
    assert size + expected == response_prefix(7, key, version, 10)
    assert len(expected) == response_body_start(expected + b"body", key, version)


def test_tags_of_a_response_header_are_stepped_over() -> None:
    assert 8 == response_body_start(b"\x00\x00\x00\x07\x01\x05\x01xbody", 12, 4)


@pytest.mark.parametrize("rest", [b"", b"\x80", b"\x01", b"\x01\x05\x09x", b"\xff" * 6])
def test_response_header_that_is_cut_off_is_malformed(rest: bytes) -> None:
    with pytest.raises(MalformedMessage, match="ResponseHeader"):
        response_body_start(b"\x00\x00\x00\x07" + rest, 12, 4)
