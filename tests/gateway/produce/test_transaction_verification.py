"""Transactional batches in Produce; rows 13, 114 to 116 and 127 of docs/SCENARIOS.md."""

from collections.abc import Iterable
from typing import Any

import pytest

from kledger.batches.builder import BatchProducer, NewRecord, build_batch
from kledger.gateway.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k18_api_versions import ApiVersionsRequest
from kledger.offsets import TopicPartition
from tests.gateway.running import batch, produce, running_gateway
from tests.gateway.txn_client import NEW, TxnClient, read, settled


@pytest.mark.parametrize(("version", "error"), [(9, 48), (10, 48), (11, 120)])
async def test_row_114_partition_that_was_not_added(version: int, error: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        await producer.init()
        assert error == await producer.produce(version=version)
        await producer.add(0)
        assert 0 == await producer.produce(version=version)


async def test_row_13_finalized_level_and_older_flow_are_both_served() -> None:
    """Clients that know level 2 never add partitions, others always do; both work at once."""
    async with running_gateway() as gateway, gateway.client() as new, gateway.client() as old:
        topic = await gateway.create_topic()
        said = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        (level,) = [
            (one.min_version_level, one.max_version_level)
            for one in (await new.ask(said, 4)).finalized_features
            if one.name == "transaction.version"
        ]
        assert (2, 2) == level
        implicit, explicit = TxnClient(new, "new"), TxnClient(old, "old")
        await implicit.init()
        await explicit.init(version=4)
        epochs = implicit.epoch, explicit.epoch
        assert {0: 0} == await explicit.add(0, version=3)
        assert 0 == await implicit.produce(b"new", version=13, topic=topic)
        assert 0 == await explicit.produce(b"old", version=11)
        assert 0 == await implicit.end(commit=True, version=5)
        assert 0 == await explicit.end(commit=True, version=4)
        assert (epochs[0] + 1, epochs[1]) == (implicit.epoch, explicit.epoch)
        await settled(gateway)
        assert (4, 4) == ((await read(new)).high_watermark, (await read(new)).last_stable_offset)
        counts = gateway.services.metrics.snapshot()
        assert 1 == counts['requests{api="add_partitions_to_txn"}']


@pytest.mark.parametrize("version", [12, 13])
async def test_row_115_partition_is_added_by_its_first_batch(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        topic = await gateway.create_topic(partitions=2)
        producer = TxnClient(client)
        await producer.init()
        for partition in (0, 1, 0):
            assert 0 == await producer.produce(version=version, topic=topic, partition=partition)
        assert 0 == (await read(client)).last_stable_offset
        assert 0 == await producer.end(commit=True, version=NEW)
        await settled(gateway)
        assert 3 == (await read(client)).last_stable_offset


async def test_row_116_batch_outside_of_the_transaction() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        await producer.init()
        assert 0 == await producer.produce(version=12)
        assert 48 == await producer.produce(version=12, is_transactional=False)


async def test_row_127_late_batch_of_an_ended_transaction_is_refused() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        for version, produce_version, errors in ((4, 11, {120}), (NEW, 12, {47})):
            producer = TxnClient(client, f"x{version}")
            await producer.init()
            if version < NEW:
                await producer.add(0)
            await producer.produce(version=produce_version)
            epoch = producer.epoch
            await producer.end(commit=False, version=version)
            await settled(gateway)  # until then the error is retriable (19), as in Kafka
            producer.epoch, producer.sequences = epoch, {0: 1}
            assert await producer.produce(version=produce_version) in errors
            await settled(gateway)
            found = await read(client)
            assert found.last_stable_offset == found.high_watermark


@pytest.mark.parametrize(("version", "unknown", "fenced"), [(11, 49, 47), (12, 49, 47)])
async def test_producer_without_the_transactional_id_is_refused(
    version: int, unknown: int, fenced: int
) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        stranger = TxnClient(client)
        stranger.producer_id, stranger.epoch = 9, 0
        assert unknown == await stranger.produce(version=version)
        old, new = TxnClient(client), TxnClient(client)
        await old.init()
        await new.init()
        assert fenced == await old.produce(version=version)


async def test_storage_failure_while_a_partition_is_added() -> None:
    """An error of the coordinator says nothing about this broker, so the client asks it again."""
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        await producer.init()
        gateway.engine.fail_next("commit")
        assert 19 == await producer.produce(version=12)
        assert 0 == await producer.produce(version=12)


@pytest.mark.parametrize("version", [9, 12])
async def test_transactional_batch_without_a_transactional_id(version: int) -> None:
    """Its transaction is unknown; nothing of the request is stored."""
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic(partitions=2)
        producer = TxnClient(client)
        await producer.init()
        await producer.add(0)
        assert 0 == await producer.produce(version=11)
        marked = BatchProducer(producer.producer_id, producer.epoch, 1, is_transactional=True)
        data = bytes(build_batch([NewRecord(b"v", timestamp=1)], producer=marked))
        request = produce({0: data, 1: batch(b"plain")})
        (topic,) = (await client.ask(request, version)).responses
        assert [53, 53] == [one.error_code for one in topic.partition_responses]
        assert 1 == (await read(client)).high_watermark


async def test_partitions_of_one_request_are_added_or_refused_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The coordinator adds all of them in one step."""
    steps: list[list[TopicPartition]] = []

    async def add(*args: Any, partitions: Iterable[TopicPartition], **rest: Any) -> ErrorCode:
        steps.append(list(partitions))
        return await right_add(*args, partitions=partitions, **rest)

    right_add = TransactionCoordinator.add
    monkeypatch.setattr(TransactionCoordinator, "add", add)
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic(partitions=8)
        old, new = TxnClient(client), TxnClient(client)
        await old.init()
        await new.init()
        for producer, error in ((old, 47), (new, 0)):
            steps.clear()
            marked = BatchProducer(producer.producer_id, producer.epoch, 0, is_transactional=True)
            data = bytes(build_batch([NewRecord(b"v", timestamp=1)], producer=marked))
            request = produce(dict.fromkeys(range(8), data))
            request.transactional_id = "x"
            (topic,) = (await client.ask(request, 12)).responses
            assert [error] * 8 == [one.error_code for one in topic.partition_responses]
            assert [[TopicPartition("t", index) for index in range(8)]] == steps


async def test_a_repeated_partition_is_refused_each_time() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        marked = BatchProducer(9, 0, 0, is_transactional=True)
        data = bytes(build_batch([NewRecord(b"v", timestamp=1)], producer=marked))
        request = produce({0: data})
        request.transactional_id = "x"
        request.topic_data[0].partition_data *= 2
        (topic,) = (await client.ask(request, 12)).responses
        assert [49, 49] == [one.error_code for one in topic.partition_responses]
