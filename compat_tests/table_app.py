"""A table app in the style of Faust: an agent over a stream, a table kept in a changelog topic.

    python -m compat_tests.table_app BOOTSTRAP GROUP SOURCE CHANGELOG

The agent counts the records of each key. A member owns the partitions of the table that have the
numbers of its stream's partitions; on every assignment it reads them back from the changelog.
A count, its entry in the changelog and the offset behind it are one transaction. The member is a
static one: when it rejoins, no member waits for the session of the killed one, so that a
session may outlive every pause of a busy machine.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable

from aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    ConsumerRecord,
    TopicPartition,
)


class Table:
    """Counts by key, in the partitions of a changelog topic."""

    def __init__(self, bootstrap: str, changelog: str) -> None:
        """Begin without any partition."""
        self._bootstrap = bootstrap
        self._changelog = changelog
        self._counts: dict[int, defaultdict[bytes, int]] = {}
        # Records arrive while the listener of an assignment is still at work.
        self.in_use = asyncio.Lock()

    async def recover(self, partitions: Iterable[int]) -> None:
        """Own these partitions and no others, with what their changelog says."""
        async with self.in_use:
            await self._recover(partitions)

    async def _recover(self, partitions: Iterable[int]) -> None:
        self._counts = {partition: defaultdict(int) for partition in partitions}
        places = [TopicPartition(self._changelog, partition) for partition in self._counts]
        if not places:
            return
        reader = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await reader.start()
        try:
            reader.assign(places)
            ends = await reader.end_offsets(places)
            while any([await reader.position(place) < ends[place] for place in places]):
                found = await reader.getmany(timeout_ms=100)
                for place, records in found.items():
                    for one in records:
                        self._counts[place.partition][one.key] = int(one.value)
        finally:
            await reader.stop()

    async def add(self, producer: AIOKafkaProducer, record: ConsumerRecord[bytes, bytes]) -> None:
        """Count a record, here and in the changelog."""
        counts = self._counts[record.partition]
        counts[record.key] += 1
        await producer.send(
            self._changelog,
            str(counts[record.key]).encode(),
            key=record.key,
            partition=record.partition,
        )


class Rebalancing(ConsumerRebalanceListener):  # type: ignore[misc]  # the library has no types
    """Lets the table follow the stream's partitions."""

    def __init__(self, table: Table) -> None:
        """Keep a table right."""
        self._table = table

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Nothing is open between two transactions."""

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Read the table's partitions back."""
        await self._table.recover({place.partition for place in assigned})


async def batches(
    consumer: AIOKafkaConsumer,
) -> AsyncIterator[dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]]]:
    """The stream, as long as the program lives."""
    while True:
        found = await consumer.getmany(timeout_ms=100, max_records=20)
        if found:
            yield found


async def run(bootstrap: str, group: str, source: str, changelog: str) -> None:
    """Run the agent."""
    table = Table(bootstrap, changelog)
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=group, transaction_timeout_ms=60_000
    )
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=60_000,
        heartbeat_interval_ms=1_000,
    )
    # Starting the producer fences the former one: only then is the changelog complete.
    await producer.start()
    consumer.subscribe([source], listener=Rebalancing(table))
    await consumer.start()
    async for found in batches(consumer):
        async with table.in_use, producer.transaction():
            for records in found.values():
                for one in records:
                    await table.add(producer, one)
            offsets = {place: records[-1].offset + 1 for place, records in found.items()}
            await producer.send_offsets_to_transaction(offsets, group)


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:5]))
