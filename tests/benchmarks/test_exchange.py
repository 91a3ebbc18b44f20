"""Answers are read whole, and a connection that ends is an error."""

import socket

import pytest

from benchmarks.exchange import Exchange


def test_answer_comes_without_size_and_correlation_id() -> None:
    near, far = socket.socketpair()
    with near, far:
        far.sendall(b"\0\0\0\x06\0\0\0\x01ok\0\0\0\x04\0\0\0\x02")
        assert Exchange(near).ask(b"request") == b"ok"
        assert Exchange(near).receive() == b""
        assert far.recv(100) == b"request"


def test_end_in_the_middle_is_an_error() -> None:
    near, far = socket.socketpair()
    with near:
        far.sendall(b"\0\0\0\x06\0\0")
        far.close()
        with pytest.raises(ConnectionError):
            Exchange(near).receive()
