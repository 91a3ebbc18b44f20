"""Request and response headers.

    request header v1                     response header v0
    offset  size  name                    offset  size  name
    0       2     api_key                 0       4     correlation_id
    2       2     api_version
    4       4     correlation_id          v1 adds tagged fields behind it
    8       2+n   client_id, nullable     (one byte when there are none)

    request header v2 adds tagged fields behind client_id, which keeps its two-byte length.

Which header a request has follows from its key and version: flexible versions have the newer
one, in both directions, except that the answer to ApiVersions always has header v0.

Rule: an unknown key has header v1, so that its numbers can still be reported.
Must not know: which keys are served.
"""

from struct import Struct, error
from typing import Final

from kledger.gateway.wire.errors import MalformedMessage
from kledger.gateway.wire.primitives import (
    Buffer,
    DecodeError,
    read_uvarint,
    skip_tags,
    wrong_length,
)

PRODUCE_KEY: Final = 0
FETCH_KEY: Final = 1
API_VERSIONS_KEY: Final = 18
NEVER: Final = 0x7FFF

# fmt: off
FLEXIBLE_SINCE: Final[dict[int, int]] = {
    0: 9, 1: 12, 2: 6, 3: 9, 8: 8, 9: 6, 10: 3, 11: 6, 12: 4, 13: 4, 14: 4, 15: 5, 16: 3,
    17: NEVER, 18: 3, 19: 5, 20: 4, 21: 2, 22: 2, 23: 4, 24: 3, 25: 3, 26: 3, 27: 1, 28: 3, 29: 2,
    30: 2, 31: 2, 32: 4, 33: 2, 34: 2, 35: 2, 36: 2, 37: 2, 38: 2, 39: 2, 40: 2, 41: 2, 42: 2,
    43: 2, 44: 1, 45: 0, 46: 0, 47: NEVER, 48: 1, 49: 1, 50: 0, 51: 0, 52: 0, 53: 1, 54: 1,
    55: 0, 56: 0, 57: 0, 58: 0, 59: 0, 60: 0, 61: 0, 62: 0, 63: 0, 64: 0, 65: 0, 66: 0, 67: 0,
    68: 0, 69: 0, 70: 0, 71: 0, 72: 0, 73: 0, 74: 0, 75: 0, 76: 0, 77: 0, 78: 0, 79: 0, 80: 0,
    81: 0, 82: 0, 83: 0, 84: 0, 85: 0, 86: 0, 87: 0, 88: 0, 89: 0, 90: 0, 91: 0, 92: 0,
}
# fmt: on
"""First flexible version of every key of Kafka 4.3."""

# Filling slots costs half of what a constructor does, and there is one header per request.
_new_header: Final = object.__new__
REQUEST_HEAD: Final = Struct(">hhih")
"""Key, version, correlation id and size of the client id: how every request begins."""
_SIZE_V0: Final = Struct(">ii")
_SIZE_V1: Final = Struct(">iiB")


class RequestHeader:
    """The header of one request; `body_start` is where its body begins in the frame."""

    __slots__ = ("api_key", "api_version", "body_start", "client_id", "correlation_id")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        body_start: int,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body_start = body_start

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"RequestHeader({values})"


def is_flexible(key: int, version: int) -> bool:
    """Return whether a version of an API is flexible (KIP-482)."""
    return version >= FLEXIBLE_SINCE.get(key, NEVER)


def decode_request_header(frame: Buffer) -> RequestHeader:
    """Read the header at the start of a frame (the size prefix is not part of the frame).

    Raises:
        MalformedMessage: the frame is too short, or the client id or a tag is malformed.
    """
    pos = 0
    header = _new_header(RequestHeader)
    try:
        key, version, header.correlation_id, size = REQUEST_HEAD.unpack_from(frame)
        header.api_key, header.api_version, header.client_id = key, version, None
        pos = 10
        if size != -1:
            stop = pos + size
            if not pos <= stop <= len(frame):
                raise wrong_length(size, len(frame) - pos)
            header.client_id = str(frame[pos:stop], "utf-8")
            pos = stop
        if version >= FLEXIBLE_SINCE.get(key, NEVER):
            first = frame[pos]
            pos += 1
            if first:
                pos = skip_tags(frame, pos, len(frame), first)
    except (DecodeError, error, IndexError, UnicodeDecodeError) as fault:
        raise _malformed(fault, pos, len(frame)) from None
    header.body_start = pos
    return header


def _malformed(fault: Exception, pos: int, size: int) -> MalformedMessage:
    field, expected, got = "tagged fields", "tagged fields", f"{size - pos} bytes left"
    if isinstance(fault, error):
        field, expected = "api_key to client_id", f"{REQUEST_HEAD.size} bytes"
    elif isinstance(fault, UnicodeDecodeError):
        field, expected, got = "client_id", "UTF-8", f"byte {fault.object[fault.start]:#04x}"
    elif isinstance(fault, DecodeError):
        got = fault.got
        if fault.expected is None:
            field, expected = "client_id", "nullable string"
    return MalformedMessage(
        "RequestHeader", 2, position=pos, field=field, expected=expected, got=got
    )


def encode_request_header(
    key: int, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Write a request header; the server needs it in tests and probes only."""
    name = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(name)
    tags = b"\0" if is_flexible(key, version) else b""
    return REQUEST_HEAD.pack(key, version, correlation_id, size) + name + tags


def response_prefix(correlation_id: int, key: int, version: int, body_size: int) -> bytes:
    """Write size prefix and response header of a frame whose body has `body_size` bytes."""
    if key != API_VERSIONS_KEY and is_flexible(key, version):
        return _SIZE_V1.pack(body_size + 5, correlation_id, 0)
    return _SIZE_V0.pack(body_size + 4, correlation_id)


def response_body_start(frame: Buffer, key: int, version: int) -> int:
    """Return where the body of a response begins; for clients of the protocol.

    Raises:
        MalformedMessage: the frame ends inside the header, or a tag is malformed.
    """
    if key == API_VERSIONS_KEY or not is_flexible(key, version):
        return 4
    try:
        first, pos = read_uvarint(frame, 4)
        return skip_tags(frame, pos, len(frame), first) if first else pos
    except (DecodeError, IndexError):
        raise MalformedMessage(
            "ResponseHeader",
            1,
            position=4,
            field="tagged fields",
            expected="tagged fields",
            got=f"{len(frame) - 4} bytes",
        ) from None
