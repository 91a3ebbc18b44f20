"""Fixtures of all tests of this package: a port."""

import socket
from collections.abc import Iterator

import pytest


@pytest.fixture
def port() -> Iterator[int]:
    """A port for successive servers; no other process can bind it between them."""
    with socket.socket() as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.bind(("127.0.0.1", 0))
        yield keeper.getsockname()[1]
