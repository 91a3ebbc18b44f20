"""ListTransactions; row 128 of docs/SCENARIOS.md."""

from typing import Any

import pytest

from kledger.gateway.wire.messages.k66_list_transactions import ListTransactionsRequest
from tests.gateway.running import RunningGateway, running_gateway
from tests.gateway.txn_client import TxnClient
from tests.gateway.wire_client import WireClient


async def listed(client: WireClient, version: int = 2, **filters: Any) -> list[str]:
    response = await client.ask(ListTransactionsRequest(**filters), version)
    assert 0 == response.error_code
    return [one.transactional_id for one in response.transaction_states]


async def prepare(gateway: RunningGateway, client: WireClient) -> list[TxnClient]:
    """Make `empty-1`, and `open-1`, open for 100 ms."""
    await gateway.create_topic()
    producers = [TxnClient(client, name) for name in ("empty-1", "open-1")]
    for each in producers:
        await each.init()
    await producers[1].add(0)
    gateway.clock.advance(100)
    return producers


@pytest.mark.parametrize("version", range(3))
async def test_row_128_all_are_listed_with_their_state(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        assert [] == await listed(client, version)
        producers = await prepare(gateway, client)
        response = await client.ask(ListTransactionsRequest(), version)
        assert [
            ("empty-1", producers[0].producer_id, "Empty"),
            ("open-1", producers[1].producer_id, "Ongoing"),
        ] == [
            (one.transactional_id, one.producer_id, one.transaction_state)
            for one in response.transaction_states
        ]


async def test_filters_are_all_to_be_passed() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        producers = await prepare(gateway, client)
        assert ["open-1"] == await listed(client, state_filters=["Ongoing"])
        assert ["empty-1"] == await listed(
            client, producer_id_filters=[producers[0].producer_id], state_filters=["Empty"]
        )
        assert [] == await listed(client, producer_id_filters=[999])
        assert ["open-1"] == await listed(client, duration_filter=99)
        assert [] == await listed(client, duration_filter=100)
        assert ["empty-1"] == await listed(client, transactional_id_pattern="empty.*")
        assert [] == await listed(client, transactional_id_pattern="empty")


async def test_unknown_states_and_invalid_patterns_are_reported() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await prepare(gateway, client)
        request = ListTransactionsRequest(state_filters=["Dead", "Nonsense"])
        response = await client.ask(request, 0)
        assert ["Nonsense"] == response.unknown_state_filters
        assert [] == response.transaction_states
        for pattern in ("(", r"(.)\1"):  # RE2 has no words for what cannot be matched in one go
            request = ListTransactionsRequest(transactional_id_pattern=pattern)
            assert 128 == (await client.ask(request, 2)).error_code
