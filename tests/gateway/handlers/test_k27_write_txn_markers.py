"""WriteTxnMarkers, as `kafka-transactions --abort` sends it."""

import pytest

from kledger.gateway.coordinator.coordinator_shards_state import OFFSETS_TOPIC, shard_of
from kledger.gateway.coordinator.shard_counts import COORDINATOR_SHARD_COUNT
from kledger.gateway.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.gateway.running import running_gateway
from tests.gateway.txn_client import TxnClient, committed, read
from tests.gateway.wire_client import WireClient


async def mark(client: WireClient, producer: TxnClient, *partitions: int, version: int = 1,
               epoch: int | None = None, topic: str = "t") -> list[int]:  # fmt: skip
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch if epoch is None else epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(partitions))],
        coordinator_epoch=3,
    )
    response = await client.ask(WriteTxnMarkersRequest(markers=[marker]), version)
    (found,) = response.markers
    assert producer.producer_id == found.producer_id
    return [one.error_code for topic in found.topics for one in topic.partitions]


@pytest.mark.parametrize("version", [1, 2])
async def test_hanging_transaction_is_ended(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        await producer.init()
        await producer.add(0)
        await producer.produce()
        assert 0 == (await read(client)).last_stable_offset
        assert [0] == await mark(client, producer, 0, version=version)
        found = await read(client)
        assert (2, 1) == (found.last_stable_offset, len(found.aborted_transactions or ()))


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("producer_id", -1, 49),
        ("producer_epoch", -1, 47),
        ("coordinator_epoch", -2, 52),
        ("transaction_version", -1, 42),
    ],
)
async def test_what_cannot_be_is_not_written(field: str, value: int, error: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        topic = WritableTxnMarkerTopic(name="t", partition_indexes=[0])
        marker = WritableTxnMarker(topics=[topic])
        setattr(marker, field, value)
        response = await client.ask(WriteTxnMarkersRequest(markers=[marker]), 2)
        assert error == response.markers[0].topics[0].partitions[0].error_code
        assert 0 == (await read(client)).high_watermark


async def test_each_partition_is_answered_for_itself() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        await producer.init()
        await producer.init()
        await producer.add(0)
        await producer.produce()
        assert [47] == await mark(client, producer, 0, epoch=0)
        assert [0, 3] == await mark(client, producer, 0, 7)
        assert [3] == await mark(client, producer, 0, topic="missing")


@pytest.mark.parametrize("version", [1, 2])
async def test_a_partition_of_the_offsets_topic_is_a_shard_of_groups(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        await producer.init()
        await producer.add_group("g")
        await producer.commit_offset("g", 7)
        assert (88, -1) == await committed(client, "g", require_stable=True)
        shard = shard_of("g", COORDINATOR_SHARD_COUNT)
        numbers = shard, COORDINATOR_SHARD_COUNT
        assert [0, 3] == await mark(
            client, producer, *numbers, topic=OFFSETS_TOPIC, version=version
        )
        assert (0, -1) == await committed(client, "g", require_stable=True)


async def test_markers_of_several_transactions_are_one_write() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        topic = WritableTxnMarkerTopic(name="t", partition_indexes=[0])
        markers = [WritableTxnMarker(producer_id=number, topics=[topic]) for number in range(5)]
        before = gateway.engine.calls["commit"]
        response = await client.ask(WriteTxnMarkersRequest(markers=markers), 2)
        assert list(range(5)) == [one.producer_id for one in response.markers]
        assert 1 == gateway.engine.calls["commit"] - before
        assert 5 == (await read(client)).high_watermark
