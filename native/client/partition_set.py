"""The partitions of a producer or a consumer: opened, closed and extended together.

Rule: all are open or none. A partition that cannot be closed does not keep the others open.
Must not know: producers, consumers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from kledger.native.client.services import ClientServices
from kledger.native.errors import KledgerError


class OpenClose(Protocol):
    """One partition of a producer or a consumer."""

    async def open(self) -> None:
        """Connect."""
        ...

    async def close(self) -> None:
        """Disconnect, also if it was never open."""
        ...


async def open_all(parts: Sequence[OpenClose]) -> None:
    """Open all concurrently; if one fails, close all and raise its error."""
    try:
        _raise_first(await asyncio.gather(*(each.open() for each in parts), return_exceptions=True))
    except BaseException:
        await asyncio.gather(*(each.close() for each in parts), return_exceptions=True)
        raise


async def close_all(parts: Sequence[OpenClose]) -> None:
    """Close all concurrently; raise the first error when all have finished."""
    _raise_first(await asyncio.gather(*(each.close() for each in parts), return_exceptions=True))


def _raise_first(outcomes: Sequence[BaseException | None]) -> None:
    for outcome in outcomes:
        if outcome is not None:
            raise outcome


async def watch_partitions(
    services: ClientServices,
    topic: str,
    partition_count: int,
    add_partitions: Callable[[range], Awaitable[None]],
) -> None:
    """Look for new partitions from time to time, for ever, and pass them to `add_partitions`.

    An error is retried after the next interval.
    """
    while True:
        await services.clock.sleep(services.partition_refresh_ms)
        try:
            found = (await services.broker.lookup(topic, create=False)).partition_count
            if found > partition_count:
                await add_partitions(range(partition_count, found))
                partition_count = found
        except KledgerError:
            continue
