"""The server inside the test's own process."""

import asyncio
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError
from aiokafka.structs import TopicPartition

from kledger.healthcheck import check
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.native.rpc.client import RpcClient
from kledger.setting_values import SettingError
from kledger.testing import FaultyServer, Server, ServerThread


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


async def test_native_listener_is_open_when_its_address_is_set() -> None:
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


YEAR_2100_MS = 4_102_444_800_000


async def test_given_engine_stores_and_outlives_the_server() -> None:
    engine = FaultyEngine(None)
    async with Server(engine=engine) as server:
        await produce(server.kafka_address, [b"one"])
    assert engine.calls["sync"] > 0
    async with Server(engine=engine) as server:
        assert [b"one"] == await consume(server.kafka_address, 1)
    engine.close()


async def test_given_clock_is_the_servers_and_may_be_moved_from_another_thread() -> None:
    clock = ManualClock(YEAR_2100_MS)
    settings: dict[str, object] = {"log.message.timestamp.type": "LogAppendTime"}
    with ServerThread(clock=clock, settings=settings) as server:
        clock.advance(5)
        async with AIOKafkaProducer(bootstrap_servers=server.kafka_address) as producer:
            stored = await producer.send_and_wait("orders", b"one")
        assert YEAR_2100_MS + 5 == stored.timestamp


async def test_request_that_fails_is_tried_again_by_its_client() -> None:
    with FaultyServer() as server:
        async with AIOKafkaProducer(bootstrap_servers=server.kafka_address) as producer:
            server.fail_next("Produce", error="NOT_LEADER_OR_FOLLOWER")
            server.fail_next("Produce")
            assert 0 == (await producer.send_and_wait("orders", b"one")).offset
            server.fail_next("Produce", error="MESSAGE_TOO_LARGE")
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send_and_wait("orders", b"two")
        assert [b"one"] == await consume(server.kafka_address, 1)


@pytest.mark.parametrize("what", ["Produce", "sync"])
async def test_held_request_or_operation_continues_when_it_is_released(what: str) -> None:
    with FaultyServer() as server:
        async with AIOKafkaProducer(bootstrap_servers=server.kafka_address) as producer:
            await producer.send_and_wait("orders", b"one")
            hold = server.hold_next(what)
            sending = asyncio.ensure_future(producer.send_and_wait("orders", b"two"))
            await hold.reached()
            assert not sending.done()
            hold.release()
            assert 1 == (await sending).offset


async def test_stopped_server_releases_held_requests() -> None:
    with FaultyServer() as server:
        producer = AIOKafkaProducer(bootstrap_servers=server.kafka_address)
        await producer.start()
        await producer.send_and_wait("orders", b"one")
        hold = server.hold_next("sync")
        sending = asyncio.ensure_future(producer.send_and_wait("orders", b"two"))
        await hold.reached()
    assert 1 == (await sending).offset
    await producer.stop()


async def test_failed_sync_ends_the_server_and_a_restart_has_what_was_acknowledged() -> None:
    with FaultyServer() as server:
        address = server.kafka_address
        async with AIOKafkaProducer(bootstrap_servers=address) as producer:
            await producer.send_and_wait("orders", b"one", partition=0)
            hold = server.hold_next("sync")
            sending = asyncio.ensure_future(producer.send_and_wait("orders", b"two", partition=0))
            await hold.reached()
            hold.fail()
            await asyncio.get_running_loop().run_in_executor(None, server.restart)
            assert address == server.kafka_address
            assert 1 == (await sending).offset, "what was not synced is gone, and sent again"
        assert [b"one", b"two"] == await consume(address, 2)


@pytest.mark.parametrize("what", ["Produce", "sync"])
async def test_restart_cuts_off_what_is_held(what: str) -> None:
    with FaultyServer() as server:
        address = server.kafka_address
        async with AIOKafkaProducer(bootstrap_servers=address) as producer:
            await producer.send_and_wait("orders", b"one", partition=0)
            hold = server.hold_next(what)
            sending = asyncio.ensure_future(producer.send_and_wait("orders", b"two", partition=0))
            await hold.reached()
            await asyncio.get_running_loop().run_in_executor(None, server.restart)
            assert 1 == (await sending).offset
        assert [b"one", b"two"] == await consume(address, 2)


async def test_restart_loses_what_was_not_synced() -> None:
    with FaultyServer(settings={"storage.durability": "os"}) as server:
        await produce(server.kafka_address, [b"one"])
        server.restart()
        async with AIOKafkaProducer(bootstrap_servers=server.kafka_address) as producer:
            assert 0 == (await producer.send_and_wait("orders", b"again", partition=0)).offset


def test_faulty_server_that_cannot_start_releases_its_folder(tmp_path: Path) -> None:
    from kledger.wiring import CannotStart

    with ServerThread() as other:
        with pytest.raises(CannotStart), FaultyServer(tmp_path, kafka=other.kafka_address):
            raise AssertionError("two servers on one port")
        with FaultyServer(tmp_path) as server:
            assert check(server.kafka_address, 60) is None


@pytest.mark.parametrize(("what", "error"), [("sync", "NOT_CONTROLLER"), ("Produce", OSError())])
def test_error_of_the_other_kind_is_refused(what: str, error: str | OSError) -> None:
    with FaultyServer() as server, pytest.raises(ValueError, match=f"{what}: expected"):
        server.fail_next(what, error)


def test_fault_of_an_unknown_kind_is_refused_with_a_list() -> None:
    with (
        FaultyServer() as server,
        pytest.raises(
            ValueError, match=r"did you mean Produce\?.* of the storage commit, read, sync"
        ),
    ):
        server.fail_next("Prodcue")
