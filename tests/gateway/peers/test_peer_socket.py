"""The socket in a broker's folder: its mode, its life, and paths that are long."""

import os
import socket
import stat
from pathlib import Path

import pytest

from kledger.gateway.peers.peer_socket import SOCKET_NAME, bind_peer_socket, peer_socket_path


def connected(folder: Path) -> socket.socket:
    """Connect to the peer of a folder."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with peer_socket_path(folder) as path:
        client.connect(path)
    return client


def open_numbers() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_only_its_user_can_open_the_socket(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with bind_peer_socket(tmp_path) as bound:
            mode = (tmp_path / SOCKET_NAME).stat().st_mode
            assert stat.S_ISSOCK(mode)
            assert 0o600 == stat.S_IMODE(mode)
            assert not bound.getblocking()
    finally:
        os.umask(before)


def test_nobody_connects_before_it_listens(tmp_path: Path) -> None:
    with bind_peer_socket(tmp_path) as bound:
        with pytest.raises(ConnectionRefusedError):
            connected(tmp_path)
        bound.listen()
        connected(tmp_path).close()


def test_a_file_of_an_earlier_process_is_replaced(tmp_path: Path) -> None:
    with bind_peer_socket(tmp_path) as dead:
        dead.listen()
    with pytest.raises(ConnectionRefusedError):
        connected(tmp_path)
    with bind_peer_socket(tmp_path) as bound:
        bound.listen()
        connected(tmp_path).close()


def test_a_folder_may_have_a_long_path(tmp_path: Path) -> None:
    folder = tmp_path / ("a" * 120) / ("b" * 120)
    folder.mkdir(parents=True)
    with bind_peer_socket(folder) as bound:
        bound.listen()
        connected(folder).close()
        assert (folder / SOCKET_NAME).is_socket()


def test_a_folder_that_is_missing_is_an_error_and_leaves_nothing_open(tmp_path: Path) -> None:
    before = open_numbers()
    with pytest.raises(FileNotFoundError):
        bind_peer_socket(tmp_path / "missing")
    (tmp_path / SOCKET_NAME).mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        bind_peer_socket(tmp_path)
    assert before == open_numbers()
