"""Responses are split correctly, however the socket divides them."""

import socket
import struct

import pytest

from benchmarks.programs.raw_load import Answers, percentile


def response(error: int) -> bytes:
    body = struct.pack(">iih1sii", 0, 1, 1, b"t", 1, 0) + struct.pack(">hqqqi", error, 5, -1, 0, 0)
    return struct.pack(">i", len(body)) + body


def test_partial_responses_are_joined() -> None:
    near, far = socket.socketpair()
    with near, far:
        answers = Answers(near)
        whole = response(0) * 3
        far.sendall(whole[:60])
        assert answers.wait() == 1
        far.sendall(whole[60:])
        assert answers.wait() == 2


def test_error_ends_the_load() -> None:
    near, far = socket.socketpair()
    with near, far:
        far.sendall(response(87))
        with pytest.raises(SystemExit, match="error 87"):
            Answers(near).wait()


def test_percentile_of_sorted_values() -> None:
    values = [float(n) for n in range(100)]
    assert (percentile(values, 0.5), percentile(values, 0.99)) == (50.0, 99.0)
    assert percentile([1.0], 0.99) == 1.0
