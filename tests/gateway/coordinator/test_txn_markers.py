"""Markers in partitions."""

import pytest

from gateway.coordinator.txn_markers import TxnMarkers
from gateway.coordinator.txn_state import Identity
from ledger.engine.errors import StorageWriteFailed
from offsets import Place
from tests.gateway.running import running_gateway
from tests.gateway.txn_client import TxnClient, settled
from topics import UnknownPartition
from topics.errors import InvalidProducerEpoch, StorageFailed

ME = Identity(7, 1)


async def test_partitions_that_are_gone_are_left_out() -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic(partitions=2)
        places = [Place("t", 1), Place("missing", 0), Place("t", 9), Place("t", 0)]
        await TxnMarkers(gateway.services.registry).write(places, ME, False)
        logs = [await topic.open_partition(index) for index in range(2)]
        assert [1, 1] == [log.high_watermark for log in logs]


async def test_where_a_newer_epoch_has_written_nothing_is_open() -> None:
    """Anybody can write with any epoch where the transaction has not begun; nobody waits for it."""
    async with running_gateway() as gateway, gateway.client() as client:
        topic = await gateway.create_topic(partitions=2)
        producer = TxnClient(client)
        await producer.init()
        await producer.add(0, 1)
        await producer.produce(partition=1)
        newer = TxnClient(client)
        newer.producer_id, newer.epoch = producer.producer_id, 9
        assert 0 == await newer.produce(is_transactional=False)
        assert 0 == await producer.end(commit=True)
        await settled(gateway)
        logs = [await topic.open_partition(index) for index in range(2)]
        assert [1, 2] == [log.last_stable_offset for log in logs]


async def test_what_the_storage_refuses_is_told() -> None:
    async with running_gateway() as gateway:
        await gateway.create_topic()
        markers = TxnMarkers(gateway.services.registry)
        gateway.engine.fail_next("commit", StorageWriteFailed("full"))
        with pytest.raises(StorageFailed):
            await markers.write([Place("t", 0)], ME, True)
        await markers.write([Place("t", 0)], ME, True)


async def test_one_marker_is_told_everything() -> None:
    async with running_gateway() as gateway:
        await gateway.create_topic()
        markers = TxnMarkers(gateway.services.registry)
        await markers.write_one(Place("t", 0), ME, is_commit=True)
        with pytest.raises(InvalidProducerEpoch):
            await markers.write_one(Place("t", 0), Identity(7, 0), is_commit=True)
        for place in (Place("t", 3), Place("missing", 0)):
            with pytest.raises(UnknownPartition):
                await markers.write_one(place, ME, is_commit=True)
