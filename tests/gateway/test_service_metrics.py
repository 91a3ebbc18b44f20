"""The gauges of a server."""

from kledger.gateway.service_metrics import show_services
from tests.gateway.group_client import GroupClient
from tests.gateway.running import batch, produce, running_gateway
from tests.gateway.txn_client import TxnClient

NAMES = ("topics", "partitions", "groups", "transactional_ids")


async def test_numbers_follow_what_there_is() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        show_services(gateway.services)
        metrics = gateway.services.metrics
        assert [0, 0, 0, 0] == [metrics.snapshot()[name] for name in NAMES]
        await gateway.create_topic(partitions=3)
        await gateway.create_topic("b", partitions=2)
        assert 0 == await GroupClient(client).commit()
        await TxnClient(client).init()
        assert [2, 5, 1, 1] == [metrics.snapshot()[name] for name in NAMES]
        before = metrics.snapshot()["cached_bytes"]
        await client.ask(produce({0: batch(b"v")}), 11)
        assert metrics.snapshot()["cached_bytes"] > before
