"""AddPartitionsToTxn; rows of docs/SCENARIOS.md."""

import pytest

from kledger.gateway.coordinator.coordinator_shards_state import OFFSETS_TOPIC, shard_of
from kledger.gateway.coordinator.shard_counts import COORDINATOR_SHARD_COUNT
from kledger.gateway.coordinator.transactions.txn_record import TxnState
from kledger.gateway.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kledger.offsets import TopicPartition
from tests.gateway.running import running_gateway, until
from tests.gateway.txn_client import TxnClient
from tests.gateway.wire_client import WireClient


async def batched(
    client: WireClient, *asked: AddPartitionsToTxnTransaction, version: int = 4
) -> list[list[int]]:
    """Return the errors of each transaction asked about."""
    request = AddPartitionsToTxnRequest(transactions=list(asked))
    response = await client.ask(request, version)
    assert 0 == response.error_code
    assert [one.transactional_id for one in asked] == [
        one.transactional_id for one in response.results_by_transaction
    ]
    return [
        [each.partition_error_code for topic in one.topic_results
         for each in topic.results_by_partition]
        for one in response.results_by_transaction
    ]  # fmt: skip


def of(
    producer: TxnClient, *partitions: int, verify_only: bool = False, topic: str = "t"
) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        verify_only=verify_only,
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
    )


@pytest.mark.parametrize("version", range(4))
async def test_partitions_are_added_once_and_again(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic(partitions=3)
        producer = TxnClient(client)
        await producer.init()
        assert {0: 0, 2: 0} == await producer.add(0, 2, version=version)
        assert {0: 0} == await producer.add(0, version=version)
        record = gateway.services.transactions.record("x")
        assert record is not None
        assert {("t", 0), ("t", 2)} == record.partitions


async def test_row_113_one_unknown_partition_keeps_all_others_out() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic(partitions=2)
        producer = TxnClient(client)
        await producer.init()
        assert {0: 55, 1: 55, 2: 3} == await producer.add(0, 1, 2)
        assert {0: 3} == await producer.add(0, topic="missing")
        record = gateway.services.transactions.record("x")
        assert record is not None
        assert frozenset() == record.partitions


@pytest.mark.parametrize(("version", "error"), [(1, 47), (2, 90), (3, 90)])
async def test_producer_that_does_not_hold_the_id_is_refused(version: int, error: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        assert {0: 49} == await producer.add(0, version=version)
        await producer.init()
        producer.epoch += 1
        assert {0: error} == await producer.add(0, version=version)
        producer.producer_id += 1
        assert {0: 49} == await producer.add(0, version=version)
        producer.transactional_id = ""
        assert {0: 42} == await producer.add(0, version=version)


async def test_several_transactions_are_added_and_verified_in_one_request() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic(partitions=2)
        one, two = TxnClient(client, "one"), TxnClient(client, "two")
        await one.init()
        await two.init()
        assert [[0], [0, 0]] == await batched(client, of(one, 0), of(two, 0, 1))
        verified = [of(each, 0, 1, verify_only=True) for each in (one, two)]
        assert [[0, 120], [0, 0]] == await batched(client, *verified)
        assert 0 == await one.end(commit=True)
        assert {0: 0} == await one.add(0), "waits until the markers are written"
        assert 0 == await one.end(commit=True)
        transactions = gateway.services.transactions
        await until(lambda: TxnState.COMPLETE_COMMIT in {r.state for r in transactions.records()})
        assert [[120, 120]] == await batched(client, verified[0])


async def test_storage_that_fails_adds_nothing() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        await producer.init()
        gateway.engine.fail_next("commit")
        assert {0: 15} == await producer.add(0)
        assert 48 == await producer.end(commit=True), "no transaction has begun"


@pytest.mark.parametrize("version", [4, 5])
async def test_groups_are_partitions_of_the_offsets_topic_between_brokers(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        producer = TxnClient(client)
        await producer.init()
        assert 0 == await producer.add_group("g")
        here, other = (shard_of(each, COORDINATOR_SHARD_COUNT) for each in "gh")

        async def ask(*shards: int, verify_only: bool) -> list[int]:
            asked = of(producer, *shards, verify_only=verify_only, topic=OFFSETS_TOPIC)
            (errors,) = await batched(client, asked, version=version)
            return errors

        assert [0, 120] == await ask(here, other, verify_only=True)
        assert [55, 3] == await ask(here, COORDINATOR_SHARD_COUNT, verify_only=False)
        assert [0] == await ask(other, verify_only=False)
        assert [0, 0] == await ask(here, other, verify_only=True)
        record = gateway.services.transactions.record("x")
        assert record is not None
        assert {TopicPartition(OFFSETS_TOPIC, other)} == record.partitions
        assert (version == 5) is record.is_v2
        assert {other: 3} == await producer.add(other, topic=OFFSETS_TOPIC), "a client's request"
        assert 0 == await producer.end(commit=True)
