"""Partitions with subscriptions for tests: topics in memory, a clock that the test moves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kledger.delivery.partition_directory import PartitionDirectory
from kledger.ledger.testing import FaultyEngine
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from tests.topics.words import TopicStore, open_topics


@asynccontextmanager
async def partition_directory(
    engine: FaultyEngine | None = None,
) -> AsyncIterator[tuple[TopicStore, PartitionDirectory]]:
    """Yield topics, and a directory of their partitions."""
    async with open_topics(engine) as opened:
        supervisor = Supervisor()
        partitions = PartitionDirectory(
            opened.registry,
            clock=opened.clock,
            timers=Timers(opened.clock, supervisor),
            supervisor=supervisor,
        )
        try:
            yield opened, partitions
        finally:
            await partitions.close()
            await supervisor.close()
