"""Txn markers: the end of a transaction, written into the partitions and groups that it touched.

Rule: the markers of all partitions are submitted together and awaited together. An error of one
partition is returned, and delays no other partition.
Must not know: transactional ids, what is decided.
"""

import asyncio
from collections.abc import Collection, Iterable, Set
from typing import TYPE_CHECKING

from kledger.gateway.api_errors import error_code_of
from kledger.gateway.coordinator.coordinator_shards_state import OFFSETS_TOPIC
from kledger.gateway.coordinator.transactions.txn_state import ProducerIdAndEpoch
from kledger.gateway.metadata.partition_lookup import open_partitions_by_name
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import LedgerError
from kledger.offsets import TopicPartition
from kledger.topics import PartitionLog, TopicsError, TransactionEnd

if TYPE_CHECKING:
    from kledger.gateway.coordinator.groups.group_offsets import GroupOffsets
    from kledger.topics import AppendResult, TopicRegistry

Refused = dict[TopicPartition, ErrorCode]
"""Where a marker was not written, and why."""


class TransactionMarkers:
    """Writes markers into the partitions and the groups of one server.

    The server decides under the epoch under which it leads: another one takes over both together.
    """

    def __init__(self, registry: "TopicRegistry", offsets: "GroupOffsets") -> None:
        self._registry = registry
        self._offsets = offsets

    async def end(
        self,
        topic_partitions: Iterable[TopicPartition],
        producer: ProducerIdAndEpoch,
        is_commit: bool,
    ) -> Refused:
        """End a producer's transaction in partitions, durably.

        Returns:
            Where it is still open, and why. Partitions that need no marker count as done.
        """
        epoch = self._registry.leader_epoch
        refused = await self.write(topic_partitions, TransactionEnd(*producer, is_commit, epoch))
        return {
            topic_partition: error
            for topic_partition, error in refused.items()
            if not self.needs_no_marker(topic_partition, error)
        }

    async def end_groups(
        self, producer: ProducerIdAndEpoch, groups: Set[str], is_commit: bool
    ) -> Collection[str]:
        """End a producer's transaction in the offsets of groups, durably.

        Returns:
            The groups that are not served here.

        Raises:
            LedgerError: nothing was written.
        """
        return await self._offsets.write_markers(producer.producer_id, groups, is_commit)

    def needs_no_marker(self, topic_partition: TopicPartition, error: ErrorCode) -> bool:
        """Whether nothing of the transaction can be open in a partition that refused its marker.

        Two cases: the partition was deleted; a newer epoch of the producer has written to it.
        """
        if topic_partition.topic == OFFSETS_TOPIC:
            return False
        topic = self._registry.get(topic_partition.topic)
        exists = topic is not None and topic_partition.partition < topic.partition_count
        return not exists or error is ErrorCode.INVALID_PRODUCER_EPOCH

    async def write(
        self,
        topic_partitions: Iterable[TopicPartition],
        end: TransactionEnd,
    ) -> Refused:
        """Write the markers of an end into partitions, durably; return where not, and why.

        Partitions of OFFSETS_TOPIC are shards of groups: the producer's pending offsets end.
        """
        all_partitions, refused = set(topic_partitions), Refused()
        shards = {each for each in all_partitions if each.topic == OFFSETS_TOPIC}
        logs = await open_partitions_by_name(self._registry, sorted(all_partitions - shards))
        submitted = {}
        for topic_partition, log in logs.items():
            if isinstance(log, TopicsError):
                refused[topic_partition] = error_code_of(log)
            else:
                submitted[topic_partition] = self._submit(log, end)
        if shards:
            refused |= await self._write_shards(shards, end)
        results = await asyncio.gather(*submitted.values())
        for topic_partition, result in zip(submitted, results, strict=True):
            if result.error is not None:
                refused[topic_partition] = error_code_of(result.error)
        return refused

    async def _write_shards(self, shards: Iterable[TopicPartition], end: TransactionEnd) -> Refused:
        numbers = {each.partition for each in shards}
        try:
            refused = await self._offsets.write_shard_markers(
                end.producer_id, numbers, end.is_commit
            )
        except LedgerError as error:
            refused = dict.fromkeys(numbers, error_code_of(error))
        return {TopicPartition(OFFSETS_TOPIC, number): error for number, error in refused.items()}

    @staticmethod
    def _submit(log: PartitionLog, end: TransactionEnd) -> "asyncio.Future[AppendResult]":
        future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()

        def done(result: "AppendResult") -> None:
            if not future.done():
                future.set_result(result)

        result = log.append_marker_nowait(end, done)
        if result is not None:
            done(result)
        return future
