"""TlsTransport: TLS between a socket and its connection, by the standard library's memory buffers.

    socket ─▸ incoming ─▸ SSLObject ─▸ connection.get_buffer / buffer_updated
    socket ◂─ outgoing ◂─ SSLObject ◂─ write

Rule: the connection sees a transport, and bytes once the handshake is done. A connection exists
from the moment its socket is accepted, so that limits count handshakes; one step of a handshake
runs per tick, so that a flood of them leaves room for other clients. What is not read stays
encrypted in `incoming`, which has at most the bytes of one read.
Must not know: requests, certificates' meaning.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, Protocol, cast

READ_BYTES: Final = 64 * 1024
HANDSHAKE_BYTES_MAX: Final = 256 * 1024
"""Bytes that a client may send before the handshake is done, its certificates among them."""
WRITE_BYTES: Final = 256 * 1024
"""Bytes that are encrypted before they are passed to the socket."""

Buffer = bytes | bytearray | memoryview


class TlsClient(Protocol):
    """The connection behind a transport."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        ...

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        ...

    def buffer_updated(self, nbytes: int) -> None:
        """Take bytes that were put there."""
        ...

    def eof_received(self) -> bool:
        """Note that the client sends no more."""
        ...

    def pause_writing(self) -> None:
        """Note that the socket takes no more for now."""
        ...

    def resume_writing(self) -> None:
        """Note that it takes more again."""
        ...

    def connection_lost(self, error: Exception | None) -> None:
        """Note that the connection is closed."""
        ...

    def tls_established(self, certificate: bytes | None) -> None:
        """Take the client's certificate in DER, which is verified, or None without one."""
        ...

    def tls_failed(self, reason: str) -> None:
        """Close, and log why."""
        ...

    def contain(self, error: Exception) -> None:
        """Close because of an error."""
        ...


class HandshakeQueue:
    """The handshakes of one listener: one step per tick."""

    def __init__(self) -> None:
        self._waiting: deque[TlsTransport] = deque()
        self._is_scheduled = False
        self._loop = asyncio.get_running_loop()

    def put(self, transport: "TlsTransport") -> None:
        """Let a transport go on with its handshake soon."""
        self._waiting.append(transport)
        self._schedule()

    def _schedule(self) -> None:
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._step)

    def _step(self) -> None:
        self._is_scheduled = False
        transport = self._waiting.popleft()
        self._schedule()
        transport.step_handshake()


class TlsTransport(asyncio.BufferedProtocol):
    """The protocol of a socket, and the transport of its connection."""

    __slots__ = (
        "_buffer",
        "_connection",
        "_handshake_bytes",
        "_handshakes",
        "_incoming",
        "_is_closing",
        "_is_delivering",
        "_is_established",
        "_is_paused",
        "_is_queued",
        "_outgoing",
        "_raw",
        "_tls",
    )

    def __init__(
        self,
        context: ssl.SSLContext,
        connection: TlsClient,
        handshakes: HandshakeQueue,
        buffer: memoryview,
    ) -> None:
        """Begin.

        Args:
            context: of the listener, as it is now.
            connection: gets this transport.
            handshakes: of the listener.
            buffer: for encrypted bytes as they are read, shared by all connections of the loop.
        """
        self._connection = connection
        self._handshakes = handshakes
        self._buffer = buffer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._raw: asyncio.Transport | None = None
        self._handshake_bytes = 0
        self._is_established = self._is_queued = self._is_paused = False
        self._is_closing = self._is_delivering = False

    # The protocol of the socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Give the connection its transport."""
        self._raw = cast(asyncio.Transport, transport)
        self._connection.connection_made(cast(asyncio.BaseTransport, self))

    def connection_lost(self, error: Exception | None) -> None:
        """Forward it to the connection."""
        self._is_closing = True
        self._connection.connection_lost(error)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where encrypted bytes go."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take encrypted bytes: go on with the handshake, or deliver what is in them."""
        if self._is_closing:
            return
        self._incoming.write(self._buffer[:nbytes])
        if self._is_established:
            self._deliver()
            return
        self._handshake_bytes += nbytes
        if self._handshake_bytes > HANDSHAKE_BYTES_MAX:
            self._connection.tls_failed(f"a handshake of more than {HANDSHAKE_BYTES_MAX} bytes")
        elif not self._is_queued:
            self._is_queued = True
            self._handshakes.put(self)

    def eof_received(self) -> bool:
        """Pass on that the client sends no more; True keeps the socket open for responses."""
        if self._is_established:
            return self._connection.eof_received()
        if self._handshake_bytes:
            self._connection.tls_failed("the client closed the connection in the handshake")
        return False  # a probe that sends nothing is no failure

    def pause_writing(self) -> None:
        """Forward it to the connection."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Forward it to the connection."""
        self._connection.resume_writing()

    # TLS.

    def step_handshake(self) -> None:
        """Go on with the handshake, with what has arrived."""
        self._is_queued = False
        if self._is_closing:
            return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except (ssl.SSLError, ValueError) as error:
            self._flush()  # the alert that says why
            self._connection.tls_failed(_reason(error))
            return
        self._is_established = True
        self._flush()
        self._connection.tls_established(self._tls.getpeercert(binary_form=True))
        if not self._is_closing:
            self._deliver()

    def _deliver(self) -> None:
        """Decrypt what has arrived into the connection's buffer, until it pauses."""
        if self._is_delivering:
            return
        self._is_delivering = True
        try:
            while not self._is_paused and not self._is_closing and self._deliver_once():
                pass
        finally:
            self._is_delivering = False

    def _deliver_once(self) -> bool:
        """Deliver as much as one buffer takes; return whether there may be more."""
        buffer = self._connection.get_buffer(-1)
        filled, is_eof, is_dry = 0, False, False
        try:
            while filled < len(buffer):
                size = self._tls.read(len(buffer) - filled, buffer[filled:])
                if not size:
                    is_eof = True
                    break
                filled += cast(int, size)
        except ssl.SSLWantReadError:
            is_dry = True
        except ssl.SSLZeroReturnError:
            is_eof = True
        except (ssl.SSLError, ValueError) as error:
            self._connection.tls_failed(_reason(error))
            return False
        if filled:
            self._connection.buffer_updated(filled)
        if is_eof and not self._is_closing:
            self._connection.eof_received()
        self._flush()
        return not is_eof and not is_dry

    def _flush(self) -> None:
        """Pass to the socket what is encrypted."""
        if self._outgoing.pending and self._raw is not None:
            self._raw.write(self._outgoing.read())

    # The transport of the connection.

    def write(self, data: Buffer) -> None:
        """Encrypt and send."""
        self.writelines((data,))

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        """Encrypt and send several buffers."""
        for data in buffers:
            if self._is_closing:
                return
            try:
                self._encrypt(data)
            except ssl.SSLError as error:
                self._connection.tls_failed(_reason(error))
                return
        self._flush()

    def _encrypt(self, data: Buffer) -> None:
        assert self._is_established, "a response before the handshake"
        rest = memoryview(data)
        while rest:
            rest = rest[self._tls.write(rest) :]
            if self._outgoing.pending >= WRITE_BYTES:
                self._flush()

    def close(self) -> None:
        """Send what is written, say that no more follows, and close."""
        if self._is_closing or self._raw is None:
            return
        if self._is_established:
            with suppress(ssl.SSLError, ValueError):  # the client has not said so itself
                self._tls.unwrap()
            self._flush()
        self._is_closing = True
        self._raw.close()

    def abort(self) -> None:
        """Close without sending what is written; but the alert that says why leaves."""
        self._is_closing = True
        if self._raw is None:
            return
        if not self._is_established and not self._raw.get_write_buffer_size():
            self._raw.close()
        else:
            self._raw.abort()

    def pause_reading(self) -> None:
        """Deliver nothing more for now."""
        self._is_paused = True
        if self._raw is not None and not self._is_closing:
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Deliver what is here, and then what comes."""
        self._is_paused = False
        if self._is_closing or self._raw is None:
            return
        self._raw.resume_reading()
        if self._is_established:
            asyncio.get_running_loop().call_soon(self._deliver_rest)

    def _deliver_rest(self) -> None:
        if self._is_closing:
            return
        try:
            self._deliver()
        except Exception as error:  # noqa: BLE001 - it closes this connection alone
            self._connection.contain(error)

    def get_write_buffer_size(self) -> int:
        """Return how many encrypted bytes the socket has not taken."""
        return 0 if self._raw is None else self._raw.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set when `pause_writing` is called."""
        assert self._raw is not None, "limits before the socket"
        self._raw.set_write_buffer_limits(high=high, low=low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the socket's transport knows."""
        return default if self._raw is None else self._raw.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Return whether it is closed, or being closed."""
        return self._is_closing


def _reason(error: Exception) -> str:
    """Return OpenSSL's word for what went wrong, such as `WRONG_VERSION_NUMBER`."""
    return getattr(error, "reason", None) or type(error).__name__
