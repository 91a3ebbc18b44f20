"""Framing: splits a stream of bytes into frames, each behind its four-byte size.

    splitter = FrameSplitter(scratch, frame_bytes_max)
    splitter.get_buffer()                  where the transport puts what arrives next
    for frame, is_owned in splitter.buffer_updated(count): ...

The scratch buffer may be shared by all connections of one event loop, because a transport asks
for a buffer, fills it and reports in one go. A frame that arrived whole is a view of the scratch
buffer, valid until the next call on any splitter that shares it; parts of it that outlive the
call must be copied. Any other frame is assembled in memory of its own (`is_owned`), which is never
written again.

Rule: memory is taken as bytes arrive, not as a size prefix promises.
Must not know: sockets, headers.
"""

import mmap
from struct import Struct
from typing import Final

from kledger.gateway.wire.errors import InvalidFrameSize

FRAME_BYTES_MAX: Final = 100 * 1024 * 1024
SCRATCH_BYTES: Final = 256 * 1024
MAPPED_BYTES_MIN: Final = 256 * 1024
"""From this size on, a frame gets pages that take no memory before they are written."""

_SIZE: Final = Struct(">i")
_NOTHING: Final[list[tuple[memoryview, bool]]] = []


def make_scratch(size: int = SCRATCH_BYTES) -> memoryview:
    """Make a scratch buffer for the connections of one event loop."""
    return memoryview(bytearray(size))


class FrameSplitter:
    """Frames of one connection.

    Attributes:
        frame_bytes_max: the largest size accepted; may change at any time.
        fault: set when a size prefix was out of bounds; no further frame is split off, and the
            connection must be closed after the frames before it.
    """

    __slots__ = ("_carry", "_filled", "_frame", "_scratch", "fault", "frame_bytes_max")

    def __init__(
        self, scratch: memoryview | None = None, frame_bytes_max: int = FRAME_BYTES_MAX
    ) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.fault: InvalidFrameSize | None = None
        self._scratch = make_scratch() if scratch is None else scratch
        self._carry = b""  # the first bytes of a size prefix, at most three
        self._frame: memoryview | None = None  # a frame being assembled
        self._filled = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes that arrived and belong to no complete frame."""
        return self._filled if self._frame is not None else len(self._carry)

    def get_buffer(self) -> memoryview:
        """Return where the next bytes of this connection go; never empty."""
        if self._frame is not None:
            return self._frame[self._filled :]
        kept = len(self._carry)
        if kept:
            self._scratch[:kept] = self._carry
            return self._scratch[kept:]
        return self._scratch

    def buffer_updated(self, count: int) -> list[tuple[memoryview, bool]]:
        """Split what `count` new bytes at the start of the last buffer complete.

        Returns:
            The frames that are complete now, without their sizes, and whether each owns its
            memory.
        """
        if self.fault is not None:
            return _NOTHING
        if self._frame is None:
            return self._split(len(self._carry) + count)
        self._filled += count
        frame = self._frame
        if self._filled < len(frame):
            return _NOTHING
        self._frame = None
        return [(frame, True)]

    def feed(self, data: bytes) -> list[tuple[memoryview, bool]]:
        """Split bytes that are already in memory; every frame owns its memory."""
        frames = []
        rest = memoryview(data)
        while rest:
            buffer = self.get_buffer()
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            rest = rest[count:]
            for frame, is_owned in self.buffer_updated(count):
                frames.append((frame if is_owned else memoryview(bytearray(frame)), True))
        return frames

    def _split(self, end: int) -> list[tuple[memoryview, bool]]:
        """Split the first `end` bytes of the scratch buffer, and keep the incomplete rest."""
        scratch, pos = self._scratch, 0
        frames: list[tuple[memoryview, bool]] = []
        self._carry = b""
        while end - pos >= 4:
            (size,) = _SIZE.unpack_from(scratch, pos)
            if not 0 < size <= self.frame_bytes_max:
                self.fault = InvalidFrameSize(size, self.frame_bytes_max)
                return frames
            pos += 4
            stop = pos + size
            if stop > end:
                self._start_frame(size, scratch[pos:end])
                return frames
            frames.append((scratch[pos:stop], False))
            pos = stop
        self._carry = bytes(scratch[pos:end])
        return frames

    def _start_frame(self, size: int, first: memoryview) -> None:
        is_mapped = size >= MAPPED_BYTES_MIN
        memory = mmap.mmap(-1, size) if is_mapped else bytearray(size)
        self._frame, self._filled = memoryview(memory), len(first)
        self._frame[: len(first)] = first
