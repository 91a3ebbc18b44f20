"""Two brokers without disks as processes, one of which dies or stops again and again under load.

Clients have one address, as behind a load balancer, which leads to the broker that is ready.
"""

import asyncio
import os
import random
import re
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition
from confluent_kafka import Consumer, Message, Producer

from kledger.ledger.cluster import PostgresDatabase
from kledger.ledger.cluster.session_state import FENCE_AFTER_MS
from kledger.process import ServerProcess
from kledger.setting_values import split_address
from tests.kledger.workers.running_workers import fixed_ports
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.slow
PARTITIONS = 3
ROUNDS = 9
RECORDS_PER_ROUND = 200
PIECE_BYTES = 1 << 16


class Balancer:
    """Leads connections to one address at a time; `lead_to` ends those to the one before."""

    def __init__(self) -> None:
        self._target: tuple[str, int] | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)

    def lead_to(self, address: str) -> None:
        self._target = split_address("kafka", address)
        self._end_connections()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self._end_connections()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _end_connections(self) -> None:
        for each in self._connections:
            each.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            if self._target is None:
                raise ConnectionRefusedError
            to_reader, to_writer = await asyncio.open_connection(*self._target)
            self._connections |= {writer, to_writer}
            both = [
                asyncio.ensure_future(_copy(reader, to_writer)),
                asyncio.ensure_future(_copy(to_reader, writer)),
            ]
            self._tasks.update(both)
            await asyncio.wait(both)
            self._connections -= {writer, to_writer}
        writer.transport.abort()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await source.read(PIECE_BYTES):
            sink.write(piece)
            await sink.drain()
    sink.transport.abort()


class Pair:
    """The brokers, of which one is the owner."""

    def __init__(self, url: str, store: str, balancer: Balancer) -> None:
        self._url, self._store, self._balancer = url, store, balancer
        self._node_id = 0
        self.owner = self.begin()
        self.standby: ServerProcess | None = None

    def begin(self) -> ServerProcess:
        """Start a broker."""
        self._node_id += 1
        return ServerProcess(
            "--cluster", self._url, "--store", self._store,
            "--set", f"node.id={self._node_id}", "--admin", "127.0.0.1:0",
            "--set", "cluster.sql.asynchronous=true",
            "--set", f"advertised.listeners=PLAINTEXT://{self._balancer.address}",
            "--set", f"num.partitions={PARTITIONS}",
        ).begin()  # fmt: skip

    async def start(self) -> None:
        await asyncio.to_thread(self.owner.wait_until_ready)
        self._balancer.lead_to(self.owner.kafka_address)
        self.standby = await self._begun()

    async def replace_owner(self, how: str) -> None:
        """End the owner in one of several ways; return when the standby has taken over."""
        before, self.owner = self.owner, self._waiting
        match how:
            case "kill":
                before.kill()
            case "stop":
                assert 0 == await asyncio.to_thread(before.stop), before.log_text()
            case "pause":
                os.kill(before.pid, signal.SIGSTOP)
        await asyncio.to_thread(self.owner.wait_until_ready)
        self._balancer.lead_to(self.owner.kafka_address)
        if how == "pause":
            os.kill(before.pid, signal.SIGCONT)
            await asyncio.to_thread(before.wait_until_standby)
            self.standby = before
        else:
            self.standby = await self._begun()

    @property
    def _waiting(self) -> ServerProcess:
        assert self.standby is not None, "the standby has not started"
        return self.standby

    async def _begun(self) -> ServerProcess:
        begun = self.begin()
        return await asyncio.to_thread(begun.wait_until_standby)

    async def stop(self) -> None:
        for each in (self.standby, self.owner):
            if each is not None:
                with suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGCONT)
                await asyncio.to_thread(each.stop)


@pytest.fixture
async def balancer() -> AsyncIterator[Balancer]:
    made = Balancer()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def pair(balancer: Balancer, postgres_url: str, tmp_path: Path) -> AsyncIterator[Pair]:
    database = PostgresDatabase(postgres_url)
    store = (tmp_path / "objects").as_uri()
    await asyncio.to_thread(database.create, cluster_id="test-cluster", store=store)
    await asyncio.to_thread(database.close)
    made = Pair(postgres_url, store, balancer)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


class Producing:
    """A producer that sends numbered records for as long as it may, and what was acknowledged."""

    def __init__(self, address: str) -> None:
        self.acknowledged: dict[TopicPartition, dict[int, bytes]] = {}
        self.count = 0
        self._sent = asyncio.Event()
        self._producer = AIOKafkaProducer(
            bootstrap_servers=address,
            enable_idempotence=True,
            request_timeout_ms=120_000,
            retry_backoff_ms=100,
            linger_ms=5,
        )

    async def run(self, may_end: asyncio.Event) -> None:
        await self._producer.start()
        try:
            while not may_end.is_set():
                await asyncio.gather(*(self._send() for _ in range(PARTITIONS * 5)))
        finally:
            await self._producer.stop()

    async def _send(self) -> None:
        number, self.count = self.count, self.count + 1
        sent = await self._producer.send_and_wait(
            "orders", b"%d" % number, partition=number % PARTITIONS
        )
        offsets = self.acknowledged.setdefault(TopicPartition(sent.topic, sent.partition), {})
        assert sent.offset not in offsets, f"two records were acknowledged at {sent}"
        offsets[sent.offset] = b"%d" % number
        self._sent.set()

    @property
    def acknowledged_count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    async def wait_for(self, count: int) -> None:
        """Wait until so many records are acknowledged."""
        while self.acknowledged_count < count:
            self._sent.clear()
            await self._sent.wait()


async def consumed(address: str) -> dict[TopicPartition, dict[int, bytes]]:
    """Read every record of the topic."""
    found: dict[TopicPartition, dict[int, bytes]] = {}
    partitions = [TopicPartition("orders", number) for number in range(PARTITIONS)]
    consumer = AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign(partitions)
        await consumer.seek_to_beginning()
        ends = await consumer.end_offsets(partitions)
        while any(len(found.get(each, {})) < ends[each] for each in partitions):
            for partition, records in (await consumer.getmany(timeout_ms=1_000)).items():
                for record in records:
                    found.setdefault(partition, {})[record.offset] = record.value
    finally:
        await consumer.stop()
    return found


@pytest.mark.parametrize("seed", range(2))
async def test_nothing_acknowledged_is_lost_or_stored_twice(
    pair: Pair, balancer: Balancer, seed: int
) -> None:
    """Brokers are killed, stopped and paused; a producer with idempotence sends all the time."""
    chance = random.Random(seed)
    hows = ["kill", "stop", "pause"] * (ROUNDS // 3)
    chance.shuffle(hows)
    producing, may_end = Producing(balancer.address), asyncio.Event()
    running = asyncio.ensure_future(producing.run(may_end))
    try:
        async with asyncio.timeout(60 * ROUNDS):
            for how in hows:
                enough = producing.acknowledged_count + RECORDS_PER_ROUND
                await asyncio.wait(
                    {running, asyncio.ensure_future(producing.wait_for(enough))},
                    return_when=asyncio.FIRST_COMPLETED,
                )
                assert not running.done(), running.result()
                await pair.replace_owner(how)
            may_end.set()
            await running
    finally:
        running.cancel()
        with suppress(KafkaError, asyncio.CancelledError):
            await running

    found = await consumed(balancer.address)
    for partition, offsets in producing.acknowledged.items():
        assert offsets.items() <= found[partition].items(), f"{partition}: lost"
        assert list(range(len(found[partition]))) == sorted(found[partition]), "gaps"
    values = [value for offsets in found.values() for value in offsets.values()]
    assert len(values) == len(set(values)) == producing.count, "stored twice"


async def unanswered_s(broker: ServerProcess) -> float:
    """Return since when the owner has had no answer of the database."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{broker.admin_address}/metrics") as response,
    ):
        page = await response.text()
    found = re.search(r"^kledger_cluster_unanswered_seconds (\S+)", page, re.MULTILINE)
    assert found is not None
    return float(found[1])


async def test_owner_goes_on_after_an_outage_of_the_database(
    pair: Pair, balancer: Balancer, postgres_server: PostgresServer
) -> None:
    """Nobody takes over: the standby could not see either whether the owner can commit."""
    producer = AIOKafkaProducer(bootstrap_servers=balancer.address, request_timeout_ms=120_000)
    await producer.start()
    assert 0 == (await producer.send_and_wait("orders", b"before", partition=0)).offset
    await asyncio.to_thread(postgres_server.stop)
    try:
        sending = asyncio.ensure_future(producer.send_and_wait("orders", b"during", partition=0))
        while await unanswered_s(pair.owner) < 1.5 * FENCE_AFTER_MS / 1_000:
            assert not sending.done()
    finally:
        await asyncio.to_thread(postgres_server.start)
    assert 1 == (await asyncio.wait_for(sending, 60)).offset
    assert 2 == (await producer.send_and_wait("orders", b"after", partition=0)).offset
    await producer.stop()
    await pair.replace_owner("stop")
    found = await consumed(balancer.address)
    assert [b"before", b"during", b"after"] == list(found[TopicPartition("orders", 0)].values())


def delivered(producer: Producer, value: bytes) -> int:
    """Send a record and return its offset."""
    offsets: list[int] = []

    def acknowledged(error: object, message: Message) -> None:
        assert error is None, error
        offsets.append(message.offset() or 0)

    producer.produce("orders", value, on_delivery=acknowledged)
    assert 0 == producer.flush(120)
    return offsets[0]


def received(consumer: Consumer) -> bytes | None:
    """Wait for the next record."""
    for _ in range(120):
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            return message.value()
    raise AssertionError("no record came")


def test_client_finds_the_next_owner_by_its_bootstrap_servers(
    postgres_url: str, tmp_path: Path
) -> None:
    """librdkafka, with the addresses of both brokers, and no balancer."""
    store = (tmp_path / "objects").as_uri()
    database = PostgresDatabase(postgres_url)
    database.create(cluster_id="test-cluster", store=store)
    database.close()
    first_port = fixed_ports(2)
    addresses = [f"127.0.0.1:{first_port + index}" for index in range(2)]
    first, second = (
        ServerProcess(
            "--cluster", postgres_url, "--store", store,
            "--set", f"node.id={index}", "--set", "cluster.sql.asynchronous=true",
            kafka=address,
        )
        for index, address in enumerate(addresses)
    )  # fmt: skip
    servers = {"bootstrap.servers": ",".join(addresses)}
    try:
        first.start()
        second.begin().wait_until_standby()
        producer = Producer({**servers, "enable.idempotence": True})
        consumer = Consumer({**servers, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        assert 0 == delivered(producer, b"one")
        assert b"one" == received(consumer)
        consumer.commit(asynchronous=False)
        first.kill()
        second.wait_until_ready()
        assert 1 == delivered(producer, b"two")
        assert b"two" == received(consumer)
        consumer.close()
    finally:
        first.stop()
        second.stop()
