"""The ways to a server that every test of this folder goes.

A new one adds a line to `TRANSPORTS`: a function that returns an asynchronous context manager
around an open client of an empty server.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import kledger


@asynccontextmanager
async def embedded() -> AsyncIterator[kledger.Client]:
    """The server in this process."""
    async with kledger.embedded(None) as client:
        yield client


TRANSPORTS: dict[str, Callable[[], AbstractAsyncContextManager[kledger.Client]]] = {
    "embedded": embedded,
}
