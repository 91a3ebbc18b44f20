"""Health check: one real request over a fresh connection, for containers and scripts.

    python -P -m kledger.healthcheck [HOST:PORT] [--tls]      exit 0 if Kafka clients are answered
    python -P -m kledger.healthcheck HOST:PORT --admin        exit 0 if its page /health says so

Rule: an open port is not enough, the answer must be right; every wait has a limit. ApiVersions
needs no login. With `--tls`, for a listener with TLS, the certificate is not checked, as nothing is
sent that could be a secret. A broker that waits to own its cluster has its admin listener alone.
Must not know: modules of the server; it encodes ApiVersions v0 itself, so that it starts at once.

Request                              Response
| offset | size | field          |   | offset | size | field                    |
|--------|------|----------------|   |--------|------|--------------------------|
| 0      | 4    | size           |   | 0      | 4    | size                     |
| 4      | 2    | API key 18     |   | 4      | 4    | correlation id           |
| 6      | 2    | version 0      |   | 8      | 2    | error code               |
| 8      | 4    | correlation id |   | 10     | 4    | count of API keys        |
| 12     | 2    | client id, -1  |
"""

import re
import socket
import struct
import sys

DEFAULT_ADDRESS = "127.0.0.1:9092"
TIMEOUT_SECONDS = 5.0
CORRELATION_ID = 0x6B6C6564
API_VERSIONS = 18

STATUS_BYTES = 12
_STATUS_OK = re.compile(rb"HTTP/1.[01] 200")
_REQUEST = struct.Struct(">ihhih")
_RESPONSE = struct.Struct(">iihi")


def check(
    address: str, timeout_seconds: float = TIMEOUT_SECONDS, *, has_tls: bool = False
) -> str | None:
    """Request the server's API versions; return the problem, or None if it is healthy."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return f"expected HOST:PORT, got {address!r}"
    try:
        with _connected(host.strip("[]"), int(port), timeout_seconds, has_tls) as connection:
            connection.sendall(_REQUEST.pack(10, API_VERSIONS, 0, CORRELATION_ID, -1))
            answer = _received(connection, _RESPONSE.size)
    except OSError as error:
        return f"{address} does not answer: {error}"
    if len(answer) < _RESPONSE.size:
        return f"{address} closed the connection"
    _, correlation_id, error_code, key_count = _RESPONSE.unpack(answer)
    if (correlation_id, error_code) != (CORRELATION_ID, 0) or key_count < 1:
        return f"{address} gave a wrong answer: {answer.hex()}"
    return None


def check_admin(address: str, timeout_seconds: float = TIMEOUT_SECONDS) -> str | None:
    """Ask an admin listener for its health; return the problem, or None if there is none."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return f"expected HOST:PORT, got {address!r}"
    try:
        with _connected(host.strip("[]"), int(port), timeout_seconds, False) as connection:
            connection.sendall(f"GET /health HTTP/1.0\r\nHost: {address}\r\n\r\n".encode())
            answer = _received(connection, STATUS_BYTES)
    except OSError as error:
        return f"{address} does not answer: {error}"
    return None if _STATUS_OK.fullmatch(answer) else f"{address} gave a wrong answer: {answer!r}"


def _received(connection: socket.socket, size: int) -> bytes:
    """Return the next bytes; fewer if the connection ends before."""
    answer = b""
    while len(answer) < size and (received := connection.recv(size - len(answer))):
        answer += received
    return answer


def _connected(host: str, port: int, timeout_seconds: float, has_tls: bool) -> socket.socket:
    plain = socket.create_connection((host, port), timeout_seconds)
    if not has_tls:
        return plain
    import ssl  # most checks need none

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        return context.wrap_socket(plain)
    except OSError:
        plain.close()
        raise


if __name__ == "__main__":
    words = [each for each in sys.argv[1:] if not each.startswith("--")]
    target = words[0] if words else DEFAULT_ADDRESS
    if "--admin" in sys.argv[1:]:
        problem = check_admin(target)
    else:
        problem = check(target, has_tls="--tls" in sys.argv[1:])
    if problem is not None:
        sys.exit(f"unhealthy: {problem}")
