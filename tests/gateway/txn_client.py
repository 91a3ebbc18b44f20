"""A transactional producer of the protocol, for tests: one method per request."""

from typing import Any

from kledger.batches.builder import BatchProducer, NewRecord, build_batch
from kledger.gateway.wire.messages.k01_fetch import PartitionData
from kledger.gateway.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kledger.gateway.wire.messages.k22_init_producer_id import InitProducerIdRequest
from kledger.gateway.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from kledger.gateway.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from kledger.gateway.wire.messages.k26_end_txn import EndTxnRequest
from kledger.gateway.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.topics import Topic
from tests.gateway.running import RunningGateway, fetch, produce, until
from tests.gateway.wire_client import WireClient

OLD, NEW = 4, 5
"""Versions of EndTxn: the epoch stays, or rises with every end."""


class TxnClient:
    """Keeps producer id, epoch and sequences as a client library does."""

    def __init__(self, client: WireClient, transactional_id: str = "x") -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.producer_id = self.epoch = -1
        self.sequences: dict[int, int] = {}

    async def init(self, *, timeout_ms: int = 60_000, version: int = 5, **expected: int) -> int:
        """Ask for the producer; return the error."""
        response = await self.client.ask(
            InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=timeout_ms,
                **expected,
            ),
            version,
        )
        if not response.error_code:
            self._become(response)
        return int(response.error_code)

    async def add(self, *partitions: int, topic: str = "t", version: int = 3) -> dict[int, int]:
        """Add partitions; return the error of each."""
        response = await self.client.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))
                ],
            ),
            version,
        )
        return {
            one.partition_index: one.partition_error_code
            for each in response.results_by_topic_v3_and_below
            for one in each.results_by_partition
        }

    async def produce(
        self,
        value: bytes = b"v",
        *,
        key: bytes | None = None,
        partition: int = 0,
        version: int = 11,
        topic: Topic | None = None,
        is_transactional: bool = True,
    ) -> int:
        """Send one record; return the error. The sequence increases if there is none."""
        sequence = self.sequences.get(partition, 0)
        who = BatchProducer(
            self.producer_id, self.epoch, sequence, is_transactional=is_transactional
        )
        data = bytes(build_batch([NewRecord(value, key, timestamp=1)], producer=who))
        topic_id = ZERO_UUID if topic is None else topic.id
        request = produce({partition: data}, topic="t", topic_id=topic_id)
        request.transactional_id = self.transactional_id
        response = await self.client.ask(request, version)
        error = int(response.responses[0].partition_responses[0].error_code)
        if not error:
            self.sequences[partition] = sequence + 1
        return error

    async def end(self, *, commit: bool, version: int = OLD) -> int:
        """Commit or abort; return the error."""
        response = await self.client.ask(
            EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=commit,
            ),
            version,
        )
        if version >= NEW and not response.error_code:
            self._become(response)
        return int(response.error_code)

    async def add_group(self, group: str, version: int = 3) -> int:
        """Add a group; return the error."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        return int((await self.client.ask(request, version)).error_code)

    async def commit_offset(
        self, group: str, offset: int, *, version: int = 3, partition: int = 0, **sender: Any
    ) -> int:
        """Send an offset; return its error."""
        asked = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata="m"
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[asked])],
            **sender,
        )
        response = await self.client.ask(request, version)
        return int(response.topics[0].partitions[0].error_code)

    def _become(self, response: Any) -> None:
        identity = response.producer_id, response.producer_epoch
        if identity != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = identity
            self.sequences.clear()


async def committed(
    client: WireClient, group: str, *, require_stable: bool = False
) -> tuple[int, int]:
    """Return (error, offset) of a group in partition 0."""
    asked = OffsetFetchRequestGroup(
        group_id=group, topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    )
    request = OffsetFetchRequest(groups=[asked], require_stable=require_stable)
    (one,) = (await client.ask(request, 8)).groups[0].topics[0].partitions
    return one.error_code, one.committed_offset


async def read(
    client: WireClient, offset: int = 0, *, committed_only: bool = True, version: int = 12
) -> PartitionData:
    """Fetch partition 0 from an offset on."""
    request = fetch({0: offset}, isolation_level=int(committed_only))
    response = await client.ask(request, version)
    found: PartitionData = response.responses[0].partitions[0]
    return found


async def settled(gateway: RunningGateway) -> None:
    """Wait for the markers of every reported outcome."""
    transactions = gateway.services.transactions
    await until(lambda: not any(one.state.is_prepared for one in transactions.records()))
