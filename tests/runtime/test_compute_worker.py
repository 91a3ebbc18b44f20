"""The messages of compute processes; what the processes do is tested with their pool."""

import pickle
import socket
import struct

import pytest

from kledger.runtime.compute_worker import HEAD, Kind, receive, split_buffers

MESSAGE = HEAD.pack(Kind.RESULT, 3) + b"abc"


def received(sent: bytes) -> list[tuple[Kind, bytes]]:
    """Return the messages of a connection that ends after some bytes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        messages = iter(lambda: receive(ours), None)
        return [(kind, bytes(content)) for kind, content in messages]


def test_messages_come_one_by_one() -> None:
    empty = HEAD.pack(Kind.PART, 0)
    assert [(Kind.RESULT, b"abc"), (Kind.PART, b""), (Kind.RESULT, b"abc")] == received(
        MESSAGE + empty + MESSAGE
    )


def test_large_message_comes_whole() -> None:
    content = pickle.dumps(bytes(100_000))
    assert [(Kind.RESULT, content)] == received(HEAD.pack(Kind.RESULT, len(content)) + content)


@pytest.mark.parametrize("size", range(len(MESSAGE)))
def test_message_that_was_cut_is_none(size: int) -> None:
    assert [(Kind.RESULT, b"abc")] == received(MESSAGE + MESSAGE[:size])


@pytest.mark.parametrize("buffers", [[], [b""], [b"abc"], [b"", b"ab", b"", b"cde"]])
def test_buffers_are_split(buffers: list[bytes]) -> None:
    sizes = [len(each) for each in buffers]
    content = struct.pack(f">{1 + len(sizes)}I", len(sizes), *sizes) + b"".join(buffers)
    assert buffers == split_buffers(bytearray(content))
