"""Reading: whether the bytes of one socket are read.

Rule: pausing and resuming may be asked for as often as wanted; once the peer has sent its last byte
there is nothing to read, and the transport is left alone.
Must not know: why reading is paused.
"""

import asyncio


class ReadFlow:
    """The reading side of one socket."""

    __slots__ = ("_transport", "is_eof", "is_paused")

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self.is_paused = False
        self.is_eof = False
        """Whether the peer has closed its sending side."""

    def begin(self, transport: asyncio.Transport) -> None:
        """Take the transport, which reads from the beginning."""
        self._transport = transport

    def pause(self) -> None:
        """Leave what comes to the kernel."""
        if not self.is_paused and not self.is_eof and self._transport is not None:
            self.is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self.is_paused and not self.is_eof and self._transport is not None:
            self.is_paused = False
            self._transport.resume_reading()
