"""Which brokers of a cluster get a call, and what the client makes of their answers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import kledger
from kledger.ledger import Position
from kledger.ledger.shared_folder import SharedFolder
from kledger.named_topics.model import CommitRequest, NamedTopicOptions
from kledger.native.broker import EARLIEST, Broker, ConsumerRequest, TopicInfo
from kledger.native.errors import (
    AlreadyClosed,
    ConsumerBusy,
    NotLeaderForPartition,
    SubscriptionNotFound,
    TopicNotFound,
    Unavailable,
)
from kledger.native.rpc.client import RpcClient
from kledger.native.rpc.routing_broker import RoutingBroker
from kledger.subscriptions.model import SubscriptionType
from kledger.testing import Server
from tests.native.recording_broker import (
    SUBSCRIPTION_STATS,
    Deliveries,
    Endings,
    RecordingBroker,
)
from tests.native.two_workers import two_workers

FIRST = "first:1"
LEADERS = ("a:1", "b:2", "a:1")
MOVED = ("a:1", "c:3", "a:1")


class ConnectedBroker(RecordingBroker):
    """One broker of three: `first` leads nothing."""

    def __init__(self, address: str, leaders: tuple[str, ...] = LEADERS) -> None:
        super().__init__()
        self.address = address
        self.leaders = leaders
        self.positions: list[Position] = []
        self.catch_ups = 0
        self.operation_timeout_ms = 30_000
        self.is_away = False
        self.moves_after: int | None = None
        """So many calls later the leader of partition 1 is at another address."""

    async def connect(self, *, timeout_ms: int | None, retry_ms: int | None) -> None:
        if self.is_away:
            raise Unavailable(f"{self.address}: refused for {timeout_ms} ms of {retry_ms}")

    async def catch_up(self) -> None:
        self.catch_ups += 1

    async def ask_brokers(self) -> tuple[str, ...]:
        return ("a:1", "", "b:2") if self.leaders else ()

    async def lookup(self, topic: str, *, create: bool) -> TopicInfo:
        found = await super().lookup(topic, create=create)
        if self.moves_after is not None and len(self.calls) > self.moves_after:
            self.leaders = MOVED
        return found._replace(leaders=self.leaders)

    async def committed_ends(self, topic: str) -> list[Position]:
        await self._answer(None, "committed_ends", topic)
        return self.positions


class Cluster:
    def __init__(self, leaders: tuple[str, ...] = LEADERS) -> None:
        self.first = ConnectedBroker(FIRST, leaders)
        self.connected: dict[str, ConnectedBroker] = {}
        self.away: set[str] = set()
        self.client = RoutingBroker(self.first, self.connect)

    def connect(self, address: str) -> ConnectedBroker:
        assert address not in self.connected
        made = self.connected[address] = ConnectedBroker(address)
        made.is_away = address in self.away
        return made

    def lose(self, address: str) -> None:
        """Let nothing answer at an address from now on."""
        self.away.add(address)
        if address in self.connected:
            self.connected[address].is_away = True

    def called(self, *, lookups: bool = False) -> dict[str, list[tuple[Any, ...]]]:
        """Return the calls by the brokers that got some."""
        brokers = (self.first, *self.connected.values())
        found = {
            each.address: [call for call in each.calls if lookups or call[0] != "lookup"]
            for each in brokers
        }
        return {address: calls for address, calls in found.items() if calls}


Call = Callable[[Broker], Awaitable[Any]]

OF_ANY: dict[str, Call] = {
    "create_topic": lambda b: b.create_topic("orders", 3, {}),
    "topics": lambda b: b.topics(),
    "namespaces": lambda b: b.namespaces(),
    "create_namespace": lambda b: b.create_namespace("t/n"),
    "delete_namespace": lambda b: b.delete_namespace("t/n"),
    "policies": lambda b: b.policies("t/n"),
    "set_policies": lambda b: b.set_policies(name="t/n", policies={"a": "1"}, removed=[]),
}
OF_PARTITION_1: dict[str, Call] = {
    "last_record": lambda b: b.last_record("orders", 1),
    "record_at": lambda b: b.record_at(topic="orders", partition=1, offset=5),
    "start_offload": lambda b: b.start_offload("orders", Position(3, 0), 1),
    "reset_subscription": lambda b: b.reset_subscription(
        "orders", "s", EARLIEST, partition=1, inclusive=True
    ),
    "open_producer": lambda b: b.open_producer("orders", 1, name="p", on_ended=Endings()),
    "open_consumer": lambda b: b.open_consumer(
        ConsumerRequest(
            topic="orders", partition=1, subscription="s", type=SubscriptionType.SHARED
        ),
        deliver=Deliveries(),
        on_ended=Endings(),
    ),
}
OF_ALL_LEADERS: dict[str, Call] = {
    "start_compaction": lambda b: b.start_compaction("orders"),
    "start_offload": lambda b: b.start_offload("orders", None, None),
    "subscriptions": lambda b: b.subscriptions("orders"),
    "create_subscription": lambda b: b.create_subscription("orders", "s", EARLIEST),
    "subscription_stats": lambda b: b.subscription_stats("orders", "s"),
    "reset_subscription": lambda b: b.reset_subscription(
        "orders", "s", EARLIEST, partition=None, inclusive=True
    ),
    "skip_messages": lambda b: b.skip_messages("orders", "s", 3),
    "clear_backlog": lambda b: b.clear_backlog(topic="orders", name="s"),
    "peek": lambda b: b.peek("orders", "s", 3),
    "delete_subscription": lambda b: b.delete_subscription("orders", "s", force=True),
}
OF_CHANNELS: dict[str, Call] = {
    "delete_topic": lambda b: b.delete_topic("orders"),
    "create_partitions": lambda b: b.create_partitions(name="orders", count=5),
    "open_named_topic": lambda b: b.open_named_topic(
        "orders", channel_count=0, options=NamedTopicOptions(), create=False
    ),
    "destroy_named_topic": lambda b: b.destroy_named_topic("orders"),
    "wait_for_room": lambda b: b.wait_for_room("orders", 1, 1),
    "commit_channels": lambda b: b.commit_channels("orders", CommitRequest("g", 1, ())),
}
OF_ALL_BROKERS: dict[str, Call] = {
    "named_topics": lambda b: b.named_topics(),
    "metrics_clients": lambda b: b.metrics_clients(),
    "client_metrics": lambda b: b.client_metrics("8SNFZ4mrze-BI0VniavN7w"),
}


@pytest.mark.parametrize(
    ("calls", "brokers"),
    [
        (OF_ANY, [FIRST]),
        (OF_PARTITION_1, ["b:2"]),
        (OF_ALL_LEADERS, ["a:1", "b:2"]),
        (OF_CHANNELS, ["a:1"]),
        (OF_ALL_BROKERS, ["a:1", "b:2"]),
    ],
    ids=["any", "partition", "leaders", "channels", "brokers"],
)
async def test_call_goes_to_the_brokers_that_can_answer(
    calls: dict[str, Call], brokers: list[str]
) -> None:
    for name, call in calls.items():
        cluster, alone = Cluster(), RecordingBroker()
        await call(cluster.client)
        await call(alone)
        assert dict.fromkeys(brokers, alone.calls) == cluster.called(), name


@pytest.mark.parametrize(
    "calls", [OF_ANY, OF_PARTITION_1, OF_ALL_LEADERS, OF_CHANNELS, OF_ALL_BROKERS]
)
async def test_server_that_is_alone_gets_every_call(calls: dict[str, Call]) -> None:
    for name, call in calls.items():
        cluster, alone = Cluster(leaders=()), RecordingBroker()
        await call(alone)
        await call(cluster.client)
        assert {FIRST: alone.calls} == cluster.called(), name
        assert {} == cluster.connected, name


async def test_leaders_are_looked_up_once() -> None:
    cluster = Cluster()
    for name in ("orders", "persistent://public/default/orders"):
        for partition in (0, 1, 2):
            await cluster.client.last_record(name, partition)
    assert [("lookup", "orders", False)] == cluster.called(lookups=True)[FIRST]


async def test_partition_that_is_newer_than_the_lookup_is_looked_up() -> None:
    cluster = Cluster()
    await cluster.client.last_record("orders", 0)
    cluster.first.leaders = (*LEADERS, "b:2")
    await cluster.client.last_record("orders", 3)
    assert [("last_record", "orders", 3)] == cluster.called()["b:2"]


async def test_partition_that_does_not_exist_is_refused_by_the_first_broker() -> None:
    cluster = Cluster()
    for partition in (-1, 3):
        await cluster.client.last_record("orders", partition)
        assert ("last_record", "orders", partition) == cluster.called()[FIRST][-1]


async def test_broker_that_does_not_lead_lets_the_client_look_up_again() -> None:
    cluster = Cluster()
    await cluster.client.last_record("orders", 1)
    cluster.first.leaders = ("a:1", "a:1", "a:1")
    cluster.connected["b:2"].fail_all = NotLeaderForPartition("partition 1 of orders: got 0")
    await cluster.client.last_record("orders", 1)
    assert [("last_record", "orders", 1)] == cluster.called()["a:1"]


async def test_broker_that_does_not_lead_by_a_new_lookup_is_an_error() -> None:
    cluster = Cluster()
    await cluster.client.last_record("orders", 1)
    cluster.connected["b:2"].fail_all = NotLeaderForPartition("partition 1 of orders: got 0")
    with pytest.raises(NotLeaderForPartition):
        await cluster.client.last_record("orders", 1)


@pytest.mark.parametrize("error", [Unavailable("down"), TopicNotFound("deleted")])
async def test_leaders_are_looked_up_again_after_a_failure(error: Exception) -> None:
    """The partition may have another leader then, or the name another topic."""
    cluster = Cluster()
    await cluster.client.last_record("orders", 1)
    cluster.connected["b:2"].fail_next = error
    with pytest.raises(type(error)):
        await cluster.client.last_record("orders", 1)
    cluster.first.leaders = ("a:1", "a:1", "a:1")
    await cluster.client.last_record("orders", 1)
    assert [("last_record", "orders", 1)] == cluster.called()["a:1"]


@pytest.mark.parametrize("is_known", [False, True])
async def test_leader_that_has_moved_is_found_at_its_new_address(is_known: bool) -> None:
    cluster = Cluster()
    if is_known:
        await cluster.client.last_record("orders", 1)
    cluster.lose("b:2")
    cluster.first.moves_after = len(cluster.first.calls) + 1
    await cluster.client.last_record("orders", 1)
    assert [("last_record", "orders", 1)] == cluster.called()["c:3"]
    await cluster.client.subscriptions("orders")
    assert [("subscriptions", "orders")] == cluster.called()["c:3"][1:]


async def test_leader_that_is_not_reached_in_time_is_unavailable() -> None:
    cluster = Cluster()
    cluster.lose("b:2")
    cluster.first.operation_timeout_ms = 0
    with pytest.raises(Unavailable, match="b:2: refused for 1000 ms"):
        await cluster.client.last_record("orders", 1)


async def test_leader_that_has_not_started_is_unavailable() -> None:
    cluster = Cluster(("a:1", "", "a:1"))
    with pytest.raises(Unavailable, match="partition 1 of orders: the broker that leads it has"):
        await cluster.client.last_record("orders", 1)
    with pytest.raises(Unavailable, match="partition 1 of orders"):
        await cluster.client.subscriptions("orders")


async def test_any_host_is_the_one_that_the_client_has_connected_to() -> None:
    cluster = Cluster(("0.0.0.0:7", "[::]:8", "b:9"))
    for partition in (0, 1, 2):
        await cluster.client.last_record("orders", partition)
    assert ["first:7", "first:8", "b:9"] == list(cluster.connected)


async def test_broker_that_lacks_its_partitions_is_asked_again() -> None:
    cluster = Cluster()
    await cluster.client.subscriptions("orders")
    a, b = cluster.connected["a:1"], cluster.connected["b:2"]
    a.positions, b.positions = [Position(1, 0)], [Position(2, 0)]
    asking = asyncio.ensure_future(cluster.client.committed_ends("orders"))
    await a.happened("committed_ends", "orders")
    a.positions = [Position(1, 0), Position(3, 0)]
    assert [Position(1, 0), Position(2, 0), Position(3, 0)] == await asking


async def test_subscription_of_some_partitions_exists() -> None:
    cluster = Cluster()
    await cluster.client.subscriptions("orders")
    cluster.connected["a:1"].fail_next = SubscriptionNotFound("none")
    assert SUBSCRIPTION_STATS == await cluster.client.subscription_stats("orders", "s")
    for each in cluster.connected.values():
        each.fail_next = SubscriptionNotFound("none")
    with pytest.raises(SubscriptionNotFound):
        await cluster.client.subscription_stats("orders", "s")


async def test_subscription_with_consumers_at_one_broker_is_deleted_at_none() -> None:
    cluster = Cluster()
    with pytest.raises(ConsumerBusy, match="subscription 's' of orders has consumers: "):
        await cluster.client.delete_subscription("orders", "s", force=False)
    assert {"subscription_stats"} == {
        name for calls in cluster.called().values() for name, *_ in calls
    }


async def test_named_topic_that_another_broker_has_created_meanwhile() -> None:
    cluster = Cluster()
    refusals = iter([TopicNotFound("orders"), NotLeaderForPartition("orders")])
    cluster.first.refuse = lambda: next(refusals, None)
    await cluster.client.open_named_topic(
        "orders", channel_count=3, options=NamedTopicOptions(), create=True
    )
    assert ["open_named_topic"] == [name for name, *_ in cluster.called()["a:1"]]


@pytest.mark.parametrize(
    "call",
    [
        OF_ANY["set_policies"],
        OF_CHANNELS["delete_topic"],
        OF_CHANNELS["create_partitions"],
        OF_CHANNELS["open_named_topic"],
        OF_CHANNELS["destroy_named_topic"],
    ],
)
async def test_all_connected_brokers_catch_up_with_a_change(call: Call) -> None:
    cluster = Cluster()
    await cluster.client.subscriptions("orders")
    await call(cluster.client)
    brokers = [cluster.first, *cluster.connected.values()]
    assert [1, 1, 1] == [each.catch_ups for each in brokers]


async def test_close_closes_every_connection() -> None:
    cluster = Cluster()
    await cluster.client.subscriptions("orders")
    await cluster.client.close()
    assert all(("close",) in calls for calls in cluster.called().values())
    assert {FIRST, "a:1", "b:2"} == set(cluster.called())
    cluster.first.leaders = ("c:3",)
    with pytest.raises(AlreadyClosed):
        await cluster.client.subscriptions("orders")


# Real workers


@asynccontextmanager
async def connection(address: str) -> AsyncIterator[RpcClient]:
    client = RpcClient(address)
    await client.connect(timeout_ms=60_000)
    try:
        yield client
    finally:
        await client.close()


async def test_worker_names_the_leaders_and_refuses_partitions_of_others() -> None:
    async with (
        two_workers() as servers,
        connection(servers[0].native_address) as one,
        connection(servers[1].native_address) as other,
    ):
        addresses = tuple(each.native_address for each in servers)
        assert addresses == await one.ask_brokers() == await other.ask_brokers()
        assert addresses == other.brokers
        await one.create_topic("orders", 3, {})
        info = TopicInfo("orders", 3, (*addresses, addresses[0]))
        assert info == await one.lookup("orders", create=False)
        assert info == await other.lookup("orders", create=False)
        with pytest.raises(NotLeaderForPartition, match="partition 0 of orders: expected 1"):
            await other.open_producer("orders", 0, name="p", on_ended=Endings())
        with pytest.raises(NotLeaderForPartition):
            await one.start_offload("orders", None, 1)
        await one.create_topic("small", 1, {})
        assert addresses[1:] == (await one.lookup("small", create=False)).leaders
        with pytest.raises(NotLeaderForPartition):
            await one.topic_stats("small")


async def test_client_sees_its_own_changes_at_every_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the workers look for changes of each other only when they must."""
    monkeypatch.setattr(SharedFolder, "_poll", lambda _: None)
    async with (
        two_workers() as servers,
        kledger.connect(f"kledger://{servers[1].native_address}") as client,
    ):
        await client.create_topic("orders", partitions=2)
        await client.create_producer("orders")
        await client.create_partitions("orders", 5)
        assert 5 == len((await client.topic_stats("orders")).partitions)
        await client.set_policies("orders", {"compactionThreshold": 5})
        for server in servers:
            assert {"compactionThreshold": "5"} == await server.broker.policies("orders")
        await client.delete_topic("orders")
        assert [] == await client.topics()
        for server in servers:
            assert [] == await server.broker.topics()
        jobs = await client.named_topic("jobs", channel_count=2)
        assert 3 == (await client.named_topic("jobs", channel_count=3)).channel_count
        for server in servers:
            assert 3 == (await server.broker.lookup("jobs", create=False)).partition_count
        await client.create_topic("more", partitions=2)
        assert 2 == len((await client.topic_stats("more")).partitions)
        assert ["jobs"] == await client.named_topics()
        assert 2 == jobs.channel_count


async def test_server_that_is_alone_has_one_connection() -> None:
    async with Server(native="127.0.0.1:0") as server, connection(server.native_address) as client:
        assert () == client.brokers == await client.ask_brokers()
        await client.create_topic("orders", 3, {})
        assert TopicInfo("orders", 3) == await client.lookup("orders", create=False)


async def test_topic_that_was_created_again_is_found_at_its_new_leader() -> None:
    async with two_workers() as servers:
        urls = [f"kledger://{each.native_address}" for each in servers]
        async with kledger.connect(urls[0]) as stale, kledger.connect(urls[1]) as other:
            await stale.create_topic("orders")
            assert 0 == (await stale.topic_stats("orders")).partitions[0].end_offset
            async with await stale.create_producer("orders") as producer:
                await producer.send(b"old")
            await other.delete_topic("orders")
            await other.create_topic("more")  # worker 0 leads it
            await other.create_topic("orders")
            assert servers[1].native_address in str(
                await servers[1].broker.lookup("orders", create=False)
            )
            async with await other.create_producer("orders") as producer:
                await producer.send(b"new")
            id_ = await stale.position_of("orders", 0, 0)
            assert 0 == await stale.offset_of(id_, "orders")


async def test_named_topics_of_all_workers_are_listed_and_stay_at_one() -> None:
    async with two_workers() as servers:
        urls = [f"kledger://{each.native_address}" for each in servers]
        async with kledger.connect(urls[0]) as one, kledger.connect(urls[1]) as other:
            jobs = await one.named_topic("jobs", channel_count=3)
            tasks = await other.named_topic("tasks", channel_count=2)
            assert ["jobs", "tasks"] == await one.named_topics() == await other.named_topics()
            assert 5 == (await other.named_topic("jobs", channel_count=5)).channel_count
            await one.create_partitions("tasks", 4)
            for name, server in (("jobs", servers[0]), ("tasks", servers[1])):
                info = await servers[0].broker.lookup(name, create=False)
                assert {server.native_address} == set(info.leaders)
            for topic in (jobs, tasks):
                async with (
                    await topic.create_subscriber(group="g") as subscriber,
                    await topic.create_publisher() as publisher,
                ):
                    await publisher.publish(b"x")
                    element = await subscriber.receive()
                    assert element is not None
                    assert b"x" == element.value


async def test_topic_of_several_workers_is_refused_as_a_named_topic() -> None:
    async with (
        two_workers() as (_, server),
        kledger.connect(f"kledger://{server.native_address}") as client,
    ):
        await client.create_topic("orders", partitions=2)
        with pytest.raises(kledger.IllegalArgument, match="expected one broker that leads all"):
            await client.named_topic("orders")
        with pytest.raises(kledger.TopicNotFound, match="no named topic"):
            await client.find_named_topic("orders")
        assert [] == await client.named_topics()
