"""A reserved port is its owner's, whether a server listens on it or not."""

import errno
import socket

import pytest

from compat_tests.servers.ports import ReservedPort, reserve_run


def test_only_a_server_that_shares_the_port_listens_on_it_again_and_again() -> None:
    """A stranger is a socket without SO_REUSEADDR, as those are that leave the choice to bind()."""
    with ReservedPort() as reserved:
        address = "127.0.0.1", reserved.number
        for _ in range(2):
            with socket.create_server(address), socket.create_connection(address):
                pass
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address)
            with socket.socket() as stranger, pytest.raises(OSError, match="in use") as refused:
                stranger.bind(address)
            assert errno.EADDRINUSE == refused.value.errno


def test_two_reserved_ports_differ() -> None:
    with ReservedPort() as one, ReservedPort() as other:
        assert one.number != other.number


def test_port_that_was_let_go_is_anybodys() -> None:
    with ReservedPort() as reserved:
        address = "127.0.0.1", reserved.number
    with socket.socket() as stranger:
        stranger.bind(address)


def test_run_of_ports_is_reserved_whole_and_once() -> None:
    """Two that reserve at the same time get different ones, the following ports too."""
    runs = [reserve_run("127.0.0.1", 3) for _ in range(20)]
    try:
        for run in runs:
            first = run[0].number
            assert [first, first + 1, first + 2] == [each.number for each in run]
        assert 60 == len({each.number for run in runs for each in run})
    finally:
        for run in runs:
            for each in run:
                each.close()
