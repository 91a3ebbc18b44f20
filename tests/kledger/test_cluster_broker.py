"""Brokers without disks over a real database and a folder of objects, in this process."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

import kledger
from kledger.cluster_broker import TIER, ClusterBroker
from kledger.ledger.cluster import PostgresDatabase, standby
from kledger.settings import Settings, load
from kledger.wiring import CannotStart
from tests.ledger.cluster.database_words import owner
from tests.postgres_server import PostgresServer


class Cluster:
    """A cluster that was made, and the settings of its brokers."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.store = url, folder.as_uri()
        self.database = PostgresDatabase(url)
        self.database.create(cluster_id="test-cluster", store=self.store)

    def settings(self, broker_id: int = 1, native: bool = True, /, **flags: object) -> Settings:
        """Return settings; a test that starts processes has no native listener, as gRPC forks."""
        if native:
            flags["server.native"] = "127.0.0.1:0"
        return load(
            flags={
                "cluster.url": self.url,
                "cluster.store": self.store,
                "cluster.sql_asynchronous": True,
                "kafka.node_id": broker_id,
                "server.kafka": "127.0.0.1:0",
                **flags,
            }
        )

    def fence_owner(self) -> None:
        """Close the owner's session, as a standby does that does not see it move."""
        while (seen := self.database.observe()) is not None:
            if self.database.fence(*seen):
                return


class Running:
    """A broker that runs as a task, and what it has announced."""

    def __init__(self, settings: Settings) -> None:
        self.lines: asyncio.Queue[str] = asyncio.Queue()
        self.ending: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        broker = ClusterBroker(settings, announce=self.lines.put_nowait)
        self.task = asyncio.ensure_future(broker.run(self.ending))

    async def line(self) -> str:
        """Return the next line that it announces; raise what has ended it instead."""
        getting = asyncio.ensure_future(self.lines.get())
        await asyncio.wait({getting, self.task}, timeout=60, return_when="FIRST_COMPLETED")
        if not getting.done():
            getting.cancel()
            assert self.task.done(), "it announced nothing"
            self.task.result()
        return await getting

    async def standby_address(self) -> str:
        found = re.fullmatch(r"kledger standby admin=(\S+)", line := await self.line())
        assert found is not None, line
        return found[1]

    async def native(self) -> str:
        """Wait until it is the owner; return its address for native clients."""
        return (await self.addresses())["native"]

    async def addresses(self) -> dict[str, str]:
        """Wait until it is the owner; return its addresses."""
        line = await self.line()
        while line.startswith("kledger standby "):
            line = await self.line()
        assert line.startswith("kledger ready "), line
        return dict(re.findall(r"(\w+)=(\S+)", line))

    async def end(self) -> int:
        if not self.ending.done():
            self.ending.set_result(0)
        return await self.task


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Running]:
    made = Running(settings)
    try:
        yield made
    finally:
        with suppress(CannotStart):
            await made.end()


@pytest.fixture
async def cluster(postgres_url: str, tmp_path: Path) -> AsyncIterator[Cluster]:
    made = await asyncio.to_thread(Cluster, postgres_url, tmp_path / "objects")
    yield made
    await asyncio.to_thread(made.database.close)


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
    monkeypatch.setattr(standby, "ASK_EVERY_MS", 0)
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
    """Wait until something is so in the database; each look is a round trip."""
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
