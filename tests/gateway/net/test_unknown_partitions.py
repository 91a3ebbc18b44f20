"""Requests about partitions that another broker has just created."""

from typing import Any
from uuid import UUID

import pytest

from kledger.gateway.net.unknown_partitions import PARTITION_FIELDS, names_unknown_partition
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages import k02_list_offsets as list_offsets
from kledger.gateway.wire.messages import k08_offset_commit as offset_commit
from kledger.gateway.wire.messages import k21_delete_records as delete_records
from kledger.gateway.wire.messages import k23_offset_for_leader_epoch as leader_epoch
from kledger.gateway.wire.messages import k24_add_partitions_to_txn as add_partitions
from kledger.gateway.wire.messages import k28_txn_offset_commit as txn_offset_commit
from kledger.gateway.wire.messages import k47_offset_delete as offset_delete
from kledger.gateway.wire.messages import k61_describe_producers as describe_producers
from tests.gateway.running import running_gateway

PLAIN: dict[int, tuple[Any, Any, Any]] = {
    2: (
        list_offsets.ListOffsetsRequest,
        list_offsets.ListOffsetsTopic,
        list_offsets.ListOffsetsPartition,
    ),
    8: (
        offset_commit.OffsetCommitRequest,
        offset_commit.OffsetCommitRequestTopic,
        offset_commit.OffsetCommitRequestPartition,
    ),
    21: (
        delete_records.DeleteRecordsRequest,
        delete_records.DeleteRecordsTopic,
        delete_records.DeleteRecordsPartition,
    ),
    28: (
        txn_offset_commit.TxnOffsetCommitRequest,
        txn_offset_commit.TxnOffsetCommitRequestTopic,
        txn_offset_commit.TxnOffsetCommitRequestPartition,
    ),
    47: (
        offset_delete.OffsetDeleteRequest,
        offset_delete.OffsetDeleteRequestTopic,
        offset_delete.OffsetDeleteRequestPartition,
    ),
}
"""The classes of requests, topics and partitions that share the names of their fields."""


def request_about(key: int, name: str, indexes: list[int]) -> Any:
    """Return a request about partitions of a topic."""
    if key == 23:
        partitions = [leader_epoch.OffsetForLeaderPartition(partition=each) for each in indexes]
        topic = leader_epoch.OffsetForLeaderTopic(topic=name, partitions=partitions)
        return leader_epoch.OffsetForLeaderEpochRequest(topics=[topic])
    if key == 24:
        added = add_partitions.AddPartitionsToTxnTopic(name=name, partitions=indexes)
        return add_partitions.AddPartitionsToTxnRequest(v3_and_below_topics=[added])
    if key == 61:
        described = describe_producers.TopicRequest(name=name, partition_indexes=indexes)
        return describe_producers.DescribeProducersRequest(topics=[described])
    request, topic_class, partition = PLAIN[key]
    asked = topic_class(name=name, partitions=[partition(partition_index=one) for one in indexes])
    return request(topics=[asked])


@pytest.mark.parametrize("key", sorted(PARTITION_FIELDS))
async def test_names_of_topics_and_partitions_are_looked_up(key: int) -> None:
    async with running_gateway() as gateway:
        registry = gateway.services.registry
        await registry.create("t", partitions=2, configs={})

        def is_unknown(name: str, *indexes: int) -> bool:
            request = request_about(key, name, list(indexes))
            return names_unknown_partition(request, PARTITION_FIELDS[key], registry)

        assert not is_unknown("t", 0, 1)
        assert is_unknown("t", 0, 2)
        assert is_unknown("other", 0)


async def test_ids_of_topics_are_looked_up() -> None:
    async with running_gateway() as gateway:
        registry = gateway.services.registry
        known = (await registry.create("t", partitions=2, configs={})).id
        for topic_id, is_unknown in ((known, False), (UUID(int=7), True)):
            request = request_about(8, "", [0])
            request.topics[0].topic_id = topic_id
            assert is_unknown == names_unknown_partition(request, PARTITION_FIELDS[8], registry)


async def test_topic_that_another_broker_has_created_is_not_refused() -> None:
    async with running_gateway() as gateway:
        registry = gateway.services.registry
        waits = 0

        async def catch_up() -> None:
            nonlocal waits
            waits += 1
            await registry.create("t", partitions=1, configs={})

        gateway.services.catch_up = catch_up
        async with gateway.client() as client:
            for _ in range(2):
                request = request_about(8, "t", [0])
                request.group_id = "g"
                answer = await client.ask(request, 9)
                assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        assert waits == 1
