"""The probe's request is laid out by hand; it asks the server's own codec for nothing."""

import struct

import pytest

from compat_tests.servers.metadata_probe import broker_count, metadata_request


def test_request_is_framed_and_names_no_topic() -> None:
    request = metadata_request()
    (size,) = struct.unpack_from(">i", request)
    assert size == len(request) - 4
    assert struct.unpack_from(">hhi", request, 4) == (3, 1, 1)
    assert request[-4:] == bytes(4)


def test_brokers_are_counted() -> None:
    assert broker_count(struct.pack(">ii", 1, 3)) == 3


def test_answer_to_another_request_is_refused() -> None:
    with pytest.raises(ValueError, match="correlation id 9"):
        broker_count(struct.pack(">ii", 9, 3))
