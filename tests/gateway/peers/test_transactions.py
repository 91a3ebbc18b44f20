"""Transactions whose coordinator, partitions and group are on different brokers."""

import asyncio
from pathlib import Path

import pytest

from tests.gateway.cluster import named, running_cluster
from tests.gateway.running import RunningGateway, fetch
from tests.gateway.txn_client import NEW, OLD, TxnClient, committed, settled
from tests.gateway.wire_client import WireClient

GUARD_S = 60
VERSIONS = pytest.mark.parametrize(
    ("produce", "end", "offsets"), [(11, OLD, 4), (12, NEW, 5)], ids=["old", "new"]
)


async def stable(client: WireClient, partition: int) -> tuple[int, int, int]:
    """Return last stable offset, high watermark, and the number of aborted transactions."""
    response = await client.ask(fetch({partition: 0}, isolation_level=1), 12)
    found = response.responses[0].partitions[0]
    assert 0 == found.error_code
    return found.last_stable_offset, found.high_watermark, len(found.aborted_transactions or ())


async def become_settled(gateway: RunningGateway) -> None:
    async with asyncio.timeout(GUARD_S):
        await settled(gateway)


@VERSIONS
@pytest.mark.parametrize("is_commit", [True, False])
async def test_partitions_and_group_of_other_brokers_end_with_the_transaction(
    tmp_path: Path, is_commit: bool, produce: int, end: int, offsets: int
) -> None:
    async with running_cluster(tmp_path, 3) as cluster:
        coordinator, leader, grouped = (cluster.brokers[each] for each in range(3))
        async with coordinator.client() as one, leader.client() as two, grouped.client() as three:
            group = named(2, 3, "g")
            producer = TxnClient(one, named(0, 3))
            assert 0 == await producer.init()
            for _ in range(2):
                if end == OLD:
                    assert {0: 0, 1: 0} == await producer.add(0, 1)
                    assert 0 == await producer.add_group(group)
                for partition, client in ((0, one), (1, two)):
                    producer.client = client
                    assert 0 == await producer.produce(partition=partition, version=produce)
                producer.client = three
                assert 0 == await producer.commit_offset(group, 7, version=offsets)
                assert 88 == (await committed(three, group, require_stable=True))[0]
                producer.client = one
                assert 0 == await producer.end(commit=is_commit, version=end)
            await become_settled(coordinator)
            aborted = 0 if is_commit else 2
            assert (4, 4, aborted) == await stable(one, 0)
            assert (4, 4, aborted) == await stable(two, 1)
            expected = 7 if is_commit else -1
            assert (0, expected) == await committed(three, group, require_stable=True)
