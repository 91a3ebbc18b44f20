"""The server inside the test's own process."""

import asyncio
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition

from kledger.healthcheck import check
from kledger.setting_values import SettingError
from kledger.testing import Server, ServerThread
from native.rpc_client import RpcClient


async def produce(address: str, values: list[bytes]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=address, acks="all") as producer:
        for value in values:
            await producer.send_and_wait("orders", value, partition=0)


async def consume(address: str, count: int) -> list[bytes]:
    async with AIOKafkaConsumer(bootstrap_servers=address) as consumer:
        place = TopicPartition("orders", 0)
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        return [(await consumer.getone()).value for _ in range(count)]


async def test_real_client_reads_what_it_wrote() -> None:
    async with Server() as server:
        await produce(server.kafka_address, [b"one", b"two"])
        assert [b"one", b"two"] == await consume(server.kafka_address, 2)


async def test_records_survive_a_restart(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        await produce(server.kafka_address, [b"one", b"two"])
    async with Server(tmp_path) as server:
        await produce(server.kafka_address, [b"three"])
        assert [b"one", b"two", b"three"] == await consume(server.kafka_address, 3)


async def test_two_servers_live_side_by_side() -> None:
    async with Server() as one, Server(settings={"num.partitions": 3}) as other:
        assert one.kafka_address != other.kafka_address
        await asyncio.gather(
            produce(one.kafka_address, [b"a"]), produce(other.kafka_address, [b"b"])
        )
        assert [b"a"] == await consume(one.kafka_address, 1)
        assert [b"b"] == await consume(other.kafka_address, 1)


async def test_native_listener_is_there_when_it_is_asked_for() -> None:
    async with Server() as without, Server(native="127.0.0.1:0") as server:
        assert "" == without.native_address
        client = RpcClient(server.native_address)
        await client.connect(timeout_ms=60_000)
        await client.close()


async def test_thread_serves_native_clients_of_other_loops() -> None:
    with ServerThread(native="127.0.0.1:0") as server:
        client = RpcClient(server.native_address)
        await client.connect(timeout_ms=60_000)
        await client.create_topic("orders", 1, {})
        assert ["orders"] == await client.topics()
        await client.close()


def test_thread_serves_a_program_without_a_loop(tmp_path: Path) -> None:
    with ServerThread(data=tmp_path) as server:
        assert check(server.kafka_address, 60) is None
        address = server.kafka_address
    assert "does not answer" in str(check(address))


def test_thread_that_cannot_start_raises(tmp_path: Path) -> None:
    from kledger.wiring import CannotStart

    with (
        ServerThread(data=tmp_path),
        pytest.raises(CannotStart) as caught,
        ServerThread(data=tmp_path),
    ):
        raise AssertionError("two servers on one folder")
    assert caught.value.is_mistake


def test_wrong_setting_is_refused_before_anything_starts() -> None:
    with pytest.raises(SettingError, match="no such setting"):
        Server(settings={"nonsense": 1})
