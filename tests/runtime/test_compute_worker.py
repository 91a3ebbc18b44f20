"""The messages of compute processes; what the processes do is tested with their pool."""

import os
import pickle
import socket
import struct

import pytest

from kledger.runtime.compute_worker import (
    HEAD,
    Kind,
    make_shared_memory,
    receive,
    split_buffers,
    write_buffers,
)

MESSAGE = HEAD.pack(Kind.RESULT, 3) + b"abc"


def received(sent: bytes) -> list[tuple[Kind, bytes]]:
    """Return the messages of a connection that ends after some bytes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        messages = iter(lambda: receive(ours), None)
        return [(kind, bytes(content)) for kind, content, _ in messages]


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
    content = struct.pack(f">{len(buffers)}I", *map(len, buffers))
    assert buffers == split_buffers(bytearray(content), memoryview(b"".join(buffers) + b"rest"))


@pytest.mark.parametrize("head_size", [1, HEAD.size])
def test_memory_comes_with_its_message_alone(head_size: int) -> None:
    """Also if the head comes in two parts, as a stream may deliver it."""
    memory = make_shared_memory()
    write_buffers(memory, [b"in ", b"", bytearray(b"memory")])
    ours, theirs = socket.socketpair()
    with ours, theirs:
        socket.send_fds(theirs, [MESSAGE[:head_size]], [memory])
        os.close(memory)
        theirs.sendall(MESSAGE[head_size:] + MESSAGE)
        first, second = receive(ours), receive(ours)
    assert first is not None
    assert second is not None
    assert (b"abc", b"in memory") == (bytes(first.content), bytes(first.memory))
    assert (b"abc", b"") == (bytes(second.content), bytes(second.memory))


def test_new_buffers_replace_those_before_and_many_are_written() -> None:
    """One system call takes 1,024 buffers at most."""
    memory = make_shared_memory(10)
    write_buffers(memory, [b"abcdef", b"ghij"])
    write_buffers(memory, [b"xyz"])
    assert b"xyzdefghij" == os.pread(memory, 20, 0)
    buffers = [bytes([number % 251]) * (number % 7) for number in range(3000)]
    write_buffers(memory, buffers)
    assert b"".join(buffers) == os.pread(memory, 1 << 20, 0)
    os.close(memory)
