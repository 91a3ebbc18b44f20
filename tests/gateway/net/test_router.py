"""From key and version to a handler."""

from kledger.gateway.net.router import Router, encode_response_frame
from kledger.gateway.wire.messages.k12_heartbeat import HeartbeatResponse
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
        assert router.unsupported_version_response(3, 99, 1) is None
        assert router.unsupported_version_response(999, 0, 1) is None
        assert router.unsupported_version_response(18, 99, 1) is not None


def test_reply_is_a_frame_with_size_header_and_body() -> None:
    whole = b"".join(encode_response_frame(HeartbeatResponse(error_code=27), 12, 4, 77))
    assert len(whole) - 4 == int.from_bytes(whole[:4], "big")
    assert 77 == int.from_bytes(whole[4:8], "big")
    assert whole == b"".join(encode_response_frame(whole[9:], 12, 4, 77)), (
        "an encoded body is taken as is"
    )
