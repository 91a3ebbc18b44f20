"""One connection of a client to a Kafka broker, with one request after the other.

Rule: a request is written by the schemas and one version of each API, which kledger and Apache
Kafka 4 serve. A response may be received later than its request is sent, so that the broker reads
while the caller computes. An untrusted certificate, of the broker or of the client, is not a lost
connection: a retry would fail, too.
Must not know: what requests mean, logins, and what to do after a failure.
"""

import socket
import ssl
from typing import Final, TypeVar

from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.errors import MalformedMessage
from kledger.gateway.wire.header import encode_request_header, response_body_start
from kledger.gateway.wire.schema import ApiMessage

VERSIONS: Final = {
    0: 9,
    1: 12,
    2: 7,
    3: 9,
    9: 7,
    10: 3,
    17: 1,
    22: 4,
    24: 3,
    25: 3,
    26: 3,
    28: 3,
    29: 3,
    30: 3,
    31: 3,
    36: 2,
    50: 0,
    51: 0,
    66: 0,
}
"""The version of each API, by key."""
CONNECT_S: Final = 10.0
RESPONSE_S: Final = 120.0
"""Only a broker that hangs takes so long; it is as good as lost."""
FRAME_BYTES_MAX: Final = 256 << 20

_CUT: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError)

R = TypeVar("R", bound=ApiMessage)


class ConnectionLost(ConnectionError):
    """The broker closed the connection, did not answer, or sent what is no response."""


class TlsRefused(OSError):
    """Client and broker cannot use TLS: a certificate, a name, or only one side has TLS."""


class BrokerConnection:
    """A socket; not for several threads at once."""

    def __init__(
        self, host: str, port: int, tls: ssl.SSLContext | None = None, *, client_id: str
    ) -> None:
        """Connect.

        Args:
            host: of the broker; its certificate is for this name.
            port: of its listener.
            tls: None: the connection is not encrypted.
            client_id: what the broker logs and limits the client by.

        Raises:
            ConnectionLost: the broker cannot be reached within 10 s.
            TlsRefused: one of the two does not accept the other.
        """
        self._name = f"{host}:{port}"
        try:
            self._socket = _connected(host, port, tls)
        except OSError as error:
            raise self._failure(error, "cannot be reached") from error
        self._socket.settimeout(RESPONSE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._correlation_id = 0

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def send(self, request: ApiMessage) -> None:
        """Send a request; `receive` takes its response.

        Raises:
            ConnectionLost: it could not be sent.
            TlsRefused: the broker did not accept the client's certificate.
        """
        key = type(request).__api__.key
        version = VERSIONS[key]
        self._correlation_id += 1
        head = encode_request_header(key, version, self._correlation_id, self._client_id)
        body = encode(request, version)
        try:
            self._socket.sendall((len(head) + len(body)).to_bytes(4, "big") + head + body)
        except OSError as error:
            raise self._failure(error, "was lost") from error

    def receive(self, response: type[R]) -> R:
        """Receive the response to the last request.

        Raises:
            ConnectionLost: there is none.
            TlsRefused: the broker did not accept the client's certificate.
        """
        key = response.__api__.key
        version = VERSIONS[key]
        frame = self._frame()
        correlation_id = int.from_bytes(frame[:4], "big")
        if correlation_id != self._correlation_id:
            raise ConnectionLost(
                f"{self._name}: response {correlation_id}, expected {self._correlation_id}"
            )
        try:
            return decode(response, version, frame, response_body_start(frame, key, version))
        except MalformedMessage as error:
            raise ConnectionLost(f"{self._name}: {error}") from error

    def _frame(self) -> memoryview:
        size = int.from_bytes(self._exactly(4), "big", signed=True)
        if not 4 <= size <= FRAME_BYTES_MAX:
            raise ConnectionLost(
                f"{self._name}: response of {size} bytes, expected 4 to {FRAME_BYTES_MAX}"
            )
        return self._exactly(size)

    def _exactly(self, size: int) -> memoryview:
        data = memoryview(bytearray(size))
        filled = 0
        while filled < size:
            try:
                count = self._socket.recv_into(data[filled:])
            except OSError as error:
                raise self._failure(error, "was lost") from error
            if count == 0:
                raise ConnectionLost(f"{self._name} closed the connection")
            filled += count
        return data

    def _failure(self, error: OSError, what: str) -> OSError:
        # With TLS 1.3 a broker looks at the client's certificate when the client is done.
        if isinstance(error, ssl.SSLError) and not isinstance(error, _CUT):
            why = getattr(error, "verify_message", "") or error.reason or error
            return TlsRefused(f"{self._name}: TLS: {why}")
        return ConnectionLost(f"{self._name} {what}: {error}")


def _connected(host: str, port: int, tls: ssl.SSLContext | None) -> socket.socket:
    plain = socket.create_connection((host, port), timeout=CONNECT_S)
    if tls is None:
        return plain
    try:
        return tls.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise
