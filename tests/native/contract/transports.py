"""The transports that every test of this folder uses.

A new one adds a line to `TRANSPORTS`: a function that returns an asynchronous context manager
around an open client of an empty server.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import MappingProxyType

import kledger
from kledger.testing import Server
from tests.native.contract.words import SOON_MS
from tests.native.two_workers import two_workers

NO_SETTINGS: Mapping[str, object] = MappingProxyType({})


@asynccontextmanager
async def embedded(settings: Mapping[str, object] = NO_SETTINGS) -> AsyncIterator[kledger.Client]:
    """The server in this process."""
    async with kledger.embedded(None, settings=settings, operation_timeout_ms=SOON_MS) as client:
        yield client


@asynccontextmanager
async def remote(settings: Mapping[str, object] = NO_SETTINGS) -> AsyncIterator[kledger.Client]:
    """A server behind a socket; in this process too, so that a failure shows both sides."""
    async with (
        Server(native="127.0.0.1:0", settings=dict(settings)) as server,
        kledger.connect(
            f"kledger://{server.native_address}", operation_timeout_ms=SOON_MS
        ) as client,
    ):
        yield client


@asynccontextmanager
async def workers(settings: Mapping[str, object] = NO_SETTINGS) -> AsyncIterator[kledger.Client]:
    """Two workers, which lead partitions by turns; connected to the one without the first."""
    async with (
        two_workers(settings) as (_, second),
        kledger.connect(
            f"kledger://{second.native_address}", operation_timeout_ms=SOON_MS
        ) as client,
    ):
        yield client


TRANSPORTS: dict[str, Callable[..., AbstractAsyncContextManager[kledger.Client]]] = {
    "embedded": embedded,
    "remote": remote,
    "workers": workers,
}
