"""Frames out of a stream, however it is cut."""

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.gateway.wire.framing import MAPPED_BYTES_MIN, FrameSplitter, make_scratch

FRAMES = [b"a", b"bc", b"d" * 300, b"e" * 20, b"f" * 64, b"g" * 59, b"h" * 60]


def stream(frames: list[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def receive(splitter: FrameSplitter, data: bytes) -> list[tuple[bytes, bool]]:
    """Hand in bytes as a transport does: as many at a time as the buffer takes."""
    frames, pos = [], 0
    while pos < len(data):
        buffer = splitter.get_buffer()
        assert len(buffer)
        part = data[pos : pos + len(buffer)]
        buffer[: len(part)] = part
        pos += len(part)
        frames += [
            (bytes(frame), is_owned) for frame, is_owned in splitter.buffer_updated(len(part))
        ]
    return frames


def texts(frames: list[tuple[bytes, bool]]) -> list[bytes]:
    return [frame for frame, _ in frames]


def test_whole_stream_at_once() -> None:
    frames = receive(FrameSplitter(make_scratch(1024)), stream(FRAMES))
    assert [(frame, False) for frame in FRAMES] == frames


def test_byte_by_byte() -> None:
    splitter = FrameSplitter(make_scratch(64))
    frames = []
    for byte in stream(FRAMES):
        frames += receive(splitter, bytes((byte,)))
    assert FRAMES == texts(frames)
    assert 0 == splitter.pending_bytes


@given(data=st.data())
def test_any_cut_of_any_stream(data: st.DataObject) -> None:
    frames = data.draw(st.lists(st.binary(min_size=1, max_size=90), max_size=8))
    splitter = FrameSplitter(make_scratch(data.draw(st.integers(8, 100))))
    rest, received = stream(frames), []
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        received += receive(splitter, rest[:size])
        rest = rest[size:]
    assert frames == texts(received)


def test_connections_share_one_scratch_buffer() -> None:
    """Two connections alternate at every byte; neither sees the other's."""
    scratch = make_scratch(16)
    left, right = FrameSplitter(scratch), FrameSplitter(scratch)
    got: tuple[list[bytes], list[bytes]] = ([], [])
    ours, theirs = stream([b"left" * 9, b"l"]), stream([b"right" * 7, b"rr"])
    for index in range(max(len(ours), len(theirs))):
        got[0].extend(texts(receive(left, ours[index : index + 1])))
        got[1].extend(texts(receive(right, theirs[index : index + 1])))
    assert ([b"left" * 9, b"l"], [b"right" * 7, b"rr"]) == got


def test_frame_put_together_owns_its_memory_and_may_be_changed() -> None:
    splitter = FrameSplitter(make_scratch(8))
    buffer = splitter.get_buffer()
    buffer[:8] = b"\x00\x00\x00\x06abcd"
    assert [] == splitter.buffer_updated(8)
    assert 4 == splitter.pending_bytes
    rest = splitter.get_buffer()
    assert 2 == len(rest)
    rest[:] = b"ef"
    ((frame, is_owned),) = splitter.buffer_updated(2)
    receive(splitter, b"\x00\x00\x00\x01x")
    frame[0:1] = b"A"
    assert (b"Abcdef", True) == (bytes(frame), is_owned)


@pytest.mark.parametrize("size", [0, -1, -(2**31), 101, 2**31 - 1])
def test_size_out_of_bounds_is_a_fault(size: int) -> None:
    splitter = FrameSplitter(make_scratch(64), frame_bytes_max=100)
    data = stream([b"good"]) + size.to_bytes(4, "big", signed=True) + b"whatever"
    assert [b"good"] == texts(receive(splitter, data))
    assert splitter.fault is not None
    assert (size, 100) == (splitter.fault.size, splitter.fault.size_max)
    assert str(splitter.fault) == f"frame of {size} bytes, expected 1 to 100"
    assert [] == receive(splitter, stream([b"too late"]))


def test_largest_size_is_accepted_and_the_limit_may_change() -> None:
    splitter = FrameSplitter(make_scratch(64), frame_bytes_max=100)
    assert [b"x" * 100] == texts(receive(splitter, stream([b"x" * 100])))
    splitter.frame_bytes_max = 10
    receive(splitter, stream([b"x" * 11]))
    assert splitter.fault is not None


def test_announced_size_takes_no_memory() -> None:
    """A peer that announces 100 MiB and then stalls must not cost 100 MiB."""
    splitter = FrameSplitter(make_scratch(64))
    tracemalloc.start()
    try:
        receive(splitter, (100 * 1024 * 1024).to_bytes(4, "big") + b"x")
        assert tracemalloc.get_traced_memory()[1] < 1024 * 1024
    finally:
        tracemalloc.stop()
    assert 1 == splitter.pending_bytes


def test_large_frame_arrives_whole() -> None:
    large = random.Random(7).randbytes(MAPPED_BYTES_MIN + 1000)
    splitter = FrameSplitter(make_scratch(4096))
    assert [(large, True), (b"next", False)] == receive(splitter, stream([large, b"next"]))


def test_feed_gives_frames_that_own_their_memory() -> None:
    splitter = FrameSplitter(make_scratch(64))
    data = stream(FRAMES)
    frames = splitter.feed(data[:100]) + splitter.feed(data[100:])
    assert [(frame, True) for frame in FRAMES] == [(bytes(frame), own) for frame, own in frames]
