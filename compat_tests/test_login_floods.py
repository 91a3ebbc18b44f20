"""A client logs in while others hold connections open, or begin handshakes without end.

Rule: a test waits until the flood is there, and checks what the client gets, never how fast.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from confluent_kafka import Producer

from compat_tests.deadlines import WAIT_S, wait_until
from compat_tests.secured_server import SecuredServer, of_listeners

SILENT_COUNT = 2_000
UNAUTHENTICATED_MAX = 1_024
FLOOD_THREADS = 4
HANDSHAKES_BEFORE = 200


def address_of(secured: SecuredServer, listener: str) -> tuple[str, int]:
    host, port = secured.addresses[listener].split(",")[0].rsplit(":", 1)
    return host, int(port)


def check_client(secured: SecuredServer, listener: str, topic: str) -> None:
    """Let a client log in, write and read."""
    producer = Producer(secured.librdkafka(listener))
    producer.produce(topic, b"through the flood")
    assert 0 == producer.flush(WAIT_S)
    assert b"through the flood" == secured.first_value(topic, listener)


def closed_count(connections: list[socket.socket]) -> int:
    """Return how many of the connections the server has closed."""
    poll = select.poll()
    for each in connections:
        poll.register(each, select.POLLIN)
    return len(poll.poll(0))


@pytest.mark.one_broker("each node counts the connections that it accepts")
@of_listeners
def test_silent_connections_keep_no_client_out(
    secured: SecuredServer, topic: str, listener: str
) -> None:
    """Above the limit the oldest one is closed, so a new client always has its turn."""
    with ExitStack() as stack:
        silent = [
            stack.enter_context(
                socket.create_connection(address_of(secured, listener), timeout=WAIT_S)
            )
            for _ in range(SILENT_COUNT)
        ]
        wait_until(
            lambda: closed_count(silent) >= SILENT_COUNT - UNAUTHENTICATED_MAX,
            "the oldest silent connections are closed",
        )
        check_client(secured, listener, topic)


class HandshakeFlood:
    """Threads that begin handshakes of TLS without end: every other one they leave half done."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._context = ssl.create_default_context()
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(FLOOD_THREADS)]
        self.count = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Flood the server, as soon as so many handshakes have begun."""
        for each in self._threads:
            each.start()
        try:
            self.wait_for_more(HANDSHAKES_BEFORE)
            yield
        finally:
            self._is_over.set()
            for each in self._threads:
                each.join()

    def wait_for_more(self, count: int) -> None:
        """Wait until so many more handshakes have begun."""
        wanted = self.count + count
        wait_until(lambda: self.count >= wanted, f"{wanted} handshakes")

    def _run(self) -> None:
        while not self._is_over.is_set():
            # From an address of its own: whatever counts against this one is not the client's.
            with (
                suppress(OSError),
                socket.create_connection(
                    self._address, timeout=WAIT_S, source_address=("127.0.0.2", 0)
                ) as connection,
            ):
                self._begin(connection)
            self.count += 1

    def _begin(self, connection: socket.socket) -> None:
        """Send the first message; every other time go on to the end."""
        if self.count % 2:
            with self._context.wrap_socket(connection):
                return
        outgoing = ssl.MemoryBIO()
        near = self._context.wrap_bio(ssl.MemoryBIO(), outgoing)
        with suppress(ssl.SSLWantReadError):
            near.do_handshake()
        connection.sendall(outgoing.read())


@of_listeners
def test_handshakes_without_end_keep_no_client_out(
    secured: SecuredServer, topic: str, listener: str
) -> None:
    flood = HandshakeFlood(address_of(secured, listener))
    with flood.running():
        check_client(secured, listener, topic)
        flood.wait_for_more(1)
