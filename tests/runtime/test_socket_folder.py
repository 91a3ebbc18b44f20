"""Sockets in folders whose path is longer than that of a socket may be."""

import os
import socket
from pathlib import Path

import pytest

from kledger.runtime.socket_folder import open_socket_folder, socket_path

PATH_BYTES_MAX = 107


def test_a_socket_in_a_folder_with_a_long_path(tmp_path: Path) -> None:
    folder = tmp_path / ("a" * PATH_BYTES_MAX)
    folder.mkdir()
    opened = open_socket_folder(folder)
    try:
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound,
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
        ):
            bound.bind(socket_path(opened, "wake"))
            assert (folder / "wake").is_socket()
            sender.sendto(b"x", socket_path(opened, "wake"))
            assert b"x" == bound.recv(1)
    finally:
        os.close(opened)


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_socket_folder(tmp_path / "missing")
