"""Brokers without disks over a real database and a folder of objects, in this process."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

import kledger
from kledger.cluster_settings import TIER
from kledger.ledger.cluster import standby
from kledger.settings import load
from kledger.wiring import CannotStart
from tests.kledger.cluster_words import Cluster, running
from tests.ledger.cluster.database_words import owner
from tests.ledger.cluster.tcp_proxy import TcpProxy
from tests.postgres_server import USER, PostgresServer


async def send(address: str, *values: bytes) -> None:
    async with (
        kledger.connect(f"kledger://{address}") as client,
        await client.create_producer("orders") as producer,
    ):
        for value in values:
            await producer.send(value)


async def stored(address: str) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with (
        kledger.connect(f"kledger://{address}") as client,
        await client.create_reader("orders", "earliest") as reader,
    ):
        while await reader.has_message_available():
            found.append((await reader.read_next(timeout_ms=60_000)).value)
    return found


async def text_of(address: str, page: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{address}/{page}") as response,
    ):
        return response.status, await response.text()


async def test_what_a_broker_has_acknowledged_is_there_for_the_next_one(cluster: Cluster) -> None:
    async with running(cluster.settings(1)) as first:
        await send(await first.native(), b"one", b"two")
        assert 0 == await first.end()
    async with running(cluster.settings(2)) as second:
        address = await second.native()
        assert [b"one", b"two"] == await stored(address)
        await send(address, b"three")
        assert [b"one", b"two", b"three"] == await stored(address)
    assert 2 == cluster.database.describe().epoch


async def test_standby_takes_over_when_the_owner_ends(cluster: Cluster) -> None:
    async with running(cluster.settings(1)) as first:
        await send(await first.native(), b"one")
        async with running(cluster.settings(2, **{"server.admin": "127.0.0.1:0"})) as second:
            address = await second.standby_address()
            assert (200, "standby\n") == await text_of(address, "health")
            assert 503 == (await text_of(address, "metrics"))[0]
            await first.end()
            assert [b"one"] == await stored(await second.native())


async def test_fenced_owner_becomes_a_standby_again(cluster: Cluster) -> None:
    async with running(cluster.settings(1)) as broker:
        await send(await broker.native(), b"one")
        await asyncio.to_thread(cluster.fence_owner)
        address = await broker.native()
        assert [b"one"] == await stored(address)
        await send(address, b"two")
        assert [b"one", b"two"] == await stored(address)
    assert 2 == cluster.database.describe().epoch


async def test_owner_shows_its_commits(cluster: Cluster) -> None:
    async with running(cluster.settings(1, **{"server.admin": "127.0.0.1:0"})) as broker:
        addresses = await broker.addresses()
        await send(addresses["native"], b"one")
        status, page = await text_of(addresses["admin"], "metrics")
        assert 200 == status
        shown = dict(re.findall(r"^kledger_cluster_(\w+) (\d+)", page, re.MULTILINE))
        assert ("1", "1", "0") == (shown["epoch"], shown["is_current"], shown["settled_commits"])
        assert int(shown["commits"]) > 1
        assert int(shown["inline_groups"]) > 0
        assert "serving\n" == (await text_of(addresses["admin"], "health"))[1]


async def test_closed_ledgers_go_to_the_tier_below_the_store(
    cluster: Cluster, tmp_path: Path
) -> None:
    flags = {"topics.log_roll_ms": "1", "server.log_retention_check_interval_ms": 50}
    values = [b"%d" % number + b"." * 100 for number in range(5)]
    async with running(cluster.settings(1, **flags)) as broker:
        address = await broker.native()
        for value in values:  # a ledger each
            await send(address, value)
        tier = tmp_path / "objects" / TIER
        await wait_for(lambda: len(list(tier.rglob("*-ledger-*-index"))) == len(values) - 1)
        assert values == await stored(address)
    async with running(cluster.settings(2, **flags)) as broker:
        assert values == await stored(await broker.native())


@pytest.mark.slow
async def test_owner_that_is_cut_off_is_replaced_and_comes_back_as_a_standby(
    cluster: Cluster, postgres_server: PostgresServer
) -> None:
    """Its last statement arrives when the next owner has gone on, and changes nothing."""
    proxy = TcpProxy(postgres_server.socket)
    name = cluster.url.partition("@/")[2].partition("?")[0]
    url = f"postgresql://{USER}@127.0.0.1:{proxy.port}/{name}?sslmode=disable"
    async with running(cluster.settings(1, **{"cluster.url": url})) as first:
        await send(await first.native(), b"one")
        proxy.is_holding = True
        async with running(cluster.settings(2)) as second:
            address = await second.native()
            assert [b"one"] == await stored(address)
            await send(address, b"two")
            held = [each for each in proxy.connections if each.held]
            proxy.is_holding = False
            for each in proxy.connections:
                each.cut_client()
            await first.standby_address()
            assert held, "the owner has sent nothing"
            for each in held:
                await asyncio.to_thread(each.deliver_held)
            assert [b"one", b"two"] == await stored(address)
            assert [2] == [
                each.epoch for each in cluster.database.describe().sessions if each.state == 1
            ]
    proxy.close()


@pytest.mark.slow  # it waits for the database as long as an operator would
async def test_broker_ends_although_the_database_is_away(
    cluster: Cluster, postgres_server: PostgresServer
) -> None:
    async with running(cluster.settings(1, False)) as broker:
        await broker.native()
        # In a thread: the broker has to go on meanwhile.
        await asyncio.to_thread(postgres_server.stop)
        try:
            assert 0 == await broker.end()
        finally:
            await asyncio.to_thread(postgres_server.start)


async def test_standby_ends_when_a_newer_process_has_its_number(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "ACQUIRE_EVERY_MS", 0)
    session = owner(cluster.database, 9)
    async with running(cluster.settings(1)) as first:
        await first.standby_address()
        await wait_for(lambda: len(cluster.database.describe().sessions) == 2)
        async with running(cluster.settings(1)) as second:
            await second.standby_address()
            with pytest.raises(CannotStart, match="another process has begun a session"):
                await first.task
    cluster.database.end_session(session)


async def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds in the database; each check is a round trip."""
    for _ in range(60_000):
        if await asyncio.to_thread(condition):
            return
    raise AssertionError("it did not come")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"cluster.sql_asynchronous": False}, "may lose what was acknowledged"),
        ({"cluster.store": "s3://elsewhere"}, "object store is file://"),
        ({"cluster.url": "postgresql://127.0.0.1:1/x"}, "no connection to the database"),
        ({"server.kafka": "192.0.2.1:1"}, "kafka 192.0.2.1:1: "),
        ({"kafka.listener_addresses": "SSL://127.0.0.1:0"}, "ssl"),
    ],
)
async def test_mistake_ends_a_broker_before_it_has_a_session(
    cluster: Cluster, flags: dict[str, object], message: str
) -> None:
    with pytest.raises(CannotStart, match=message):
        async with running(cluster.settings(1, **flags)) as broker:
            await broker.line()
    assert [] == cluster.database.describe().sessions


async def test_database_without_a_cluster_is_refused(postgres_url: str, tmp_path: Path) -> None:
    flags = {
        "cluster.url": postgres_url,
        "cluster.store": tmp_path.as_uri(),
        "server.kafka": "127.0.0.1:0",
    }
    with pytest.raises(CannotStart, match="`kledger cluster init` makes one"):
        async with running(load(flags=flags)) as broker:
            await broker.line()


async def test_database_that_has_lost_commits_ends_the_broker_with_the_reason(
    cluster: Cluster, postgres_server: PostgresServer
) -> None:
    name = cluster.url.partition("@/")[2].partition("?")[0]
    forget = "UPDATE kledger.stream SET seq = 0"
    async with running(cluster.settings(1, False)) as broker:
        await broker.native()
        await asyncio.to_thread(postgres_server.execute, forget, database=name)
        with pytest.raises(CannotStart, match="the database has lost commits"):
            await broker.task
