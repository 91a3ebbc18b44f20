"""Errors between bytes and values.

    WireError
      ├── MalformedMessage    the peer sent bytes that are not the message they claim to be
      ├── InvalidFrameSize    the peer announced a frame that will not be read
      ├── UnencodableMessage  we built a message that cannot be written: our fault
      └── UnsupportedVersion  we asked for a version that the message does not have: our fault

Rule: the peer's faults and ours are different types; a peer's fault closes its connection only.
Must not know: sockets, handlers, error codes.
"""


class WireError(Exception):
    """Base of everything this package raises."""


class MalformedMessage(WireError):
    """Bytes of a peer do not follow the schema.

    Attributes:
        message: schema name, such as `HeartbeatRequest`.
        version: API version the bytes were read as.
        position: offset in the buffer where reading stopped.
        field: path of the field, such as `topics[].partitions[].index`.
        expected: what the schema has there.
        got: what the bytes have there.
    """

    def __init__(
        self, message: str, version: int, *, position: int, field: str, expected: str, got: str
    ) -> None:
        super().__init__(
            f"{message} v{version}, byte {position}, {field}: expected {expected}, got {got}"
        )
        self.message = message
        self.version = version
        self.position = position
        self.field = field
        self.expected = expected
        self.got = got


class InvalidFrameSize(WireError):
    """A size prefix is not positive, or above the limit that holds for the connection."""

    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(f"frame of {size} bytes, expected 1 to {size_max}")
        self.size = size
        self.size_max = size_max


class UnencodableMessage(WireError):
    """A value does not fit its field: out of range, null where forbidden, of another type."""

    def __init__(self, message: str, version: int, *, field: str, reason: str) -> None:
        super().__init__(f"{message} v{version}, {field}: {reason}")
        self.message = message
        self.version = version
        self.field = field


class UnsupportedVersion(WireError):
    """The message has no such version."""

    def __init__(self, message: str, version: int, versions: str) -> None:
        super().__init__(f"{message} has versions {versions}, asked for {version}")
        self.message = message
        self.version = version
