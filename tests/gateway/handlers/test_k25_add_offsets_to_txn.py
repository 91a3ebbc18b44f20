"""AddOffsetsToTxn."""

import pytest

from tests.gateway.running import running_gateway
from tests.gateway.txn_client import TxnClient


@pytest.mark.parametrize("version", range(5))
async def test_a_group_is_added(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        producer = TxnClient(client)
        await producer.init()
        for _ in range(2):
            assert 0 == await producer.add_group("g", version=version)
        record = gateway.services.transactions.record("x")
        assert record is not None
        assert {"g"} == record.groups


@pytest.mark.parametrize(("version", "error"), [(1, 47), (2, 90), (4, 90)])
async def test_what_cannot_be_is_refused(version: int, error: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        producer = TxnClient(client)
        assert 49 == await producer.add_group("g", version=version)
        await producer.init()
        assert 24 == await producer.add_group("", version=version)
        producer.epoch += 1
        assert error == await producer.add_group("g", version=version)
        producer.transactional_id = ""
        assert 42 == await producer.add_group("g", version=version)
