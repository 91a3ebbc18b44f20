"""Words that the tests of the service share."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kledger.delivery.partition_directory import PartitionDirectory
from kledger.ledger import StoreConfig
from kledger.ledger.testing import FaultyEngine
from kledger.named_topics.service import NamedTopicService
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from tests.topics.words import TopicStore, open_topics


async def ticks() -> None:
    """Let the loop run for a moment."""
    for _ in range(30):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    """Return when a condition holds."""
    async with asyncio.timeout(60):
        while not condition():
            await ticks()


@asynccontextmanager
async def running(engine: FaultyEngine) -> AsyncIterator[tuple[TopicStore, NamedTopicService]]:
    """A service over an engine; it ends as if the process were killed."""
    crashes: list[BaseException] = []
    supervisor = Supervisor(crashes.append)
    async with open_topics(
        engine, store_config=StoreConfig(durability="fsync"), is_closed_cleanly=False
    ) as opened:
        timers = Timers(opened.clock, supervisor)
        service = NamedTopicService(
            store=opened.store,
            registry=opened.registry,
            partitions=PartitionDirectory(
                opened.registry, clock=opened.clock, timers=timers, supervisor=supervisor
            ),
            clock=opened.clock,
            timers=timers,
            supervisor=supervisor,
        )
        try:
            yield opened, service
        finally:
            await supervisor.close()
    assert [] == crashes
