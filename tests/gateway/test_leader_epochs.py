"""What clients see of leader epochs when a server has taken over the store of another one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kledger.batches.reader import read_marker
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k01_fetch import FetchRequest
from kledger.gateway.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from kledger.gateway.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kledger.gateway.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kledger.gateway.wire.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from kledger.gateway.wire.messages.k61_describe_producers import DescribeProducersRequest
from kledger.gateway.wire.messages.k61_describe_producers import TopicRequest as DescribedTopic
from kledger.gateway.wire.messages.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from kledger.ledger.testing import FaultyEngine
from tests.gateway.running import (
    START_MS,
    RunningGateway,
    batch,
    fetch,
    fetch_by_id,
    produce,
    running_gateway,
)
from tests.gateway.txn_client import TxnClient, settled
from tests.gateway.wire_client import WireClient

FENCED, UNKNOWN = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH


@asynccontextmanager
async def taken_over() -> AsyncIterator[tuple[RunningGateway, WireClient]]:
    """A server under epoch 3, over offsets 0 and 1 of epoch 0 and 2 of epoch 3."""
    engine = FaultyEngine(None)
    async with running_gateway(engine=engine) as gateway, gateway.client() as client:
        await gateway.create_topic()
        await client.ask(produce({0: batch(b"a", timestamp=START_MS - 2)}), 9)
        await client.ask(produce({0: batch(b"b", timestamp=START_MS - 1)}), 9)
    async with (
        running_gateway(engine=engine, leader_epoch=3) as gateway,
        gateway.client() as client,
    ):
        await client.ask(produce({0: batch(b"c")}), 9)
        yield gateway, client


def asking(gateway: RunningGateway, current: int) -> FetchRequest:
    topic = gateway.services.registry.get("t")
    assert topic is not None
    request = fetch_by_id(topic.id, {0: 0})
    request.topics[0].partitions[0].current_leader_epoch = current
    return request


async def test_descriptions_show_the_epoch() -> None:
    async with taken_over() as (_, client):
        metadata = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
        assert metadata.topics[0].partitions[0].leader_epoch == 3
        described = await client.ask(
            DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]), 0
        )
        assert described.topics[0].partitions[0].leader_epoch == 3
        quorum = TopicData(
            topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)]
        )
        found = await client.ask(DescribeQuorumRequest(topics=[quorum]), 2)
        assert found.topics[0].partitions[0].leader_epoch == 3


@pytest.mark.parametrize(
    ("current", "error", "hint"),
    [(-1, 0, (-1, -1)), (0, FENCED, (1, 3)), (3, 0, (-1, -1)), (4, UNKNOWN, (-1, -1))],
)
async def test_row_69_fetch_of_an_older_epoch_gets_the_newer_one(
    current: int, error: int, hint: tuple[int, int]
) -> None:
    async with taken_over() as (gateway, client):
        answer = await client.ask(asking(gateway, current), 16)
        (found,) = answer.responses[0].partitions
        assert found.error_code == error
        leader = found.current_leader
        assert (leader.leader_id, leader.leader_epoch) == hint
        ports = [(each.node_id, each.port) for each in answer.node_endpoints]
        assert ports == ([(1, gateway.port)] if error == FENCED else [])


async def test_row_69_every_request_with_an_epoch_is_fenced() -> None:
    async with taken_over() as (_, client):
        for current, error in ((2, FENCED), (4, UNKNOWN)):
            (listed,) = await list_offsets(client, -1, current=current)
            assert listed.error_code == error
            assert (await end_of(client, 0, current=current)).error_code == error


async def test_row_70_an_epoch_ends_where_the_next_one_begins() -> None:
    async with taken_over() as (_, client):
        found = [await end_of(client, each, current=3) for each in (0, 1, 3, 4)]
        assert [(each.leader_epoch, each.end_offset) for each in found] == [
            (0, 2), (0, 2), (3, 3), (-1, -1),
        ]  # fmt: skip
        assert all(each.error_code == 0 for each in found)


async def test_offsets_are_listed_with_the_epoch_of_their_records() -> None:
    async with taken_over() as (_, client):
        times = (-2, -1, -3, START_MS - 1, START_MS)
        found = await list_offsets(client, *times, current=3)
        assert [(each.offset, each.leader_epoch) for each in found] == [
            (0, 0), (3, 3), (2, 3), (1, 0), (2, 3),
        ]  # fmt: skip


async def test_markers_have_the_epoch_of_their_coordinator() -> None:
    """One that another server has replaced cannot end a transaction any more."""
    async with taken_over() as (gateway, client):
        producer = TxnClient(client)
        await producer.init()
        await producer.add(0)
        assert await producer.produce() == 0
        assert await producer.end(commit=True) == 0
        await settled(gateway)
        asked = DescribeProducersRequest(topics=[DescribedTopic(name="t", partition_indexes=[0])])
        (one,) = (await client.ask(asked, 0)).topics[0].partitions[0].active_producers
        assert one.coordinator_epoch == 3
        fetched = await client.ask(fetch({0: 4}), 12)
        marker = read_marker(bytes(fetched.responses[0].partitions[0].records))
        assert (marker.is_commit, marker.coordinator_epoch) == (True, 3)
        await producer.add(0)
        assert await producer.produce() == 0
        for epoch, error in ((2, ErrorCode.TRANSACTION_COORDINATOR_FENCED), (3, 0)):
            late = WritableTxnMarker(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
                coordinator_epoch=epoch,
            )
            answer = await client.ask(WriteTxnMarkersRequest(markers=[late]), 1)
            assert answer.markers[0].topics[0].partitions[0].error_code == error


async def test_transaction_of_a_replaced_coordinator_is_ended_by_the_next_one() -> None:
    engine = FaultyEngine(None)
    async with running_gateway(engine=engine) as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        await producer.init()
        await producer.add(0)
        assert await producer.produce() == 0
    async with (
        running_gateway(engine=engine, leader_epoch=3) as gateway,
        gateway.client() as client,
    ):
        producer.client = client
        assert await producer.end(commit=True) == 0
        await settled(gateway)
        fetched = await client.ask(fetch({0: 0}, isolation_level=1), 12)
        (found,) = fetched.responses[0].partitions
        assert (found.last_stable_offset, found.aborted_transactions) == (2, [])


async def list_offsets(client: WireClient, *times: int, current: int) -> list[Any]:
    found = []
    for time in times:
        asked = ListOffsetsPartition(
            partition_index=0, current_leader_epoch=current, timestamp=time
        )
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])])
        found.append((await client.ask(request, 7)).topics[0].partitions[0])
    return found


async def end_of(client: WireClient, epoch: int, *, current: int) -> Any:
    asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    topic = OffsetForLeaderTopic(topic="t", partitions=[asked])
    answer = await client.ask(OffsetForLeaderEpochRequest(topics=[topic]), 4)
    return answer.topics[0].partitions[0]
