"""Brokers without disks that lose the database, or time, with Kafka clients that repeat."""

import asyncio
import logging
import os
import signal
from asyncio import IncompleteReadError
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress

import pytest
from aiokafka import AIOKafkaProducer

from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kledger.gateway.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from kledger.ledger.cluster.database import FORMAT_OF_NODES
from kledger.process import ServerProcess
from kledger.setting_values import split_address
from kledger.wiring import CannotStart
from tests.gateway.wire_client import WireClient
from tests.kledger.cluster_clients import producing, stored
from tests.kledger.cluster_words import Cluster, Running, running
from tests.ledger.cluster.tcp_proxy import TcpProxy
from tests.postgres_server import PostgresServer

LATEST = -1
ASKED = 100
LIST_OFFSETS = ListOffsetsRequest(
    topics=[
        ListOffsetsTopic(
            name="orders", partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST)]
        )
    ]
)
OFFSET_FETCH = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])


@pytest.fixture
async def proxy(postgres_server: PostgresServer) -> AsyncIterator[TcpProxy]:
    made = TcpProxy(postgres_server.socket)
    yield made
    made.close()


def proxied_url(cluster: Cluster, proxy: TcpProxy) -> str:
    name = cluster.url.partition("@/")[2].partition("?")[0]
    return f"postgresql://kledger@127.0.0.1:{proxy.port}/{name}?sslmode=disable"


@asynccontextmanager
async def running_behind(
    proxy: TcpProxy, cluster: Cluster, broker_id: int = 1
) -> AsyncIterator[Running]:
    """A broker that reaches the database through the proxy, without a native listener."""
    url = proxied_url(cluster, proxy)
    async with running(cluster.settings(broker_id, False, **{"cluster.url": url})) as made:
        yield made


async def send(producer: AIOKafkaProducer, number: int) -> int:
    """Send a record; return its offset."""
    sent = await producer.send_and_wait("orders", b"%d" % number, partition=0)
    offset: int = sent.offset
    return offset


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def test_connections_to_the_database_that_are_cut_are_not_noticed_by_clients(
    cluster: Cluster, proxy: TcpProxy
) -> None:
    """A commit or its answer is lost with its connection, or a commit arrives without an answer."""
    cuts = [(1, False), (1, True), (2, False)] * 3
    async with running_behind(proxy, cluster) as broker:
        address = (await broker.addresses())["kafka"]
        async with producing(address) as producer:
            for number, (step, is_delivered) in enumerate(cuts):
                proxy.cut_at(step, is_delivered=is_delivered)
                assert number == await send(producer, number)
                assert proxy.step_count >= step, "the connection was not cut"
        assert numbers(len(cuts)) == await stored(address)
    assert 1 == cluster.database.describe().epoch


async def test_commit_that_arrives_after_its_connection_was_cut_changes_nothing(
    cluster: Cluster, proxy: TcpProxy
) -> None:
    async with running_behind(proxy, cluster) as broker:
        address = (await broker.addresses())["kafka"]
        async with producing(address) as producer:
            assert 0 == await send(producer, 0)
            proxy.is_holding = True
            sending = asyncio.ensure_future(send(producer, 1))
            held = await asyncio.to_thread(proxy.wait_for_held)
            proxy.is_holding = False
            held.cut_client()
            assert 1 == await sending
            await asyncio.to_thread(held.deliver_held)
            assert 2 == await send(producer, 2)
        assert numbers(3) == await stored(address)
    assert 1 == cluster.database.describe().epoch


async def test_database_that_is_away_for_all_holds_up_producers_and_replaces_nobody(
    cluster: Cluster,
    postgres_server: PostgresServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "kledger.ledger.cluster")
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(running(cluster.settings(1, False)))
        address = (await owner.addresses())["kafka"]
        standby = await stack.enter_async_context(running(cluster.settings(2, False)))
        assert (await standby.line()).startswith("kledger standby ")
        async with producing(address) as producer:
            assert 0 == await send(producer, 0)
            await asyncio.to_thread(postgres_server.stop, crash=True)
            try:
                sending = asyncio.ensure_future(send(producer, 1))
                await logged(caplog, "commits wait for the database")
                await logged(caplog, "the database of the cluster is unavailable")
                assert not sending.done(), "nothing can be committed"
            finally:
                await asyncio.to_thread(postgres_server.start)
            assert 1 == await sending
        assert numbers(2) == await stored(address)
        assert 1 == (await asyncio.to_thread(cluster.database.describe)).epoch
        assert standby.lines.empty(), "it took over"


async def logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Wait until a message is logged."""
    async with asyncio.timeout(60):
        while text not in caplog.text:  # noqa: ASYNC110 (the logger is another thread)
            await asyncio.sleep(0)


async def test_cluster_of_a_newer_version_is_refused(
    cluster: Cluster, postgres_server: PostgresServer
) -> None:
    name = cluster.url.partition("@/")[2].partition("?")[0]
    newer = f"UPDATE kledger.cluster SET format = {FORMAT_OF_NODES + 1}"
    await asyncio.to_thread(postgres_server.execute, newer, database=name)
    with pytest.raises(CannotStart, match=f"format {FORMAT_OF_NODES + 1}, expected"):
        async with running(cluster.settings(1, False)) as broker:
            await broker.line()
    assert [] == cluster.database.describe().sessions


@pytest.mark.slow
async def test_owner_that_is_cut_off_acknowledges_nothing_and_says_nothing_is_the_newest(
    cluster: Cluster, proxy: TcpProxy
) -> None:
    """Another broker reaches the database; nobody closes a connection to the one that does not."""
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(running_behind(proxy, cluster))
        address = (await owner.addresses())["kafka"]
        standby = await stack.enter_async_context(running(cluster.settings(2, False)))
        async with producing(address) as producer:
            assert 0 == await send(producer, 0)
        async with WireClient(*split_address("kafka", address)) as client:
            assert {ErrorCode.NONE: [1]} == ends_in(await client.ask(LIST_OFFSETS, 7))
            proxy.is_holding = True
            next_address = (await standby.addresses())["kafka"]
            async with producing(next_address) as producer:
                assert 1 == await send(producer, 1)
            answer = await client.ask(LIST_OFFSETS, 7)
            assert ErrorCode.NOT_LEADER_OR_FOLLOWER in ends_in(answer), answer
            answer = await client.ask(OFFSET_FETCH, 8)
            assert ErrorCode.NOT_COORDINATOR == answer.groups[0].error_code

        proxy.is_holding = False
        for each in proxy.connections:
            each.cut()
        assert (await owner.line()).startswith("kledger standby "), "its session was closed"
        assert numbers(2) == await stored(next_address)
    assert 2 == cluster.database.describe().epoch


@pytest.mark.slow
async def test_owner_that_was_paused_does_not_answer_what_it_was_asked_meanwhile(
    cluster: Cluster,
) -> None:
    """Its first work when it goes on is requests that wait in its socket."""
    first, second = (
        ServerProcess(
            "--cluster", cluster.url, "--store", cluster.store,
            "--set", f"node.id={number}", "--set", "cluster.sql.asynchronous=true",
        )
        for number in (1, 2)
    )  # fmt: skip
    with ExitStack() as stopping:
        stopping.callback(first.stop)
        await asyncio.to_thread(first.start)
        stopping.callback(second.stop)
        await asyncio.to_thread(second.begin().wait_until_standby)
        async with producing(first.kafka_address) as producer:
            assert 0 == await send(producer, 0)
        async with WireClient(*split_address("kafka", first.kafka_address)) as client:
            assert {ErrorCode.NONE: [1]} == ends_in(await client.ask(LIST_OFFSETS, 7))
            os.kill(first.pid, signal.SIGSTOP)
            stopping.callback(os.kill, first.pid, signal.SIGCONT)
            await asyncio.to_thread(second.wait_until_ready)
            async with producing(second.kafka_address) as producer:
                assert 1 == await send(producer, 1)

            for _ in range(ASKED):
                client.send(LIST_OFFSETS, 7)
            os.kill(first.pid, signal.SIGCONT)
            with suppress(IncompleteReadError, ConnectionError):  # it has closed everything
                for _ in range(ASKED):
                    answer = await client.receive()
                    assert {ErrorCode.NOT_LEADER_OR_FOLLOWER} == set(ends_in(answer)), answer
        await asyncio.to_thread(first.wait_until_standby)
        assert numbers(2) == await stored(second.kafka_address)


def ends_in(answer: object) -> dict[ErrorCode, list[int]]:
    """Return the ends of partitions by error code."""
    found: dict[ErrorCode, list[int]] = {}
    for topic in answer.topics:  # type: ignore[attr-defined]
        for each in topic.partitions:
            found.setdefault(ErrorCode(each.error_code), []).append(each.offset)
    return found
