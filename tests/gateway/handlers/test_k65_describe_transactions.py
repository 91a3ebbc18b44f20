"""DescribeTransactions; row 128 of docs/SCENARIOS.md."""

from typing import Any

from kledger.gateway.wire.messages.k65_describe_transactions import DescribeTransactionsRequest
from tests.gateway.running import running_gateway
from tests.gateway.txn_client import TxnClient, settled
from tests.gateway.wire_client import WireClient


async def described(client: WireClient, transactional_id: str) -> Any:
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    (found,) = (await client.ask(request, 0)).transaction_states
    assert transactional_id == found.transactional_id
    return found


async def test_row_128_open_transaction_is_shown_and_gone_after_its_end() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic(partitions=3)
        producer = TxnClient(client)
        await producer.init(timeout_ms=5_000)
        assert "Empty" == (await described(client, "x")).transaction_state
        await producer.add(2, 0)
        found = await described(client, "x")
        assert ("Ongoing", 5_000, gateway.clock.now_ms()) == (
            found.transaction_state, found.transaction_timeout_ms, found.transaction_start_time_ms,
        )  # fmt: skip
        assert (producer.producer_id, producer.epoch) == (found.producer_id, found.producer_epoch)
        assert [("t", [0, 2])] == [(one.topic, one.partitions) for one in found.topics]
        await producer.end(commit=True)
        await settled(gateway)
        found = await described(client, "x")
        assert ("CompleteCommit", -1, []) == (
            found.transaction_state, found.transaction_start_time_ms, found.topics,
        )  # fmt: skip


async def test_unknown_ids_have_an_error_each() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        assert 105 == (await described(client, "missing")).error_code
        assert 42 == (await described(client, "")).error_code
