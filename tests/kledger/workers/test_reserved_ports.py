"""Ports that nobody takes while a worker is away."""

import socket
from collections.abc import Iterator

import pytest

from kledger.workers.reserved_ports import ReservedPorts
from kledger.workers.worker_plan import WorkersMistake
from tests.kledger.workers.running_workers import fixed_ports

HOST = "127.0.0.1"


@pytest.fixture
def ports() -> Iterator[ReservedPorts]:
    made = ReservedPorts()
    yield made
    made.close()


def listening(port: int, *, as_worker: bool) -> socket.socket:
    """Listen as asyncio does."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if as_worker:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        made.bind((HOST, port))
        made.listen()
    except BaseException:
        made.close()
        raise
    return made


def answers(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), 60).close()
    except ConnectionRefusedError:
        return False
    return True


def test_several_workers_listen_and_no_other_server(ports: ReservedPorts) -> None:
    host, port = ports.reserve("kafka", (HOST, 0))
    assert HOST == host
    assert not answers(port)
    with pytest.raises(OSError, match="in use"):
        listening(port, as_worker=False)
    with listening(port, as_worker=True), listening(port, as_worker=True):
        assert answers(port)
        with pytest.raises(OSError, match="in use"):
            listening(port, as_worker=False)


def test_connections_go_to_the_worker_that_is_left(ports: ReservedPorts) -> None:
    """The parent's own socket gets none of them, or some clients would wait for ever."""
    _, port = ports.reserve("kafka", (HOST, 0))
    with listening(port, as_worker=True) as left:
        with listening(port, as_worker=True):
            pass
        for _ in range(50):
            with socket.create_connection((HOST, port), 60) as client:
                accepted, peer = left.accept()
                accepted.close()
                assert client.getsockname() == peer


def test_port_of_another_server_is_refused(ports: ReservedPorts) -> None:
    with listening(0, as_worker=False) as other:
        port = other.getsockname()[1]
        with pytest.raises(WorkersMistake, match=f"^native 127.0.0.1:{port}: Address already in"):
            ports.reserve("native", (HOST, port))


def test_port_of_the_workers_of_another_parent_is_refused(ports: ReservedPorts) -> None:
    """They listen with the same option and belong to the same user: the kernel would allow it."""
    with listening(0, as_worker=True) as other:
        port = other.getsockname()[1]
        with pytest.raises(WorkersMistake, match="in use"):
            ports.reserve("kafka", (HOST, port))


def test_port_that_another_parent_has_reserved_is_refused(ports: ReservedPorts) -> None:
    port = fixed_ports(1)
    ports.reserve("kafka", (HOST, port))
    other = ReservedPorts()
    with pytest.raises(WorkersMistake, match="in use"):
        other.reserve("kafka", (HOST, port))
    ports.close()
    assert (HOST, port) == other.reserve("kafka", (HOST, port))
    other.close()


@pytest.mark.parametrize("as_worker", [False, True])
def test_closed_connections_of_a_server_of_before_are_no_obstacle(
    ports: ReservedPorts, as_worker: bool
) -> None:
    with listening(0, as_worker=as_worker) as before:
        port = before.getsockname()[1]
        with socket.create_connection((HOST, port), 60) as client:
            before.accept()[0].close()
            assert b"" == client.recv(1)  # the server has closed first, so its end waits
    assert (HOST, port) == ports.reserve("kafka", (HOST, port))
    with listening(port, as_worker=True):
        assert answers(port)


def test_every_address_of_a_name_gets_the_same_port(ports: ReservedPorts) -> None:
    _, port = ports.reserve("kafka", ("localhost", 0))
    for family, *_, address in set(socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM)):
        with socket.socket(family) as other, pytest.raises(OSError, match="in use"):
            other.bind(address)


def test_unknown_host_is_a_mistake(ports: ReservedPorts) -> None:
    with pytest.raises(WorkersMistake, match=r"^kafka no\.such\.host\.invalid:0: "):
        ports.reserve("kafka", ("no.such.host.invalid", 0))
