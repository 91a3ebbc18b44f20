"""DescribeProducers; row 128 of docs/SCENARIOS.md."""

from typing import Any

from kledger.gateway.wire.messages.k61_describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from tests.gateway.running import running_gateway
from tests.gateway.txn_client import TxnClient, settled
from tests.gateway.wire_client import WireClient


async def described(client: WireClient, *partitions: int, topic: str = "t") -> list[Any]:
    asked = TopicRequest(name=topic, partition_indexes=list(partitions))
    response = await client.ask(DescribeProducersRequest(topics=[asked]), 0)
    found: list[Any] = response.topics[0].partitions
    return found


async def test_row_128_open_transaction_is_shown_and_gone_after_its_end() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        assert [] == (await described(client, 0))[0].active_producers
        producer = TxnClient(client)
        await producer.init()
        await producer.add(0)
        await producer.produce()
        await producer.produce()
        (one,) = (await described(client, 0))[0].active_producers
        assert (producer.producer_id, 0, 1, 0, 0) == (
            one.producer_id, one.producer_epoch, one.last_sequence, one.current_txn_start_offset,
            one.coordinator_epoch,
        )  # fmt: skip
        assert gateway.clock.now_ms() == one.last_timestamp
        await producer.end(commit=True)
        await settled(gateway)
        (one,) = (await described(client, 0))[0].active_producers
        assert (-1, -1, 1) == (
            one.current_txn_start_offset, one.coordinator_epoch, one.last_sequence,
        )  # fmt: skip


async def test_unknown_partitions_have_an_error_each() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        assert [0, 3] == [one.error_code for one in await described(client, 0, 5)]
        assert [3] == [one.error_code for one in await described(client, 0, topic="missing")]


async def test_invalid_topic_name_has_its_own_error() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        for name in ("", "a b"):
            assert [17] == [one.error_code for one in await described(client, 0, topic=name)]


async def test_logs_that_must_be_opened_share_a_commit() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.services.registry.create("t", partitions=5)
        before = gateway.engine.calls["commit"]
        assert [0] * 5 == [one.error_code for one in await described(client, *range(5))]
        assert 1 == gateway.engine.calls["commit"] - before
