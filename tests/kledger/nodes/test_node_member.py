"""Two nodes in one process are two brokers to clients, and one address to begin with."""

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kledger.cluster import BrokerCluster
from kledger.gateway.cluster_brokers import BrokerRecord, ClusterBrokers
from kledger.gateway.config import GatewayConfig
from kledger.gateway.handlers.k10_find_coordinator import MOVED_IDS
from kledger.gateway.metadata.shown_leaders import moved_leader_id
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages import k45_alter_partition_reassignments as k45
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from kledger.gateway.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from kledger.gateway.wire.messages.k18_api_versions import ApiVersionsRequest
from kledger.gateway.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from kledger.gateway.wire.messages.k60_describe_cluster import DescribeClusterRequest
from kledger.ledger import LedgerStore
from kledger.ledger.testing import FaultyEngine
from kledger.nodes.node_addresses import NodesMistake
from kledger.runtime.containment import Containment
from kledger.runtime.manual_clock import ManualClock
from kledger.runtime.tasks import Supervisor
from kledger.setting_values import split_address
from kledger.settings import ClusterSettings, Settings
from kledger.wiring import BrokerServer
from tests.gateway.cluster import named
from tests.gateway.node_members import SECRET, NodeMembersOfTest, settings_of_nodes
from tests.gateway.running import batch, fetch, fetch_by_id, produce
from tests.gateway.wire_client import WireClient
from tests.ledger.shared_words import create_shared

HOST = "127.0.0.1"
MOVED_MS = 1_000
TOPIC = CreatableTopic(name="t", num_partitions=4, replication_factor=1)
METADATA = MetadataRequest(topics=[MetadataRequestTopic(name="t")])


class ServerOfTest:
    """One process that owns nodes.

    Attributes:
        members: of its nodes.
    """

    def __init__(self, members: NodeMembersOfTest, engines: dict[int, FaultyEngine]) -> None:
        self.members = members
        self._engines = engines
        self._crashes: list[BaseException] = []
        self._serving: dict[int, BrokerServer] = {}

    @property
    def bootstrap(self) -> tuple[str, int]:
        return self.members.bootstrap["kafka"]

    def address(self, node: int) -> tuple[str, int]:
        """Return the own address of a node, which ends with it alone."""
        own = self.members.node_settings(node).server.kafka
        assert own is not None
        return split_address("server.kafka", own)

    async def own(self, node: int, *, leader_epoch: int = 1) -> None:
        """Serve a node."""
        engine = self._engines.setdefault(node, FaultyEngine(None))
        server = BrokerServer(
            self.members.node_settings(node),
            on_crash=self._crashes.append,
            engine=engine,
            member=self.members.member(node),
            leader_epoch=leader_epoch,
        )
        await server.start()
        self._serving[node] = server

    async def leave(self, node: int) -> None:
        """Stop serving a node."""
        await self._serving.pop(node).stop()

    async def close(self) -> None:
        for node in list(self._serving):
            await self.leave(node)
        await self.members.close()
        assert [] == self._crashes


@asynccontextmanager
async def servers(
    folder: Path, count: int = 1, database_url: str | None = None
) -> AsyncIterator[list[ServerOfTest]]:
    """Run servers of a cluster of two nodes, the first of which owns both."""
    engines: dict[int, FaultyEngine] = {}
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(count):
            members = NodeMembersOfTest(folder, 2, database_url=database_url)
            found.append(ServerOfTest(members, engines))
            stack.push_async_callback(found[-1].close)
        for node in (1, 2):
            await found[0].own(node)
        yield found


async def test_clients_are_shown_both_nodes_from_the_bootstrap_address(tmp_path: Path) -> None:
    async with servers(tmp_path) as (server,):
        own = [server.members.node_settings(node).server.kafka for node in (1, 2)]
        async with WireClient(*server.bootstrap) as client:
            created = await client.ask(CreateTopicsRequest(topics=[TOPIC], timeout_ms=60_000), 7)
            assert 0 == created.topics[0].error_code
            found = await client.ask(METADATA, 12)
            described = await client.ask(DescribeClusterRequest(), 1)
        assert own == [f"{each.host}:{each.port}" for each in found.brokers]
        assert [1, 2] == [each.node_id for each in found.brokers]
        assert [1, 2] == [each.broker_id for each in described.brokers]
        assert [(1, 1), (2, 1)] * 2 == [
            (each.leader_id, each.leader_epoch) for each in found.topics[0].partitions
        ]
        for broker in found.brokers:
            async with WireClient(broker.host, broker.port) as client:
                index = broker.node_id - 1
                await client.ask(METADATA, 12)  # a broker knows the topic of another one then
                answer = await client.ask(produce({index: batch(b"v")}), 9)
                assert 0 == answer.responses[0].partition_responses[0].error_code


@pytest.mark.parametrize("asked", [METADATA, MetadataRequest(topics=None)], ids=["one", "all"])
async def test_partitions_of_a_silent_node_have_no_leader_until_it_was_taken_over(
    tmp_path: Path, asked: MetadataRequest
) -> None:
    """A client that found the old address waited for its next request timeout."""

    async def leaders() -> list[tuple[int, int, list[int]]]:
        found = await client.ask(asked, 12)
        assert [1, 2] == [each.node_id for each in found.brokers]
        (topic,) = found.topics
        return [
            (each.leader_id, each.error_code, each.offline_replicas) for each in topic.partitions
        ]

    async with servers(tmp_path) as (server,), WireClient(*server.address(1)) as client:
        await client.ask(CreateTopicsRequest(topics=[TOPIC], timeout_ms=60_000), 7)
        assert [(1, 0, []), (2, 0, [])] * 2 == await leaders()
        server.members.silent[2] = 1
        lost = (-1, ErrorCode.LEADER_NOT_AVAILABLE, [2])
        assert [(1, 0, []), lost] * 2 == await leaders()
        await server.leave(2)
        assert [(1, 0, []), lost] * 2 == await leaders()
        await server.own(2, leader_epoch=2)
        assert [(1, 0, []), (2, 0, [])] * 2 == await leaders()
        del server.members.silent[2]
        assert [(1, 0, []), (2, 0, [])] * 2 == await leaders()


async def test_the_bootstrap_address_survives_a_node_that_leaves(tmp_path: Path) -> None:
    async with servers(tmp_path) as (server,):
        await server.leave(1)
        for _ in range(8):
            async with WireClient(*server.bootstrap) as client:
                assert 2 == len((await client.ask(MetadataRequest(topics=[]), 12)).brokers)
        await server.leave(2)
        with pytest.raises(ConnectionRefusedError):
            async with WireClient(*server.bootstrap):
                pass


@pytest.mark.parametrize("has_database", [False, True], ids=["folder", "database"])
async def test_a_node_that_moves_is_the_same_broker_at_another_address(
    tmp_path: Path, has_database: bool, request: pytest.FixtureRequest
) -> None:
    url = None
    if has_database:
        url = request.getfixturevalue("postgres_url")
        create_shared(request.getfixturevalue("postgres_server"), url)
    async with servers(tmp_path, 2, url) as (one, two):
        async with WireClient(*one.bootstrap) as client:
            await client.ask(CreateTopicsRequest(topics=[TOPIC], timeout_ms=60_000), 7)
            before = await client.ask(METADATA, 12)
        moved = before.brokers[1]
        async with WireClient(moved.host, moved.port) as client:
            await client.ask(METADATA, 12)  # a broker knows the topic of another one then
            answer = await client.ask(produce({1: batch(b"kept")}), 9)
            assert 0 == answer.responses[0].partition_responses[0].error_code
        await one.leave(2)
        await two.own(2, leader_epoch=2)
        for server in (one, two):
            async with WireClient(*server.bootstrap) as client:
                after = await client.ask(METADATA, 12)
            assert [1, 2] == [each.node_id for each in after.brokers]
            assert before.brokers[0] == after.brokers[0]
            assert moved.port != after.brokers[1].port
            assert [(1, 1), (2, 2)] * 2 == [
                (each.leader_id, each.leader_epoch) for each in after.topics[0].partitions
            ]
        async with WireClient(after.brokers[1].host, after.brokers[1].port) as client:
            answer = await client.ask(fetch({1: 0}, leader_epoch=2), 12)
            found = answer.responses[0].partitions[0]
            assert (0, 1) == (found.error_code, found.high_watermark)


@pytest.mark.parametrize(
    ("software", "is_librdkafka"),
    [
        ("librdkafka", True),
        ("rust-rdkafka", True),
        ("confluent-kafka-python", True),
        ("apache-kafka-java", False),
        (None, False),
    ],
)
async def test_librdkafka_drops_a_moved_coordinator_at_its_first_response_on_a_connection(
    tmp_path: Path, software: str | None, is_librdkafka: bool
) -> None:
    """It forgets the old address at no other answer: transactions and commits hang.

    The administration client of aiokafka does not find a broker that metadata do not name. A
    transactional producer of librdkafka adds a group's coordinator with an unknown id to its
    brokers, and waits for it for ever after the next metadata have decommissioned it.
    """
    transactional_id, group_id = named(1, 2), named(1, 2, "g")
    async with servers(tmp_path, 2) as (one, two), WireClient(*one.address(1)) as client:

        async def coordinator(key: str, kind: int) -> tuple[int, int, str]:
            found = await client.ask(FindCoordinatorRequest(key=key, key_type=kind), 3)
            return found.error_code, found.node_id, f"{found.host}:{found.port}"

        if software is not None:
            await client.ask(
                ApiVersionsRequest(client_software_name=software, client_software_version="1"), 3
            )
        await client.ask(METADATA, 12)  # now it knows what others have changed
        before = one.members.node_settings(2).server.kafka
        assert [(0, 2, before)] * 2 == [await coordinator(transactional_id, 1) for _ in range(2)]
        await one.leave(2)
        await two.own(2, leader_epoch=2)
        await client.ask(METADATA, 12)
        after = two.members.node_settings(2).server.kafka
        if is_librdkafka:
            unavailable = (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, ":-1")
            assert unavailable == await coordinator(group_id, 0)
            assert (0, MOVED_IDS + 2, after) == await coordinator(transactional_id, 1)
        for key, kind in ((group_id, 0), (transactional_id, 1)):
            assert (0, 2, after) == await coordinator(key, kind)


@pytest.mark.parametrize("software", ["librdkafka", "apache-kafka-java"])
async def test_librdkafka_sees_a_moved_leader_under_another_id(
    tmp_path: Path, software: str
) -> None:
    """It connects to a new address of a known id only after up to 10 s."""
    async with servers(tmp_path, 2) as (one, two), WireClient(*one.address(1)) as client:
        await client.ask(
            ApiVersionsRequest(client_software_name=software, client_software_version="2.10.0"), 3
        )
        await client.ask(CreateTopicsRequest(topics=[TOPIC], timeout_ms=60_000), 7)
        await one.leave(2)
        await two.own(2, leader_epoch=2)
        after = await client.ask(METADATA, 12)
        addresses = {each.node_id: (each.host, each.port) for each in after.brokers}
        others = [moved_leader_id(2, epoch) for epoch in (1, 2) if software == "librdkafka"]
        moved = others[-1] if others else 2
        assert {1, 2, *others} == addresses.keys()
        assert addresses[2] == addresses[moved]
        (topic,) = after.topics
        assert [1, moved, 1, moved] == [each.leader_id for each in topic.partitions]
        assert [[moved]] * 2 == [topic.partitions[1].replica_nodes, topic.partitions[1].isr_nodes]
        refused = await client.ask(fetch_by_id(topic.topic_id, {1: 0}), 16)
        assert [moved] == [each.node_id for each in refused.node_endpoints]
        (partition,) = refused.responses[0].partitions
        assert moved == partition.current_leader.leader_id


async def test_a_coordinator_that_starts_again_where_it_was_has_not_moved(tmp_path: Path) -> None:
    async with servers(tmp_path) as (server,):
        await server.leave(2)
        await server.own(2, leader_epoch=2)
        asked = FindCoordinatorRequest(key=named(1, 2), key_type=1)
        async with WireClient(*server.bootstrap) as client:
            await client.ask(METADATA, 12)
            assert 2 == (await client.ask(asked, 3)).node_id


async def test_a_move_is_recent_for_some_time() -> None:
    clock = ManualClock()
    async with LedgerStore.open(None, engine=FaultyEngine(None), clock=clock) as store:
        await moved_lately(ClusterBrokers(store, 1, (1, 2), clock), clock)


async def moved_lately(brokers: ClusterBrokers, clock: ManualClock) -> None:
    for port, epoch in ((1, 1), (2, 2)):
        assert {} == brokers.moves_within(MOVED_MS)
        await brokers.register(BrokerRecord(2, {"PLAINTEXT": (HOST, port)}, "", None, epoch))
    assert {2: 2} == brokers.moves_within(MOVED_MS)
    clock.advance(MOVED_MS - 1)
    assert {2: 2} == brokers.moves_within(MOVED_MS)
    clock.advance(1)
    assert {} == brokers.moves_within(MOVED_MS)


async def test_a_broker_that_starts_takes_earlier_takeovers_for_recent_moves() -> None:
    """All servers were restarted, and librdkafka kept the address from before for ever."""
    clock = ManualClock()
    async with LedgerStore.open(None, engine=FaultyEngine(None), clock=clock) as store:
        brokers = ClusterBrokers(store, 1, (1, 2), clock)
        await brokers.register(BrokerRecord(2, {"PLAINTEXT": (HOST, 1)}, "", None, 1))
        assert {} == ClusterBrokers(store, 1, (1, 2), clock).moves_within(MOVED_MS)
        await brokers.register(BrokerRecord(2, {"PLAINTEXT": (HOST, 2)}, "", None, 2))
        assert {2: 2} == ClusterBrokers(store, 1, (1, 2), clock).moves_within(MOVED_MS)
        assert {} == ClusterBrokers(store, 1, (1, 2)).moves_within(MOVED_MS), "workers do not move"


async def test_partitions_stay_with_their_node(tmp_path: Path) -> None:
    async with servers(tmp_path) as (server,), WireClient(*server.bootstrap) as client:
        await client.ask(CreateTopicsRequest(topics=[TOPIC], timeout_ms=60_000), 7)
        answer = await client.ask(
            k45.AlterPartitionReassignmentsRequest(
                topics=[
                    k45.ReassignableTopic(
                        name="t",
                        partitions=[k45.ReassignablePartition(partition_index=0, replicas=[2])],
                    )
                ]
            ),
            0,
        )
        (refused,) = answer.responses[0].partitions
        assert ErrorCode.INVALID_REPLICA_ASSIGNMENT == refused.error_code
        assert "expected broker 1 alone, which has the partition" in refused.error_message


async def test_ports_of_all_nodes_are_kept_from_other_programs(tmp_path: Path) -> None:
    """A node may come at any time."""
    members = NodeMembersOfTest(tmp_path, 2)
    try:
        address = members.node_settings(2).server.kafka
        assert address is not None
        _, _, port = address.rpartition(":")
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((HOST, int(port)))
        taken = settings_of_nodes(f"{HOST}:{port}")
        with pytest.raises(NodesMistake, match=f"kafka {HOST}:{port}: Address already in use"):
            NodeMembersOfTest(tmp_path, 2, taken)
    finally:
        await members.close()


async def test_the_ready_line_names_the_bootstrap_addresses(tmp_path: Path) -> None:
    members = NodeMembersOfTest(tmp_path, 2, settings_of_nodes(native=f"{HOST}:0"))
    try:
        kafka, native = (members.bootstrap[each][1] for each in ("kafka", "native"))
        expected = f"kledger ready kafka={HOST}:{kafka} native={HOST}:{native} admin=-"
        assert expected == members.ready_line("-")
    finally:
        await members.close()


def with_peers(peers: str, advertised: str | None = None) -> Settings:
    cluster = ClusterSettings(peers=peers, advertised_peers=advertised)
    return replace(settings_of_nodes(), cluster=cluster)


async def test_peers_get_the_address_that_the_settings_advertise(tmp_path: Path) -> None:
    settings = with_peers(f"{HOST}:0", "node.example:7000")
    server = ServerOfTest(NodeMembersOfTest(tmp_path, 2, settings), {})
    try:
        cluster = await opened_cluster(server.members, 2)
        assert ("node.example", 7002) == cluster.transport.address
        await cluster.close()
    finally:
        await server.close()


async def opened_cluster(members: NodeMembersOfTest, node: int) -> BrokerCluster:
    return await members.member(node).open(
        members.node_settings(node).kafka,
        containment=Containment(ManualClock()),
        clock=ManualClock(),
        supervisor=Supervisor(),
    )


async def test_native_clients_are_not_sent_to_every_address(tmp_path: Path) -> None:
    """They would connect to their own machine."""
    server = ServerOfTest(NodeMembersOfTest(tmp_path, 2), {})
    cluster = await opened_cluster(server.members, 2)
    try:
        config = GatewayConfig(advertised_host="node.example", advertised_port=9094)
        for bound, shown in (
            ("0.0.0.0:9194", "node.example:9194"),
            ("[::]:9194", "node.example:9194"),
            ("10.0.0.7:9194", "10.0.0.7:9194"),
            ("", ""),
        ):
            await cluster.register(config, (), bound, leader_epoch=1)
            assert shown == cluster.address_of(2)
    finally:
        await cluster.close()
        await server.close()


async def test_a_server_without_listeners_must_name_one_for_peers(tmp_path: Path) -> None:
    base = settings_of_nodes()
    settings = replace(base, server=replace(base.server, kafka=None))
    with pytest.raises(NodesMistake, match=r"cluster\.peers: expected HOST:PORT"):
        NodeMembersOfTest(tmp_path, 2, settings)


async def test_the_secret_is_in_no_text_of_an_object(tmp_path: Path) -> None:
    members = NodeMembersOfTest(tmp_path, 2)
    try:
        for each in (members, members.member(1)):
            assert repr(SECRET)[2:-1] not in repr(each)
    finally:
        await members.close()
