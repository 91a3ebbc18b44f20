"""The server as a whole: started in order, taken down in order, nothing left behind."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition

from kledger.batches.builder import NewRecord, build_batch
from kledger.healthcheck import check
from kledger.ledger import Corrupt
from kledger.ledger.testing import FaultyEngine
from kledger.native.errors import KledgerError, TopicNotFound, Unavailable
from kledger.native.rpc.client import RpcClient
from kledger.runtime.manual_clock import ManualClock
from kledger.settings import Settings, load
from kledger.wiring import IDLE_ROUNDS, MANY_CLOSED, BrokerServer, CannotStart
from tests.contained import Contained

YEAR_2100_MS = 4_102_444_800_000


def settings(data: Path | None = None, /, **flags: object) -> Settings:
    where = {"server.memory": True} if data is None else {"server.data": str(data)}
    return load(flags={"server.kafka": "127.0.0.1:0", **where, **flags})


def no_crash(error: BaseException) -> None:
    raise AssertionError(f"the server crashed: {error!r}")


async def answers(server: BrokerServer) -> bool:
    """Ask from a thread, as the server needs this loop to answer."""
    return await asyncio.to_thread(check, server.kafka_address, 60) is None


async def test_started_server_answers_until_it_is_stopped() -> None:
    server = BrokerServer(settings(), on_crash=no_crash)
    await server.start()
    assert f"kledger ready kafka={server.kafka_address} native=- admin=-" == server.ready_line()
    assert await answers(server)
    await server.stop()
    await server.stop()
    assert not await answers(server)


async def test_native_listener_serves_the_broker_and_stops_with_the_server() -> None:
    server = BrokerServer(settings(**{"server.native": "127.0.0.1:0"}), on_crash=no_crash)
    await server.start()
    kafka, native = server.kafka_address, server.native_address
    assert f"kledger ready kafka={kafka} native={native} admin=-" == server.ready_line()
    client = RpcClient(native)
    await client.connect(timeout_ms=60_000)
    await client.create_topic("orders", 2, {})
    assert ["orders"] == await client.topics() == await server.broker.topics()
    link = await client.open_producer("orders", 1, name="", on_ended=lambda _: None)
    assert server._services is not None
    assert 1 == server._services.metrics.snapshot()["native_streams"]
    await link.close()
    await server.stop()
    with pytest.raises(Unavailable):
        await client.topics()
    await client.close()


async def test_address_that_two_listeners_want_is_a_mistake() -> None:
    with socket.socket() as place:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(("127.0.0.1", 0))  # only listeners of this test can share the port
        address = f"127.0.0.1:{place.getsockname()[1]}"
        both = settings(**{"server.kafka": address, "server.native": address})
        with pytest.raises(CannotStart, match=r"native .*: Address already in use") as caught:
            await BrokerServer(both, on_crash=no_crash).start()
    assert caught.value.is_mistake


def test_grpc_is_loaded_only_when_native_clients_are_served() -> None:
    """It takes longer to load than the rest of a start; no tier is set, so neither is obstore."""
    program = """
import asyncio, sys
from kledger.settings import load
from kledger.wiring import BrokerServer

async def start(**more):
    flags = {"server.memory": True, "server.kafka": "127.0.0.1:0", **more}
    server = BrokerServer(load(flags=flags), on_crash=print)
    await server.start()
    await server.stop()
    return "grpc" in sys.modules, "obstore" in sys.modules

async def main():
    print(await start(), await start(**{"server.native": "127.0.0.1:0"}))

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ("(False, False) (True, False)\n", "") == (done.stdout, done.stderr)


async def test_store_and_server_share_their_metrics() -> None:
    server = BrokerServer(settings(), on_crash=no_crash)
    await server.start()
    assert server._services is not None
    assert server._store is not None
    assert server._services.metrics is server._store.metrics
    await server.stop()


async def test_feature_what_is_scraped_is_what_clients_did() -> None:
    server = BrokerServer(settings(**{"server.admin": "127.0.0.1:0"}), on_crash=no_crash)
    await server.start()
    assert server.ready_line().endswith(f" admin={server.admin_address}")
    for _ in range(3):
        assert await answers(server)
    async with aiohttp.ClientSession(f"http://{server.admin_address}") as client:
        async with client.get("/health") as response:
            assert 200 == response.status
        async with client.get("/metrics") as response:
            page = await response.text()
    for line in (
        'kledger_requests_total{api="api_versions"} 3.0',
        f"kledger_received_bytes_total {3 * 14:.1f}",
        "kledger_connections_accepted_total 3.0",
        "kledger_topics 0.0",
    ):
        assert f"\n{line}\n" in page
    await server.stop()


async def test_server_without_listener_for_kafka_runs() -> None:
    server = BrokerServer(settings(**{"server.kafka": None}), on_crash=no_crash)
    await server.start()
    assert ("", "kledger ready kafka=- native=- admin=-") == (
        server.kafka_address,
        server.ready_line(),
    )
    assert server._gateway is None
    await server.stop()


async def test_native_clients_and_kafka_clients_see_the_same_topics() -> None:
    server = BrokerServer(settings(**{"num.partitions": 3}), on_crash=no_crash)
    await server.start()
    broker = server.broker
    assert broker is server.broker
    info = await broker.lookup("persistent://public/default/orders", create=True)
    assert ("orders", 3) == (info.name, info.partition_count)
    async with AIOKafkaProducer(bootstrap_servers=server.kafka_address) as producer:
        await producer.send_and_wait("orders", b"v", partition=2)
    assert 0 <= (await broker.last_record("orders", 2)).record_position.position.entry_id
    await server.stop()


async def test_native_clients_make_no_topics_where_kafka_clients_do_not() -> None:
    server = BrokerServer(settings(**{"auto.create.topics.enable": False}), on_crash=no_crash)
    await server.start()
    with pytest.raises(TopicNotFound):
        await server.broker.lookup("orders", create=True)
    await server.stop()


async def test_stopping_ends_native_links_first(tmp_path: Path) -> None:
    server = BrokerServer(settings(tmp_path, **{"server.kafka": None}), on_crash=no_crash)
    await server.start()
    broker = server.broker
    await broker.create_topic("orders", 1, {})
    ends: list[KledgerError | None] = []
    producer = await broker.open_producer("orders", 0, name="", on_ended=ends.append)
    await producer.send(build_batch([NewRecord(b"v")]))
    await server.stop()
    assert [Unavailable] == [type(each) for each in ends]


def test_room_of_native_clients_is_not_loaded_before_it_is_wanted() -> None:
    """Every start of a server that is there for Kafka alone would pay for it; for numpy too, which
    only the process that compacts needs."""
    program = (
        "import sys, kledger.cli.serve, kledger.wiring\n"
        "packages = ('kledger.native', 'kledger.workers', 'kledger.ledger.cluster', 'asyncpg',\n"
        "            'numpy')\n"
        "print([each for each in sys.modules if each.startswith(packages)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = "['kledger.native', 'kledger.native.config', 'kledger.native.open_strategy']\n"
    assert loaded == done.stdout, "its settings, a function for compactions, and nothing else"


async def test_settings_are_not_changed_by_the_server_that_uses_them() -> None:
    """The listener's port goes into the configuration of one server, not of the next one."""
    shared = settings()
    server = BrokerServer(shared, on_crash=no_crash)
    await server.start()
    assert (0, "") == (shared.kafka.advertised_port, shared.kafka.cluster_id)
    await server.stop()


async def test_failed_start_leaves_the_folder_free(tmp_path: Path) -> None:
    first = BrokerServer(settings(tmp_path), on_crash=no_crash)
    await first.start()
    with pytest.raises(CannotStart) as caught:
        await BrokerServer(settings(tmp_path), on_crash=no_crash).start()
    assert caught.value.is_mistake
    assert await answers(first)
    await first.stop()
    again = BrokerServer(settings(tmp_path), on_crash=no_crash)
    await again.start()
    await again.stop()


async def test_taken_port_is_noticed_before_the_folder_is_made(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = {"server.kafka": f"127.0.0.1:{listener.getsockname()[1]}"}
        with pytest.raises(CannotStart, match="Address already in use"):
            await BrokerServer(settings(data, **taken), on_crash=no_crash).start()
    assert not data.exists()


async def test_damaged_store_is_no_mistake_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def damaged(self: BrokerServer) -> None:
        raise Corrupt("entries.7.log: position 12: checksum 1, expected 2")

    monkeypatch.setattr(BrokerServer, "_open_store", damaged)
    with pytest.raises(CannotStart, match=r"position 12.*kledger doctor --data") as caught:
        await BrokerServer(settings(tmp_path), on_crash=no_crash).start()
    assert not caught.value.is_mistake


async def test_doctor_is_named_only_for_a_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def damaged(self: BrokerServer) -> None:
        raise Corrupt("row 1: checksum 1, expected 2")

    monkeypatch.setattr(BrokerServer, "_open_store", damaged)
    with pytest.raises(CannotStart) as caught:
        await BrokerServer(settings(), on_crash=no_crash).start()
    assert "row 1: checksum 1, expected 2" == str(caught.value)


async def test_crash_in_the_background_is_reported(contained: Contained) -> None:
    class StoppedClock(ManualClock):
        """A clock that cannot be waited for."""

        async def sleep(self, ms: int) -> None:
            raise OSError("no timer left")

    crashed: list[BaseException] = []
    server = BrokerServer(settings(), on_crash=crashed.append, clock=StoppedClock())
    await server.start()
    assert await answers(server)
    await server.stop()
    assert "no timer left" == str(crashed[0])
    assert {"no timer left"} == {str(error) for error in contained.errors}


async def begins_at(
    consumer: AIOKafkaConsumer, place: TopicPartition, offset: int, clock: ManualClock
) -> None:
    """Let retention look again and again until the partition begins there."""
    async with asyncio.timeout(60):
        while {place: offset} != await consumer.beginning_offsets([place]):
            clock.advance(10_000)


async def test_records_go_by_age_without_anybody_asking() -> None:
    clock = ManualClock(YEAR_2100_MS)
    flags = {"log.retention.ms": "1000", "log.retention.check.interval.ms": 5_000}
    server = BrokerServer(settings(**flags), on_crash=no_crash, clock=clock)
    await server.start()
    place = TopicPartition("orders", 0)
    async with AIOKafkaProducer(bootstrap_servers=server.kafka_address, acks="all") as producer:
        for _ in range(3):
            await producer.send_and_wait("orders", b"old", partition=0)
    async with AIOKafkaConsumer(bootstrap_servers=server.kafka_address) as consumer:
        assert {place: 0} == await consumer.beginning_offsets([place])
        await begins_at(consumer, place, 3, clock)
    await server.stop()


async def test_records_wait_for_groups_where_that_is_wanted() -> None:
    clock = ManualClock(YEAR_2100_MS)
    flags = {
        "log.retention.ms": "1000",
        "log.retention.check.interval.ms": 5_000,
        "kledger.retention.waits.for": "groups",
    }
    server = BrokerServer(settings(**flags), on_crash=no_crash, clock=clock)
    await server.start()
    place = TopicPartition("orders", 0)
    async with AIOKafkaProducer(bootstrap_servers=server.kafka_address, acks="all") as producer:
        for _ in range(3):
            await producer.send_and_wait("orders", b"old", partition=0)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=server.kafka_address, group_id="slow", enable_auto_commit=False
    )
    async with consumer:
        consumer.assign([place])
        await consumer.commit({place: 1})
        for _ in range(20):
            clock.advance(10_000)
            assert {place: 0} == await consumer.beginning_offsets([place])
        await consumer.commit({place: 3})
        await begins_at(consumer, place, 3, clock)
    await server.stop()


@pytest.mark.parametrize(
    ("listen", "advertised"),
    [({"server.kafka": "localhost:0"}, "localhost"),
     ({"server.kafka": "0.0.0.0:0"}, socket.gethostname()),
     ({"advertised.listeners": "PLAINTEXT://broker.example:77"}, "broker.example")],
)  # fmt: skip
async def test_clients_get_an_address_that_they_can_reach(
    listen: dict[str, object], advertised: str
) -> None:
    server = BrokerServer(settings(**listen), on_crash=no_crash)
    await server.start()
    _, _, port = server.kafka_address.rpartition(":")
    reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
    writer.write(b"\0\0\0\x0e\0\x03\0\x01\0\0\0\x07\xff\xff\0\0\0\0")  # Metadata v1, no topics
    answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    assert advertised.encode() in answer
    writer.close()
    await server.stop()


class CheckpointedEngine(FaultyEngine):
    """Counts checkpoints; the server asks for one before it gives memory back."""

    checkpoint_count = 0

    def checkpoint(self) -> None:
        super().checkpoint()
        self.checkpoint_count += 1


async def test_memory_goes_back_when_many_partitions_were_closed() -> None:
    clock, engine = ManualClock(), CheckpointedEngine()
    server = BrokerServer(settings(), on_crash=no_crash, clock=clock, engine=engine)
    await server.start()
    assert server._services is not None
    registry = server._services.registry
    topic = await registry.create("orders", partitions=MANY_CLOSED)
    await asyncio.gather(*(topic.open_partition(index) for index in range(MANY_CLOSED)))
    assert 0 == engine.checkpoint_count
    round_ms = settings().server.log_partitions_max_idle_ms // IDLE_ROUNDS
    async with asyncio.timeout(60):
        while not engine.checkpoint_count:
            clock.advance(round_ms)
            await asyncio.sleep(0)
    assert 0 == registry.open_partition_count
    await server.stop()
