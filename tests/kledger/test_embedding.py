"""A native client with the whole server in its own process."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

import kledger
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.native.client.services import PARTITION_REFRESH_MS
from kledger.runtime.clock import SystemClock
from kledger.setting_values import SettingError

YEAR_2100_MS = 4_102_444_800_000


async def test_positions_and_messages_survive_a_restart(tmp_path: Path) -> None:
    async with kledger.embedded(tmp_path) as client:
        consumer = await client.subscribe("orders", "s")
        producer = await client.create_producer("orders")
        ids = await asyncio.gather(*(producer.send(b"%d" % n) for n in range(4)))
        for _ in range(2):
            await consumer.acknowledge(await consumer.receive())
    async with kledger.embedded(str(tmp_path)) as client:
        consumer = await client.subscribe("orders", "s")
        assert ids[2:] == [(await consumer.receive(timeout_ms=60_000)).id for _ in range(2)]


async def test_kafka_clients_are_served_when_they_are_wanted() -> None:
    async with kledger.embedded(None, kafka="127.0.0.1:0") as client:
        consumer = await client.subscribe("orders", "s")
        async with AIOKafkaProducer(bootstrap_servers=client.kafka_address) as producer:
            done = await producer.send_and_wait("orders", b"v", headers=[("a", b"\xff")])
        message = await consumer.receive(timeout_ms=60_000)
        assert (b"v", done.offset, [("a", b"\xff")]) == (
            message.value, message.offset, message.headers
        )  # fmt: skip
    async with kledger.embedded(None) as client:
        assert not client.kafka_address


async def test_two_servers_live_side_by_side() -> None:
    async with kledger.embedded(None) as one, kledger.embedded(None) as other:
        await one.create_topic("a")
        assert ([["a"], []]) == [await one.topics(), await other.topics()]


async def test_folder_in_use_is_said_on_entering(tmp_path: Path) -> None:
    from kledger.wiring import CannotStart

    async with kledger.embedded(tmp_path):
        with pytest.raises(CannotStart):
            await kledger.embedded(tmp_path).__aenter__()


async def test_given_engine_and_clock_are_the_servers() -> None:
    engine, clock = FaultyEngine(None), ManualClock(YEAR_2100_MS)
    async with kledger.embedded(None, engine=engine, clock=clock) as client:
        producer = await client.create_producer("orders")
        await producer.send(b"one")
        consumer = await client.subscribe("orders", "s", initial_position="earliest")
        assert YEAR_2100_MS == (await consumer.receive()).publish_timestamp
        hold = engine.hold_next("sync")
        sending = asyncio.ensure_future(producer.send(b"two"))
        await hold.reached()
        assert not sending.done()
        hold.release()
        await sending
    async with kledger.embedded(None, engine=engine) as client:
        assert ["orders"] == await client.topics()
    engine.close()


def test_bad_settings_are_refused_at_once() -> None:
    with pytest.raises(SettingError):
        kledger.embedded(None, kafka="nowhere")
    with pytest.raises(SettingError):
        kledger.embedded(None, settings={"nonsense": 1})


async def test_topics_are_made_only_where_that_is_wanted() -> None:
    settings = {"auto.create.topics.enable": False, "num.partitions": 3}
    async with kledger.embedded(None, settings=settings) as client:
        for call in (client.create_producer("orders"), client.subscribe("orders", "s")):
            with pytest.raises(kledger.TopicNotFound):
                await call
        assert [] == await client.topics()
    async with kledger.embedded(None, settings={"num.partitions": 3}) as client:
        await client.create_producer("orders")
        assert 3 == len((await client.topic_stats("orders")).partitions)


class QuickClock(SystemClock):
    """Looks for new partitions at once."""

    __slots__ = ()

    async def sleep(self, ms: int) -> None:
        await super().sleep(10 if ms == PARTITION_REFRESH_MS else ms)


async def test_partitions_that_kafka_adds_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest message of a new partition is there before anybody has looked."""
    monkeypatch.setattr("kledger.native.client.client.SystemClock", QuickClock)
    async with kledger.embedded(None, kafka="127.0.0.1:0") as client:
        consumer = await client.subscribe("orders", "s")
        producer = await client.create_producer("orders")
        admin = AIOKafkaAdminClient(bootstrap_servers=client.kafka_address)
        await admin.start()
        await admin.create_partitions({"orders": NewPartitions(3)})
        await admin.close()
        async with AIOKafkaProducer(bootstrap_servers=client.kafka_address) as kafka:
            await kafka.send_and_wait("orders", b"v", partition=2)
        message = await consumer.receive(timeout_ms=60_000)
        assert (b"v", 2) == (message.value, message.partition)
        while (await producer.send(b"w")).partition != 2:
            pass


async def test_crash_of_the_server_fails_clients_and_is_raised_on_leaving() -> None:
    client = await kledger.embedded(None).__aenter__()
    consumer = await client.subscribe("orders", "s")
    receiving = asyncio.ensure_future(consumer.receive())
    await asyncio.sleep(0)
    client._embedded._server._on_crash(ZeroDivisionError())
    with pytest.raises(kledger.Unavailable, match="ZeroDivisionError"):
        await receiving
    with pytest.raises(ZeroDivisionError):
        await client.__aexit__(None, None, None)


UNGUARDED = """
import asyncio, psutil
print("imported")
import kledger

async def run():
    async with kledger.embedded(None) as client:
        producer = await client.create_producer("t")
        consumer = await client.subscribe("t", "s", consumer_type="key_shared")
        await asyncio.gather(*(producer.send(bytes(100), key=b"k") for _ in range(900)))
        for _ in range(900):
            await consumer.acknowledge(await consumer.receive(timeout_ms=60_000))
        print(len(psutil.Process().children()))

asyncio.run(run())
print(len(psutil.Process().children()))
"""


def test_program_without_a_main_guard_runs_once_and_leaves_no_process(tmp_path: Path) -> None:
    """Keys of large batches are scanned in a process, which must not run the program again."""
    program = tmp_path / "program.py"
    program.write_text(UNGUARDED)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ("", "imported\n1\n0\n") == (done.stderr, done.stdout)
