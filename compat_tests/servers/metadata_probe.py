"""Metadata probe: is a Kafka server there, and does it answer with itself as a broker?

Rule: one hand-made Metadata request of version 1 and nothing else, so that what is measured is the
server's start and not that of a client.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable

from compat_tests.frames import read_frame

_METADATA = 3
_VERSION = 1
_CLIENT = b"probe"
_POLL_S = 0.01


def metadata_request() -> bytes:
    """Build a framed Metadata request, version 1, that names no topic."""
    header = struct.pack(f">hhih{len(_CLIENT)}s", _METADATA, _VERSION, 1, len(_CLIENT), _CLIENT)
    body = struct.pack(">i", 0)
    return struct.pack(">i", len(header) + len(body)) + header + body


def broker_count(response: bytes) -> int:
    """Read the number of brokers from an unframed Metadata response of version 1."""
    correlation, count = struct.unpack_from(">ii", response)
    if correlation != 1:
        raise ValueError(f"correlation id {correlation}, expected 1")
    return int(count)


def answers(host: str, port: int, *, timeout_s: float) -> bool:
    """Ask once; true when the answer names at least one broker."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(metadata_request())
            return broker_count(read_frame(connection)) > 0
    except OSError:
        return False


def wait_until_answered(
    host: str, port: int, *, deadline: float, is_worth_it: Callable[[], bool]
) -> bool:
    """Ask again and again until the answer names a broker; false at the deadline (monotonic)."""
    while is_worth_it() and time.monotonic() < deadline:
        if answers(host, port, timeout_s=max(deadline - time.monotonic(), _POLL_S)):
            return True
        time.sleep(_POLL_S)
    return False
