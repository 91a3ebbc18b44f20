"""What tests of this room share: a port."""

import socket
from collections.abc import Iterator

import pytest


@pytest.fixture
def port() -> Iterator[int]:
    """A port for servers that come and go: nobody else gets it between them."""
    with socket.socket() as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.bind(("127.0.0.1", 0))
        yield keeper.getsockname()[1]
