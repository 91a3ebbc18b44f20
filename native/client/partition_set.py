"""The partitions of a producer or a consumer, opened and closed together.

Rule: all or none are open; one that cannot be closed does not keep the others.
Must not know: what they are.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from kledger.native.client.services import ClientServices
from kledger.native.errors import KledgerError


class OpenClose(Protocol):
    """One of several."""

    async def open(self) -> None:
        """Become usable."""
        ...

    async def close(self) -> None:
        """Let go; may be called on one that was never open."""
        ...


async def open_all(parts: Sequence[OpenClose]) -> None:
    """Open all at once; when one cannot be, close all and raise its error."""
    try:
        _raise_first(await asyncio.gather(*(each.open() for each in parts), return_exceptions=True))
    except BaseException:
        await asyncio.gather(*(each.close() for each in parts), return_exceptions=True)
        raise


async def close_all(parts: Sequence[OpenClose]) -> None:
    """Close all at once; raise the first error when all are done."""
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
    """Call `add_partitions` with new partitions, as often as there are some; never return."""
    while True:
        await services.clock.sleep(services.partition_refresh_ms)
        try:
            found = (await services.broker.lookup(topic, create=False)).partition_count
            if found > partition_count:
                await add_partitions(range(partition_count, found))
                partition_count = found
        except KledgerError:
            continue
