"""What only another broker may ask, and what it may not: with access rules, quotas and limits."""

import asyncio
from pathlib import Path
from typing import Any, Self

import pytest

from kledger.gateway.config import GatewayConfig
from kledger.gateway.peers.peer_socket import peer_socket_path
from kledger.gateway.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from kledger.gateway.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kledger.gateway.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kledger.gateway.wire.schema import ApiMessage
from kledger.security.authorizer import STANDARD_AUTHORIZER
from kledger.workers.worker_plan import worker_folder
from tests.gateway.authorized import ROOT, authorizer_of, client_of
from tests.gateway.cluster import named, running_cluster
from tests.gateway.running import batch, fetch, produce, until
from tests.gateway.txn_client import TxnClient, settled
from tests.gateway.wire_client import WireClient
from tests.security.acl_words import allow

GUARD_S = 60
TOPIC_FAILED, CLUSTER_FAILED = 29, 31
MARKERS = WriteTxnMarkersRequest(
    markers=[
        WritableTxnMarker(
            producer_id=1,
            producer_epoch=0,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[1])],
        )
    ]
)
INCLUSIONS = AddPartitionsToTxnRequest(
    transactions=[
        AddPartitionsToTxnTransaction(
            transactional_id=named(1, 2),
            producer_id=1,
            producer_epoch=0,
            verify_only=True,
            topics=[AddPartitionsToTxnTopic(name="t", partitions=[1])],
        )
    ]
)


class PeerClient(WireClient):
    """A client of the socket in a broker's folder."""

    def __init__(self, folder: Path, index: int) -> None:
        super().__init__("", 0)
        self._folder = Path(worker_folder(str(folder), index))

    async def __aenter__(self) -> Self:
        with peer_socket_path(self._folder) as path:
            self.reader, self.writer = await asyncio.open_unix_connection(path)
        return self


def authorizing() -> GatewayConfig:
    """Return settings with which nobody but the super user may do anything."""
    config = GatewayConfig(group_initial_rebalance_delay_ms=0)
    config.authorizer_class_name = STANDARD_AUTHORIZER
    config.super_users = f"User:{ROOT}"
    return config


def marker_error(response: Any) -> int:
    return int(response.markers[0].topics[0].partitions[0].error_code)


def inclusion_error(response: Any) -> int:
    if response.error_code:
        return int(response.error_code)
    (topic,) = response.results_by_transaction[0].topic_results
    return int(topic.results_by_partition[0].partition_error_code)


ASKED = pytest.mark.parametrize(
    ("request_", "version", "error_of"),
    [
        pytest.param(MARKERS, 1, marker_error, id="markers"),
        pytest.param(INCLUSIONS, 5, inclusion_error, id="transactions"),
    ],
)


@ASKED
async def test_only_a_peer_may_ask_what_peers_ask(
    tmp_path: Path, request_: ApiMessage, version: int, error_of: Any
) -> None:
    async with running_cluster(tmp_path, config=authorizing()) as cluster:
        for name in ("alice", "Broker:broker", "broker"):
            async with client_of(cluster.brokers[1], name) as client:
                assert CLUSTER_FAILED == error_of(await client.ask(request_, version))
        async with PeerClient(tmp_path, 1) as peer:
            assert CLUSTER_FAILED != error_of(await peer.ask(request_, version))


async def test_a_peer_reads_writes_and_creates_nothing(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path, config=authorizing()) as cluster,
        PeerClient(tmp_path, 1) as peer,
    ):
        answer = await peer.ask(produce({1: batch(b"v")}), 9)
        assert TOPIC_FAILED == answer.responses[0].partition_responses[0].error_code
        answer = await peer.ask(fetch({1: 0}), 12)
        assert TOPIC_FAILED == answer.responses[0].partitions[0].error_code
        new = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
        answer = await peer.ask(CreateTopicsRequest(topics=[new]), 7)
        assert TOPIC_FAILED == answer.topics[0].error_code
        assert None is cluster.brokers[1].services.registry.get("new")


@pytest.mark.parametrize("is_commit", [True, False])
async def test_transactions_span_brokers_with_access_rules(tmp_path: Path, is_commit: bool) -> None:
    """Producers need rights on their topics and ids, and none on the cluster."""
    transactional_id, group = named(0, 2), named(1, 2, "g")
    rules = [
        allow(operation, resource)
        for operation, resource in (
            ("WRITE", f"TRANSACTIONAL_ID:{transactional_id}"),
            ("WRITE", "TOPIC:t"),
            ("READ", "TOPIC:t"),
            ("READ", f"GROUP:{group}"),
        )
    ]
    async with running_cluster(tmp_path, config=authorizing()) as cluster:
        followers = [authorizer_of(each) for each in cluster.brokers.values()]
        await followers[0].create(rules)
        async with asyncio.timeout(GUARD_S):
            await until(lambda: [len(rules)] * 2 == [len(each) for each in followers])
        async with (
            client_of(cluster.brokers[0], "alice") as one,
            client_of(cluster.brokers[1], "alice") as two,
        ):
            producer = TxnClient(one, transactional_id)
            assert 0 == await producer.init()
            producer.client = two
            assert 0 == await producer.produce(partition=1, version=12)
            assert 0 == await producer.commit_offset(group, 7, version=5)
            producer.client = one
            assert 0 == await producer.end(commit=is_commit, version=5)
            async with asyncio.timeout(GUARD_S):
                await settled(cluster.brokers[0])
            answer = await two.ask(fetch({1: 0}, isolation_level=1), 12)
            assert 2 == answer.responses[0].partitions[0].last_stable_offset
