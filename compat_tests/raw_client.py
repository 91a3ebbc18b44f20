"""Raw client: a few requests by hand, for what no client library lets a test ask.

Rule: one request at a time over one socket, at one fixed version per API; what comes back is given
as plain numbers, errors too, because two servers are compared by them.

| API           | version | why this one                                          |
|---------------|---------|-------------------------------------------------------|
| Produce       | 7       | the newest layout before compact arrays; knows zstd   |
| DeleteRecords | 1       | the same                                              |
| ListOffsets   | 11      | the first that knows all special times                |
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, Self

from confluent_kafka.admin import AdminClient

from compat_tests.deadlines import WAIT_MS, WAIT_S, ask_until, wait_until
from compat_tests.frames import read_frame

_PRODUCE, _LIST_OFFSETS, _DELETE_RECORDS = 0, 2, 21
_CLIENT = b"raw"


class Produced(NamedTuple):
    """The answer to one produced batch; the time is -1 unless the log gave it."""

    error_code: int
    base_offset: int
    log_append_time_ms: int


class Found(NamedTuple):
    """The answer to one question for an offset."""

    error_code: int
    timestamp: int
    offset: int
    leader_epoch: int


class RawClient:
    """One connection; partition 0 of a topic is meant everywhere."""

    def __init__(self, address: str) -> None:
        """Connect."""
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=WAIT_S)
        self._correlation = 0

    def __enter__(self) -> Self:
        """Stay open."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Hang up."""
        self._socket.close()

    def produce(self, topic: str, batch: bytes | bytearray) -> Produced:
        """Send one batch and wait until all replicas have it."""
        body = struct.pack(">hhi", -1, -1, WAIT_MS) + struct.pack(">i", 1) + _string(topic)
        body += struct.pack(">iii", 1, 0, len(batch)) + batch
        answer = self._ask(_PRODUCE, 7, body)
        at = 4 + 2 + len(topic.encode()) + 4 + 4
        return Produced(*struct.unpack_from(">hqq", answer, at))

    def delete_records(self, topic: str, before_offset: int) -> tuple[int, int]:
        """Move the log start; give the low watermark and the error."""
        body = struct.pack(">i", 1) + _string(topic)
        body += struct.pack(">iiqi", 1, 0, before_offset, WAIT_MS)
        answer = self._ask(_DELETE_RECORDS, 1, body)
        at = 4 + 4 + 2 + len(topic.encode()) + 4 + 4
        low_watermark, error_code = struct.unpack_from(">qh", answer, at)
        return low_watermark, error_code

    def list_offsets(self, topic: str, times: Sequence[int]) -> list[Found]:
        """Ask for the offset of each time, one request each."""
        return [self._list_offset(topic, each) for each in times]

    def _list_offset(self, topic: str, time: int) -> Found:
        name = topic.encode()
        body = struct.pack(">ibBB", -1, 0, 2, len(name) + 1) + name  # two topics minus one
        body += struct.pack(">BiiqBBiB", 2, 0, -1, time, 0, 0, WAIT_MS, 0)
        answer = self._ask(_LIST_OFFSETS, 11, body, is_flexible=True)
        at = 1 + 4 + 1 + 1 + len(name) + 1 + 4
        return Found(*struct.unpack_from(">hqqi", answer, at))

    def leads(self, topic: str) -> bool:
        """Whether the server answers for the partition."""
        return self.list_offsets(topic, [0])[0].error_code == 0

    def _ask(self, key: int, version: int, body: bytes, *, is_flexible: bool = False) -> bytes:
        """Send a request; give the response behind its correlation id."""
        self._correlation += 1
        header = struct.pack(">hhi", key, version, self._correlation)
        header += struct.pack(">h", len(_CLIENT)) + _CLIENT + (b"\0" if is_flexible else b"")
        self._socket.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        answer = read_frame(self._socket)
        (correlation,) = struct.unpack_from(">i", answer)
        assert correlation == self._correlation, f"answer to {correlation}"
        return answer[4:]


@contextmanager
def leader_client(bootstrap: str, topic: str) -> Iterator[RawClient]:
    """Connect to the broker that leads a topic, as soon as it does.

    A broker leads a new partition a moment after others say so.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def leader() -> str:
        metadata = admin.list_topics(timeout=WAIT_S)
        found = metadata.topics.get(topic)
        broker = metadata.brokers.get(found.partitions[0].leader) if found is not None else None
        return "" if broker is None else f"{broker.host}:{broker.port}"

    with RawClient(ask_until(leader, bool, f"{bootstrap} knows who leads {topic}")) as client:
        wait_until(partial(client.leads, topic), f"its broker leads {topic}")
        yield client


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded
