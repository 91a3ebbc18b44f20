"""The partitions of a producer or a consumer: opened, closed and extended together.

Rule: all are open or none. A partition that cannot be closed does not keep the others open.
Must not know: producers, consumers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from kledger.native.client.services import ClientServices
from kledger.native.errors import KledgerError


class Closeable(Protocol):
    """Something that is closed."""

    async def close(self) -> None:
        """Disconnect, also if it was never open."""
        ...


class OpenClose(Closeable, Protocol):
    """One partition of a producer or a consumer."""

    async def open(self) -> None:
        """Connect."""
        ...


async def open_all(parts: Sequence[OpenClose], *, first_alone: bool = False) -> None:
    """Open all concurrently; if one fails, close all and raise its error.

    Args:
        parts: of one topic.
        first_alone: open the others after the first one. Of several that exclude each other, one
            then gets all; otherwise each could get some, and all would fail again and again.
    """
    try:
        if first_alone and parts:
            await parts[0].open()
        rest = parts[first_alone:]
        _raise_first(await asyncio.gather(*(each.open() for each in rest), return_exceptions=True))
    except BaseException:
        await asyncio.gather(*(each.close() for each in parts), return_exceptions=True)
        raise


async def close_all(parts: Sequence[Closeable]) -> None:
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
    *,
    interval_ms: int | None = None,
) -> None:
    """Look for new partitions from time to time, for ever, and pass them to `add_partitions`.

    An error is retried after the next interval; None: that of the client.
    """
    if interval_ms is None:
        interval_ms = services.partition_refresh_ms
    while True:
        await services.clock.sleep(interval_ms)
        try:
            found = (await services.broker.lookup(topic, create=False)).partition_count
            if found > partition_count:
                await add_partitions(range(partition_count, found))
                partition_count = found
        except KledgerError:
            continue
