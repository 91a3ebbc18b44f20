"""From key and version to a handler."""

import pytest

from gateway.router import Router, body_start, encode_reply
from gateway.wire.errors import MalformedMessage
from gateway.wire.header import decode_request_header, encode_request_header
from gateway.wire.messages.k12_heartbeat import HeartbeatResponse
from tests.gateway.running import running_gateway


async def test_routes_exist_for_served_versions_alone() -> None:
    async with running_gateway() as gateway:
        router = Router(gateway.services)
        for key, low, high in ((0, 3, 13), (1, 4, 18), (3, 0, 13), (18, 0, 4)):
            assert router.find(key, low - 1) is None
            assert router.find(key, low) is router.find(key, high) is not None
            assert router.find(key, high + 1) is None
        assert router.find(4, 0) is None
        assert router.find(-1, 0) is None


async def test_only_api_versions_is_answered_when_its_version_is_not_served() -> None:
    async with running_gateway() as gateway:
        router = Router(gateway.services)
        assert router.refusal(3, 99, 1) is None
        assert router.refusal(999, 0, 1) is None
        assert router.refusal(18, 99, 1) is not None


@pytest.mark.parametrize("client_id", [None, "", "abc", "größe" * 30])
@pytest.mark.parametrize(("key", "version"), [(0, 8), (0, 9), (1, 11), (1, 12), (12, 4)])
def test_body_start_agrees_with_the_whole_header(
    key: int, version: int, client_id: str | None
) -> None:
    header = encode_request_header(key, version, 1, client_id)
    for body in (b"", b"\0", b"body of the request"):
        frame = memoryview(header + body)
        assert decode_request_header(frame).body_start == body_start(frame, key, version)


def test_body_start_steps_over_tagged_fields() -> None:
    header = encode_request_header(12, 4, 1, "abc")[:-1] + b"\x01\x05\x02xy"
    assert len(header) == body_start(memoryview(header + b"rest"), 12, 4)


@pytest.mark.parametrize("size", range(8, 14))
def test_short_or_broken_headers_are_malformed(size: int) -> None:
    frame = memoryview(encode_request_header(0, 9, 1, "client")[:size])
    with pytest.raises(MalformedMessage):
        body_start(frame, 0, 9)


def test_reply_is_a_frame_with_size_header_and_body() -> None:
    whole = b"".join(encode_reply(HeartbeatResponse(error_code=27), 12, 4, 77))
    assert len(whole) - 4 == int.from_bytes(whole[:4], "big")
    assert 77 == int.from_bytes(whole[4:8], "big")
    assert whole == b"".join(encode_reply(whole[9:], 12, 4, 77)), "an encoded body is taken as is"
