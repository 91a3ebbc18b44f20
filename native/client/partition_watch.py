"""Looks from time to time whether a topic has got more partitions.

Rule: what cannot be found out now is found out the next time; links that end say why themselves.
Must not know: who uses partitions for what.
"""

from collections.abc import Awaitable, Callable

from kledger.native.client.services import ClientServices
from kledger.native.errors import KledgerError


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
