"""Healthy means that a Kafka request is answered, not that a port is open."""

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kledger.admin.standby_pages import standby_listener
from kledger.healthcheck import CORRELATION_ID, check, check_admin
from kledger.testing import ServerThread
from tests.kledger.test_listener_logins import settings_of


@contextmanager
def peer(answer: bytes) -> Iterator[str]:
    """Accept one connection, read the request, send `answer`, close."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(100)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def answer(correlation_id: int = CORRELATION_ID, error: int = 0, keys: int = 3) -> bytes:
    return struct.pack(">iihi", 28, correlation_id, error, keys) + bytes(6 * keys)


def test_answered_request_is_healthy() -> None:
    with peer(answer()) as address:
        assert check(address, 60) is None


def test_wrong_answers_are_not_healthy() -> None:
    for wrong in (
        answer(error=35),
        answer(correlation_id=1),
        answer(keys=0),
        b"HTTP/1.1 400 no\r\n",
    ):
        with peer(wrong) as address:
            assert "wrong answer" in str(check(address, 60))


def test_closed_connection_is_not_healthy() -> None:
    with peer(b"\0\0\0") as address:
        assert "closed the connection" in str(check(address, 60))


def test_silence_is_not_healthy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert "does not answer" in str(check(address, timeout_seconds=0.05))


def test_port_without_a_listener_is_not_healthy() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # keeps the port without listening
        port = silent.getsockname()[1]
        assert "does not answer" in str(check(f"127.0.0.1:{port}"))
    assert "expected HOST:PORT" in str(check("nowhere"))


def test_a_listener_with_tls_is_healthy_for_a_check_with_tls(tmp_path: Path) -> None:
    settings = settings_of(
        tmp_path, listeners="SASL_SSL://127.0.0.1:0", **{"sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    )
    del settings["listener.name.sasl_plaintext.plain.sasl.jaas.config"], settings["native.tls"]
    with ServerThread(settings=settings) as server:
        assert check(server.kafka_address, 60, has_tls=True) is None
        assert check(server.kafka_address, 60) is not None


def test_a_server_with_an_admin_listener_is_healthy() -> None:
    with ServerThread(admin="127.0.0.1:0") as server:
        assert check_admin(server.admin_address, 60) is None


async def test_a_broker_that_waits_is_healthy() -> None:
    listener = standby_listener()
    host, port = await listener.start("127.0.0.1", 0)
    try:
        assert await asyncio.to_thread(check_admin, f"{host}:{port}", 60) is None
    finally:
        await listener.stop()


def test_wrong_answers_of_an_admin_listener_are_not_healthy() -> None:
    for wrong in (b"HTTP/1.1 503 Service Unavailable\r\n", b"HTTP/1.1 20", answer()):
        with peer(wrong) as address:
            assert "wrong answer" in str(check_admin(address, 60))
    assert "expected HOST:PORT" in str(check_admin("nowhere"))


def test_a_port_without_an_admin_listener_is_not_healthy() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # keeps the port without listening
        assert "does not answer" in str(check_admin(f"127.0.0.1:{silent.getsockname()[1]}"))
