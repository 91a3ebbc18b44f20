"""Limits of connections, against a server process, as a client's socket sees them.

Rule: what is expected here is what Apache Kafka 4.3 was seen to do. Its own connections count, too,
for a while after its start, so these tests are for kledger alone.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from compat_tests.conftest import make_kledger
from compat_tests.deadlines import WAIT_S
from compat_tests.servers import ServerProcess

Start = Callable[[Mapping[str, str]], ServerProcess]
SILENCE_S = 0.5
IDLE_MS = 2_000
# Metadata, version 1, of no topics.
QUESTION = struct.pack(">hhih4si", 3, 1, 7, 4, b"test", 0)
EACH_NODE = pytest.mark.one_broker("each node counts the connections that it accepts")
ANSWERED, ENDED, SILENT = "answered", "ended", "silent"


@pytest.fixture
def start(pytestconfig: pytest.Config, tmp_path: Path) -> Iterator[Start]:
    """Start a server with settings; it is stopped behind the test."""
    with ExitStack() as stack:

        def started(settings: Mapping[str, str]) -> ServerProcess:
            return stack.enter_context(make_kledger(pytestconfig, tmp_path, settings))

        yield started


@contextmanager
def connections(server: ServerProcess, count: int) -> Iterator[list[socket.socket]]:
    """Open connections, one after the other."""
    with ExitStack() as stack:
        address = server.host, server.port
        yield [
            stack.enter_context(socket.create_connection(address, timeout=WAIT_S))
            for _ in range(count)
        ]


def outcome(connection: socket.socket, wait_s: float = WAIT_S) -> str:
    """Tell what comes next on a connection."""
    connection.settimeout(wait_s)
    try:
        return ANSWERED if connection.recv(1 << 16) else ENDED
    except TimeoutError:
        return SILENT
    except ConnectionError:
        return ENDED


def asked(connection: socket.socket, wait_s: float = WAIT_S) -> str:
    """Ask something and tell what came."""
    try:
        connection.sendall(len(QUESTION).to_bytes(4, "big") + QUESTION)
    except ConnectionError:
        return ENDED
    return outcome(connection, wait_s)


@EACH_NODE
@pytest.mark.parametrize(
    "settings",
    [
        {"max.connections.per.ip": "2"},
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:2"},
    ],
)
def test_an_address_has_so_many_connections(start: Start, settings: dict[str, str]) -> None:
    with connections(start(settings), 4) as opened:
        assert [ANSWERED, ANSWERED, ENDED, ENDED] == [asked(one) for one in opened]
        assert ANSWERED == asked(opened[0])


@EACH_NODE
def test_connections_beyond_max_connections_wait(start: Start) -> None:
    with connections(start({"max.connections": "2"}), 4) as opened:
        assert [ANSWERED, ANSWERED] == [asked(one) for one in opened[:2]]
        assert [SILENT, SILENT] == [asked(one, SILENCE_S) for one in opened[2:]]
        opened[0].close()
        assert ANSWERED == outcome(opened[2])
        assert SILENT == outcome(opened[3], SILENCE_S)
        assert ANSWERED == asked(opened[1])


def test_idle_and_stalled_connections_are_ended(start: Start) -> None:
    server = start({"connections.max.idle.ms": str(IDLE_MS)})
    begun = time.monotonic()
    with connections(server, 3) as opened:
        silent, spoke, stalled = opened
        # On a machine that stands still for so long, the end may come before the question.
        if ANSWERED == asked(spoke):
            assert ENDED == outcome(spoke)
        with suppress(ConnectionError):
            stalled.sendall((1_000).to_bytes(4, "big") + QUESTION[:5])
        assert [ENDED] * 2 == [outcome(one) for one in (silent, stalled)]
        assert time.monotonic() - begun > IDLE_MS / 1000 / 2


def test_requests_have_a_size(start: Start) -> None:
    largest = 10_000
    server = start({"socket.request.max.bytes": str(largest)})
    with connections(server, 4) as opened:
        for one, size in zip(opened, (-1, largest + 1, 2**31 - 1), strict=False):
            one.sendall(size.to_bytes(4, "big", signed=True))
            assert ENDED == outcome(one)
        # One that is as large as may be is read to its end, and only then found to be nothing.
        opened[3].sendall(largest.to_bytes(4, "big") + b"\xff" * (largest - 1))
        assert SILENT == outcome(opened[3], SILENCE_S)
        opened[3].sendall(b"\xff")
        assert ENDED == outcome(opened[3])
    with connections(server, 1) as (another,):
        assert ANSWERED == asked(another)
