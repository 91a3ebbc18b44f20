"""The load balancer of the demonstration: one address, behind it whoever accepts connections."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from cluster_demo.balancer import PIECE_BYTES, Balancer
from kledger.setting_values import split_address

HOST = "127.0.0.1"
WAIT_S = 60


@contextmanager
def broker(port: int = 0) -> Iterator[socket.socket]:
    with socket.create_server((HOST, port)) as listener:
        listener.settimeout(WAIT_S)
        yield listener


@contextmanager
def silent_port() -> Iterator[int]:
    """Keep a port on which nobody listens."""
    with socket.socket() as silent:
        silent.bind((HOST, 0))
        yield silent.getsockname()[1]


def client(balancer: Balancer) -> socket.socket:
    return socket.create_connection(split_address("balancer", balancer.address), WAIT_S)


def port_of(listener: socket.socket) -> int:
    number: int = listener.getsockname()[1]
    return number


def received(connection: socket.socket, size: int) -> bytes:
    connection.settimeout(WAIT_S)
    found = b""
    while len(found) < size:
        piece = connection.recv(size - len(found))
        assert piece, f"ended after {len(found)} of {size} bytes"
        found += piece
    return found


def test_connection_goes_to_the_broker_that_accepts_and_carries_both_directions() -> None:
    request, response = bytes(3 * PIECE_BYTES), b"response" * PIECE_BYTES
    with (
        silent_port() as waiting,
        broker() as owner,
        Balancer(HOST, [waiting, port_of(owner)]) as balancer,
        client(balancer) as connected,
    ):
        accepted, _ = owner.accept()
        with accepted:
            connected.sendall(request)
            assert request == received(accepted, len(request))
            accepted.sendall(b"response" * PIECE_BYTES)
            assert response == received(connected, len(response))


def test_client_sees_the_end_of_its_broker_and_gets_to_the_next_one() -> None:
    with (
        broker() as first,
        broker() as second,
        Balancer(HOST, [port_of(first), port_of(second)]) as balancer,
    ):
        with client(balancer) as connected:
            accepted, _ = first.accept()
            first.close()
            accepted.close()
            assert b"" == ended(connected)
        with client(balancer) as connected:
            accepted, _ = second.accept()
            with accepted:
                connected.sendall(b"again")
                assert b"again" == received(accepted, 5)


def test_connection_without_an_owner_is_ended() -> None:
    with (
        silent_port() as port,
        Balancer(HOST, [port]) as balancer,
        client(balancer) as connected,
    ):
        assert b"" == ended(connected)


def test_end_of_the_balancer_ends_connections() -> None:
    with broker() as owner:
        with Balancer(HOST, [port_of(owner)]) as balancer:
            connected = client(balancer)
            accepted, _ = owner.accept()
        with connected, accepted:
            assert b"" == ended(connected)
            assert b"" == ended(accepted)


def ended(connection: socket.socket) -> bytes:
    """Return what is still received before the end, in order or by a reset."""
    connection.settimeout(WAIT_S)
    try:
        return connection.recv(1)
    except ConnectionResetError:
        return b""
