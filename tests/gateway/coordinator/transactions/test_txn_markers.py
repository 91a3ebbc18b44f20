"""Markers in partitions."""

from kledger.gateway.coordinator.transactions.txn_markers import TransactionMarkers
from kledger.gateway.coordinator.transactions.txn_state import ProducerIdAndEpoch
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger.engine.errors import StorageWriteFailed
from kledger.offsets import TopicPartition
from kledger.topics.partition.transaction_state import TransactionEnd
from tests.gateway.running import RunningGateway, running_gateway
from tests.gateway.txn_client import TxnClient, settled

ME = ProducerIdAndEpoch(7, 1)
HERE = TopicPartition("t", 0)


async def test_partitions_that_are_gone_are_left_out() -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic(partitions=2)
        places = [
            TopicPartition("t", 1),
            TopicPartition("missing", 0),
            TopicPartition("t", 9),
            TopicPartition("t", 0),
        ]
        assert {} == await markers_of(gateway).end(places, ME, False)
        logs = [await topic.open_partition(index) for index in range(2)]
        assert [1, 1] == [log.high_watermark for log in logs]


async def test_where_a_newer_epoch_has_written_nothing_is_open() -> None:
    """Before the transaction has begun, others may write with any epoch, without waiting."""
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


async def test_storage_error_is_reported() -> None:
    async with running_gateway() as gateway:
        await gateway.create_topic()
        markers = markers_of(gateway)
        gateway.engine.fail_next("commit", StorageWriteFailed("full"))
        refused = await markers.end([HERE], ME, True)
        assert {HERE: ErrorCode.KAFKA_STORAGE_ERROR} == refused
        assert {} == await markers.end([HERE], ME, True)


async def test_a_partition_that_cannot_be_opened_holds_up_no_other() -> None:
    async with running_gateway() as gateway:
        topic = await gateway.services.registry.create("t", partitions=3)
        logs = [await topic.open_partition(index) for index in (0, 2)]
        gateway.engine.fail_next("commit")
        markers = markers_of(gateway)
        refused = await markers.end([TopicPartition("t", index) for index in range(3)], ME, True)
        assert {TopicPartition("t", 1): ErrorCode.KAFKA_STORAGE_ERROR} == refused
        assert [1, 1] == [log.high_watermark for log in logs]


async def test_partitions_are_opened_and_marked_together() -> None:
    async with running_gateway() as gateway:
        await gateway.services.registry.create("t", partitions=5)
        before = gateway.engine.calls["commit"]
        markers = markers_of(gateway)
        assert {} == await markers.end([TopicPartition("t", index) for index in range(5)], ME, True)
        assert 2 == gateway.engine.calls["commit"] - before


async def test_markers_of_a_tool_are_answered_one_by_one() -> None:
    async with running_gateway() as gateway:
        await gateway.create_topic()
        markers = markers_of(gateway)
        assert {} == await markers.write([HERE], TransactionEnd(*ME, is_commit=True))
        older = await markers.write([HERE], TransactionEnd(7, 0, is_commit=True))
        assert {HERE: ErrorCode.INVALID_PRODUCER_EPOCH} == older
        gone = dict.fromkeys(
            (TopicPartition("t", 3), TopicPartition("missing", 0)),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        assert gone == await markers.write(gone, TransactionEnd(*ME, is_commit=True))


def markers_of(gateway: RunningGateway) -> TransactionMarkers:
    return TransactionMarkers(gateway.services.registry, gateway.services.groups.offsets)
