"""Txn markers: the end of a transaction, written into the partitions that it touched.

Rule: the markers of all partitions are submitted together and awaited together. An error of one
partition is returned, and delays no other partition.
Must not know: transactional ids, what is decided.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kledger.gateway.coordinator.transactions.txn_state import ProducerIdAndEpoch
from kledger.gateway.metadata.partition_lookup import open_partitions_by_name
from kledger.offsets import TopicPartition
from kledger.topics import PartitionLog, TopicsError, UnknownPartition, UnknownTopic
from kledger.topics.errors import InvalidProducerEpoch

if TYPE_CHECKING:
    from kledger.topics import AppendResult, TopicRegistry

COORDINATOR_EPOCH: Final = 0
"""There is one coordinator, and it never moves."""
NEEDS_NO_MARKER: Final = (UnknownTopic, UnknownPartition, InvalidProducerEpoch)
"""The partition was deleted, or a newer epoch has written to it: nothing older is open in it."""


class TransactionMarkers:
    """Writes markers into the partitions of one server."""

    def __init__(self, registry: "TopicRegistry") -> None:
        self._registry = registry

    async def end(
        self,
        topic_partitions: Iterable[TopicPartition],
        producer: ProducerIdAndEpoch,
        is_commit: bool,
    ) -> dict[TopicPartition, TopicsError]:
        """End a producer's transaction in partitions, durably.

        Returns:
            Where it is still open, and why. Partitions that need no marker count as done.
        """
        refused = await self.write(topic_partitions, producer, is_commit=is_commit)
        return {
            topic_partition: error
            for topic_partition, error in refused.items()
            if not isinstance(error, NEEDS_NO_MARKER)
        }

    async def write(
        self,
        topic_partitions: Iterable[TopicPartition],
        producer: ProducerIdAndEpoch,
        *,
        is_commit: bool,
        coordinator_epoch: int = COORDINATOR_EPOCH,
    ) -> dict[TopicPartition, TopicsError]:
        """Write a producer's markers into partitions, durably; return where not, and why."""
        logs = await open_partitions_by_name(self._registry, sorted(topic_partitions))
        refused: dict[TopicPartition, TopicsError] = {}
        ends = {}
        for topic_partition, log in logs.items():
            if isinstance(log, TopicsError):
                refused[topic_partition] = log
            else:
                ends[topic_partition] = self._submit(
                    log, producer, is_commit=is_commit, coordinator_epoch=coordinator_epoch
                )
        results = await asyncio.gather(*ends.values())
        for topic_partition, result in zip(ends, results, strict=True):
            if result.error is not None:
                refused[topic_partition] = result.error
        return refused

    @staticmethod
    def _submit(
        log: PartitionLog, producer: ProducerIdAndEpoch, *, is_commit: bool, coordinator_epoch: int
    ) -> "asyncio.Future[AppendResult]":
        future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()

        def done(result: "AppendResult") -> None:
            if not future.done():
                future.set_result(result)

        result = log.append_marker_nowait(
            producer.producer_id,
            producer.epoch,
            done,
            is_commit=is_commit,
            coordinator_epoch=coordinator_epoch,
        )
        if result is not None:
            done(result)
        return future
