"""Servers of a cluster of nodes over a real database and a folder of objects, in this process."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import aiohttp
import pytest

import kledger
from kledger.nodes.node_server import NodeServer
from kledger.wiring import CannotStart
from tests.kledger.cluster_words import Cluster, running
from tests.ledger.cluster.tcp_proxy import TcpProxy
from tests.postgres_server import PostgresServer

NODES = 3
RECORDS = 30
TOPIC = "orders"
QUICK_STEPS = (61, 76, 91)
Owners = dict[int, int | None]
node_server = partial(running, make=NodeServer)


@pytest.fixture
async def cluster(postgres_url: str, tmp_path: Path) -> AsyncIterator[Cluster]:
    store = (tmp_path / "objects").as_uri()
    made = await asyncio.to_thread(partial(Cluster, postgres_url, store, nodes=NODES))
    yield made
    await asyncio.to_thread(made.database.close)


async def owners(cluster: Cluster, *, until: Callable[[Owners], bool]) -> Owners:
    """Look at the owners again and again, until they are as they should be."""
    async with asyncio.timeout(60):
        while True:
            seen = await asyncio.to_thread(cluster.database.observe_nodes)
            found = {each.node: each.server_id for each in seen.nodes}
            if until(found):
                return found


async def shown(admin: str, page: str) -> None:
    """Wait until a server shows this page to health checks."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(60):
        found = ""
        while found != page:
            async with session.get(f"http://{admin}/health") as response:
                found = await response.text()


def are_owned_by(*servers: int) -> Callable[[Owners], bool]:
    """Return whether these servers own all nodes, as evenly as they can."""

    def check(found: Owners) -> bool:
        counts = Counter(found.values())
        spread = max(counts.values()) - min(counts.values())
        return counts.keys() == set(servers) and spread <= 1

    return check


async def send(address: str, numbers: range) -> None:
    async with (
        kledger.connect(f"kledger://{address}") as client,
        await client.create_producer(TOPIC) as producer,
    ):
        for number in numbers:
            await producer.send(b"%d" % number, key=b"%d" % number)


async def stored(address: str) -> list[int]:
    found: list[int] = []
    async with (
        kledger.connect(f"kledger://{address}") as client,
        await client.create_reader(TOPIC, "earliest") as reader,
    ):
        while await reader.has_message_available():
            found.append(int((await reader.read_next(timeout_ms=60_000)).value or b""))
    return sorted(found)


async def test_servers_divide_the_nodes_and_hand_them_over_when_one_ends(cluster: Cluster) -> None:
    async with node_server(cluster.settings(1)) as first:
        address = await first.native()
        await owners(cluster, until=are_owned_by(1))
        async with kledger.connect(f"kledger://{address}") as client:
            await client.create_topic(TOPIC, partitions=2 * NODES)
        await send(address, range(RECORDS))
        async with node_server(cluster.settings(2)) as second:
            other = await second.native()
            await owners(cluster, until=are_owned_by(1, 2))
            assert [*range(RECORDS)] == await stored(other)
            await send(other, range(RECORDS, 2 * RECORDS))
            assert 0 == await first.end()
            await owners(cluster, until=are_owned_by(2))
            assert [*range(2 * RECORDS)] == await stored(other)


async def test_page_shows_the_nodes_that_a_server_serves(cluster: Cluster) -> None:
    async with node_server(cluster.settings(1, **{"server.admin": "127.0.0.1:0"})) as server:
        admin = await server.standby_address()
        await server.native()
        await shown(admin, "serving\nnodes: 1, 2, 3\n")
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{admin}/metrics") as response,
        ):
            assert 503 == response.status


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(step, marks=() if step in QUICK_STEPS else pytest.mark.slow)
        for step in range(1, 140)
    ],
)
async def test_server_goes_on_when_a_connection_breaks_while_its_nodes_load(
    cluster: Cluster, postgres_server: PostgresServer, step: int
) -> None:
    """Two of three steps ended the server."""
    proxy = TcpProxy(postgres_server.socket)
    database = cluster.url.partition("@/")[2].partition("?")[0]
    url = f"postgresql://kledger@127.0.0.1:{proxy.port}/{database}?sslmode=disable"
    flags = {"cluster.url": url, "server.admin": "127.0.0.1:0"}
    async with node_server(cluster.settings(1, **flags)) as server:
        admin = await server.standby_address()
        proxy.cut_at(step, is_delivered=False)
        address = await server.native()
        await shown(admin, "serving\nnodes: 1, 2, 3\n")
        await send(address, range(RECORDS))
        assert 0 == await server.end()
    proxy.close()


async def test_server_whose_port_is_taken_does_not_start(cluster: Cluster) -> None:
    settings = cluster.settings(1, **{"server.kafka": "127.0.0.1:65534"})
    async with node_server(settings) as server:
        with pytest.raises(CannotStart, match="kafka: expected a port of at most 65532"):
            await server.task
