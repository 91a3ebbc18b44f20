"""A throttle time that is set in an encoded response, against the encoder."""

import pytest

from kledger.gateway.net.router import encode_response_frame
from kledger.gateway.wire.schema import ApiMessage
from kledger.gateway.wire.throttle import set_throttle_time
from tests.gateway.wire.facts import messages, versions

RESPONSES = [cls for cls in messages() if cls.__name__.endswith("Response")]


@pytest.mark.parametrize("cls", RESPONSES, ids=lambda cls: cls.__name__)
def test_the_time_is_where_the_encoder_writes_it(cls: type[ApiMessage]) -> None:
    key = cls.__api__.key
    for version in versions(cls):
        plain = encode_response_frame(cls(), key, version, 7)
        before = bytes(plain[0])
        throttled = set_throttle_time(plain, cls, version, 1_234)
        assert before == plain[0]
        if throttled is not plain:
            expected = encode_response_frame(cls(throttle_time_ms=1_234), key, version, 7)
            assert b"".join(expected) == b"".join(throttled)


def test_most_responses_have_a_throttle_time() -> None:
    cannot = set()
    for cls in RESPONSES:
        version = versions(cls)[-1]
        plain = encode_response_frame(cls(), cls.__api__.key, version, 7)
        if set_throttle_time(plain, cls, version, 1) is plain:
            cannot.add(cls.__api__.key)
    # The field is behind something, or there is none.
    assert {0, 17, 18, 27, 36, 38, 39, 40, 41, 47, 55} == cannot
