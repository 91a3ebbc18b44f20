"""Connection writer: the sending side of one connection.

Rule: what is ready leaves in one write; what the peer has not taken counts against the limit of all
connections, and so does what is being read for it.
Must not know: requests, the order of responses.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from kledger.gateway.net.connection_state import Buffer
from kledger.gateway.net.unsent_bytes import MEASURE_BYTES, UnsentBytes

if TYPE_CHECKING:
    from kledger.gateway.net.connection import Connection
    from kledger.runtime.metrics import Counter

JOIN_PIECE_BYTES_MAX = 4 * 1024
"""Smaller pieces on average are cheaper to copy together than to hand over one by one."""


class ConnectionWriter:
    """Writes responses, and knows what of them is not sent."""

    __slots__ = ("_connection", "_measure_at", "_sent", "_transport", "_unsent", "_written")

    def __init__(self, connection: "Connection", unsent: UnsentBytes, sent: "Counter") -> None:
        self._connection = connection
        self._unsent = unsent
        self._sent = sent
        self._transport: asyncio.WriteTransport | None = None
        self._written = 0
        self._measure_at = MEASURE_BYTES

    def begin(self, transport: asyncio.WriteTransport, send_buffer_bytes_max: int) -> None:
        """Write to that transport; above so many bytes it tells the connection to pause."""
        self._transport = transport
        transport.set_write_buffer_limits(high=send_buffer_bytes_max)

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were written and that the peer has not taken."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    @property
    def taken_bytes(self) -> int:
        """Bytes that the peer has taken since it is connected."""
        return self._written - self.unsent_bytes

    @property
    def peer_host(self) -> str:
        """The address of the other end."""
        return self._connection.peer_host

    def write(self, output: list[Buffer]) -> None:
        """Write pieces of responses."""
        assert self._transport is not None, "writing before the connection is made"
        if len(output) > 1:
            size = sum(map(len, output))
            if size <= len(output) * JOIN_PIECE_BYTES_MAX:
                self._transport.write(b"".join(output))
            else:
                self._transport.writelines(output)
        else:
            size = len(output[0])
            self._transport.write(output[0])
        self._sent.value += size
        self._written += size
        if self._written >= self._measure_at:
            self.measure()

    def measure(self) -> None:
        """Count what is unsent."""
        self._measure_at = self._written + MEASURE_BYTES
        self._unsent.measure(self)

    def is_idle(self) -> bool:
        """Tell whether the peer takes nothing of what it is sent, for as long as it may be idle."""
        self.measure()
        return self._unsent.is_idle(self)

    def close(self) -> None:
        """The connection is gone."""
        self._unsent.forget(self)

    def abort(self) -> None:
        """Close the connection."""
        self._connection.abort()

    # For fetches

    @property
    def fetch_bytes_max(self) -> int:
        """How much a fetch may add now; its first batch may be larger."""
        return self._unsent.fetch_bytes_max()

    def has_room(self) -> bool:
        """Tell whether a fetch may be answered now; if not, it has to `wait_for_room`."""
        return self._unsent.has_room(self)

    def wait_for_room(self, resume: Callable[[], None]) -> None:
        """Call back when there is room; not when the connection is gone before."""
        self._unsent.wait(self, resume)

    def reserve(self, size: int) -> None:
        """Keep room for what a fetch is about to read of the storage."""
        self._unsent.state.reserve(self, size)

    def release(self) -> None:
        """Give the reserved room back."""
        self._unsent.state.release(self)
