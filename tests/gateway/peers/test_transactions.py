"""Transactions whose coordinator, partitions and group are on different brokers.

Broker 0 coordinates them, broker 1 leads a partition, and another coordinates the group.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kledger.gateway.coordinator.transactions.transaction_coordinator import MARKER_RETRY_MS
from kledger.gateway.coordinator.transactions.txn_record import TxnRecord
from kledger.gateway.peers.remote_transactions import RemoteTransactions
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.offsets import TopicPartition
from tests.gateway.cluster import ClusterOfTest, named, running_cluster
from tests.gateway.running import RunningGateway, fetch, until
from tests.gateway.txn_client import NEW, OLD, TxnClient, committed, settled
from tests.gateway.wire_client import WireClient

GUARD_S = 60
NOT_ENOUGH_REPLICAS = 19
TICKS_OF_A_CONNECTION = 200
X, G = named(0, 2), named(1, 2, "g")
VERSIONS = pytest.mark.parametrize(
    ("produce", "end", "offsets"), [(11, OLD, 4), (12, NEW, 5)], ids=["old", "new"]
)


@pytest.fixture(autouse=True, params=[False, True], ids=["folders", "TCP"])
def by_tcp(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell every story of workers of one machine, and of nodes of several."""
    monkeypatch.setattr(ClusterOfTest, "by_tcp", request.param)


async def stable(client: WireClient, partition: int) -> tuple[int, int, int]:
    """Return last stable offset, high watermark, and the number of aborted transactions."""
    response = await client.ask(fetch({partition: 0}, isolation_level=1), 12)
    found = response.responses[0].partitions[0]
    assert 0 == found.error_code
    return found.last_stable_offset, found.high_watermark, len(found.aborted_transactions or ())


async def advance_until(
    gateway: RunningGateway, step_ms: int, condition: Callable[[], bool]
) -> None:
    """Let time pass, but give brokers that connect to each other room between its steps."""
    async with asyncio.timeout(GUARD_S):
        while not condition():
            gateway.clock.advance(step_ms)
            for _ in range(TICKS_OF_A_CONNECTION):
                await asyncio.sleep(0)


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


@asynccontextmanager
async def two_brokers(
    folder: Path, produce: int = 11, **init: int
) -> AsyncIterator[tuple[ClusterOfTest, TxnClient, WireClient, WireClient]]:
    """Begin a transaction with a record in partition 1 and an offset of a group, on broker 1.

    Yields:
        The brokers, the producer, and a client of each broker.
    """
    async with (
        running_cluster(folder) as cluster,
        cluster.brokers[0].client() as one,
        cluster.brokers[1].client() as two,
    ):
        producer = TxnClient(one, X)
        assert 0 == await producer.init(**init)
        if produce < 12:
            assert {1: 0} == await producer.add(1)
            assert 0 == await producer.add_group(G)
        producer.client = two
        assert 0 == await producer.produce(partition=1, version=produce)
        assert 0 == await producer.commit_offset(G, 7, version=5 if produce >= 12 else 4)
        producer.client = one
        yield cluster, producer, one, two


def record(gateway: RunningGateway) -> TxnRecord:
    found = gateway.services.transactions.record(X)
    assert found is not None
    return found


@VERSIONS
@pytest.mark.parametrize("is_crash", [True, False])
async def test_markers_come_when_their_broker_is_back(
    tmp_path: Path, is_crash: bool, produce: int, end: int, offsets: int
) -> None:
    async with two_brokers(tmp_path, produce) as (cluster, producer, *_):
        coordinator = cluster.brokers[0]
        await cluster.stop(1, is_crash=is_crash)
        assert 0 == await producer.end(commit=True, version=end)
        async with asyncio.timeout(GUARD_S):
            await until(lambda: len(coordinator.services.timers) > 2)
        coordinator.clock.advance(MARKER_RETRY_MS)
        assert record(coordinator).state.is_prepared
        back = await cluster.start(1)
        async with back.client() as client:
            assert (0, 1, 0) == await stable(client, 1)
            assert 88 == (await committed(client, G, require_stable=True))[0]
            await advance_until(
                coordinator, MARKER_RETRY_MS, lambda: not record(coordinator).state.is_prepared
            )
            assert (2, 2, 0) == await stable(client, 1)
            assert (0, 7) == await committed(client, G, require_stable=True)


@VERSIONS
async def test_a_coordinator_that_was_killed_writes_the_markers_when_it_is_back(
    tmp_path: Path, produce: int, end: int, offsets: int
) -> None:
    async with two_brokers(tmp_path, produce) as (cluster, producer, *_):
        await cluster.stop(1)
        assert 0 == await producer.end(commit=True, version=end)
        await cluster.stop(0, is_crash=True)
        back = await cluster.start(1)
        coordinator = await cluster.start(0)
        await become_settled(coordinator)
        async with back.client() as client:
            assert (2, 2, 0) == await stable(client, 1)
            assert (0, 7) == await committed(client, G, require_stable=True)


@VERSIONS
async def test_a_producer_asks_again_while_its_coordinator_is_away(
    tmp_path: Path, produce: int, end: int, offsets: int
) -> None:
    async with two_brokers(tmp_path, produce) as (cluster, producer, _, two):
        assert 0 == await producer.end(commit=True, version=end)
        await become_settled(cluster.brokers[0])
        if end == OLD:
            assert {1: 0} == await producer.add(1)
            assert 0 == await producer.add_group(G)
        await cluster.stop(0)
        producer.client = two
        assert NOT_ENOUGH_REPLICAS == await producer.produce(partition=1, version=produce)
        assert 14 == await producer.commit_offset(G, 8, version=offsets)
        coordinator = await cluster.start(0)
        assert 0 == await producer.produce(partition=1, version=produce)
        assert 0 == await producer.commit_offset(G, 8, version=offsets)
        async with coordinator.client() as producer.client:
            assert 0 == await producer.end(commit=True, version=end)
        await become_settled(coordinator)
        assert (4, 4, 0) == await stable(two, 1)
        assert (0, 8) == await committed(two, G, require_stable=True)


async def test_what_was_not_added_is_refused(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path) as cluster,
        cluster.brokers[0].client() as one,
        cluster.brokers[1].client() as two,
    ):
        producer = TxnClient(one, X)
        assert 0 == await producer.init()
        assert {0: 0} == await producer.add(0)
        producer.client = two
        for version, error in ((9, 48), (11, 120)):
            assert error == await producer.produce(partition=1, version=version)
        for version, error in ((3, 48), (4, 120)):
            assert error == await producer.commit_offset(G, 7, version=version)
        assert (0, 0, 0) == await stable(two, 1)


@pytest.mark.parametrize("version", [9, 11, 12])
async def test_an_old_producer_is_fenced_on_other_brokers(tmp_path: Path, version: int) -> None:
    async with two_brokers(tmp_path, version) as (cluster, old, one, two):
        new = TxnClient(one, X)
        assert 51 == await new.init(), "the open transaction is aborted first"
        await become_settled(cluster.brokers[0])
        assert 0 == await new.init()
        old.client = two
        assert 47 == await old.produce(partition=1, version=version)
        offsets = 5 if version >= 12 else 3
        assert 47 == await old.commit_offset(G, 8, version=offsets)
        assert (2, 2, 1) == await stable(two, 1)
        assert (0, -1) == await committed(two, G, require_stable=True)


@VERSIONS
async def test_a_transaction_that_takes_too_long_is_aborted_everywhere(
    tmp_path: Path, produce: int, end: int, offsets: int
) -> None:
    async with two_brokers(tmp_path, produce, timeout_ms=1_000) as (cluster, producer, _, two):
        coordinator = cluster.brokers[0]
        await advance_until(coordinator, 1_000, lambda: record(coordinator).state.is_idle)
        assert (2, 2, 1) == await stable(two, 1)
        assert (0, -1) == await committed(two, G, require_stable=True)
        producer.client = two
        assert 47 == await producer.produce(partition=1, version=produce)


async def test_nobody_writes_into_the_transaction_of_another_id(tmp_path: Path) -> None:
    """Its leader knows whose it is, and asks the coordinator again when it has started again."""
    async with two_brokers(tmp_path) as (cluster, producer, _, two):
        thief = TxnClient(two, named(0, 2, "thief"))
        thief.producer_id, thief.epoch, thief.sequences = producer.producer_id, 0, {1: 1}
        for version in (11, 12):
            assert 49 == await thief.produce(partition=1, version=version)
        await cluster.stop(1)
        back = await cluster.start(1)
        async with back.client() as producer.client, back.client() as thief.client:
            for version in (11, 12):
                assert 49 == await thief.produce(partition=1, version=version)
            assert 0 == await producer.produce(partition=1)
            assert (0, 2, 0) == await stable(thief.client, 1)


async def test_what_was_confirmed_before_a_marker_is_confirmed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch on its way while its transaction ends would be in a transaction that nobody ends."""
    async with running_cluster(tmp_path) as cluster, cluster.brokers[0].client() as one:
        leader, coordinator = cluster.brokers[1], cluster.brokers[0]
        producer = TxnClient(one, X)
        assert 0 == await producer.init()
        assert {1: 0} == await producer.add(1)
        answers: list[dict[TopicPartition, ErrorCode]] = []
        right_verify = RemoteTransactions.verify

        async def verify(*args: Any, **rest: Any) -> dict[TopicPartition, ErrorCode]:
            answers.append(await right_verify(*args, **rest))
            if len(answers) == 1:
                assert 0 == await producer.end(commit=False)
                await become_settled(coordinator)
            return answers[-1]

        monkeypatch.setattr(RemoteTransactions, "verify", verify)
        async with leader.client() as two:
            late = TxnClient(two, X)
            late.producer_id, late.epoch = producer.producer_id, producer.epoch
            assert 120 == await late.produce(partition=1)
            assert [[ErrorCode.NONE], [ErrorCode.TRANSACTION_ABORTABLE]] == [
                list(each.values()) for each in answers
            ]
            assert (1, 1, 0) == await stable(two, 1)


async def test_a_deleted_topic_needs_no_marker_of_another_broker(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (cluster, producer, *_):
        await cluster.brokers[1].services.registry.delete("t")
        async with asyncio.timeout(GUARD_S):
            await until(lambda: cluster.brokers[0].services.registry.get("t") is None)
        assert 0 == await producer.end(commit=True)
        await become_settled(cluster.brokers[0])
