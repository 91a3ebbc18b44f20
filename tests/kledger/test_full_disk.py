"""A disk without space below a real server: writes are refused, reads served, nothing is lost.

The system refuses every write of the server's process, as it does when a disk is full, by the limit
of its file sizes; the slow test has a disk of its own that is really full.
"""

import resource
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from kledger.batches.reader import iterate_batches, iterate_records
from kledger.cli import run
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kledger.gateway.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from kledger.gateway.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from kledger.gateway.wire.messages.k20_delete_topics import DeleteTopicsRequest
from kledger.gateway.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kledger.gateway.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kledger.process import ServerProcess
from tests.gateway.running import batch, fetch, produce
from tests.gateway.wire_client import WireClient

REFUSED = ErrorCode.KAFKA_STORAGE_ERROR
DURABILITIES = ["fsync", "os"]


def set_full(server: ServerProcess, *, is_full: bool) -> None:
    """Let the system refuse every byte that the server writes to a file, or none."""
    _, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (0 if is_full else hard, hard))


class Asking:
    """The requests of this test, each as the one error code or value that matters."""

    def __init__(self, client: WireClient) -> None:
        self._client = client

    async def produce(self, value: bytes) -> int:
        answer = await self._client.ask(produce({0: batch(value)}), 9)
        code: int = answer.responses[0].partition_responses[0].error_code
        return code

    async def values(self) -> list[bytes | None]:
        answer = await self._client.ask(fetch({0: 0}), 12)
        partition = answer.responses[0].partitions[0]
        assert ErrorCode.NONE == partition.error_code
        found = iterate_batches(bytes(partition.records or b""))
        return [record.value for _, each in found for record in iterate_records(each)]

    async def create_topic(self, name: str) -> int:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        answer = await self._client.ask(CreateTopicsRequest(topics=[topic]), 7)
        code: int = answer.topics[0].error_code
        return code

    async def delete_topic(self, name: str) -> int:
        answer = await self._client.ask(DeleteTopicsRequest(topic_names=[name]), 5)
        code: int = answer.responses[0].error_code
        return code

    async def grow_topic(self, count: int) -> int:
        topic = CreatePartitionsTopic(name="t", count=count, assignments=None)
        answer = await self._client.ask(CreatePartitionsRequest(topics=[topic]), 3)
        code: int = answer.results[0].error_code
        return code

    async def alter(self, value: str) -> int:
        resource_ = AlterConfigsResource(
            resource_type=2,
            resource_name="t",
            configs=[AlterableConfig(name="retention.ms", value=value)],
        )
        answer = await self._client.ask(IncrementalAlterConfigsRequest(resources=[resource_]), 1)
        code: int = answer.responses[0].error_code
        return code

    async def commit(self, offset: int) -> int:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
        answer = await self._client.ask(OffsetCommitRequest(group_id="g", topics=[topic]), 8)
        code: int = answer.topics[0].partitions[0].error_code
        return code

    async def committed(self) -> int:
        topic = OffsetFetchRequestTopic(name="t", partition_indexes=[0])
        answer = await self._client.ask(OffsetFetchRequest(group_id="g", topics=[topic]), 7)
        offset: int = answer.topics[0].partitions[0].committed_offset
        return offset


def connected(server: ServerProcess) -> WireClient:
    host, _, port = server.kafka_address.rpartition(":")
    return WireClient(host, int(port))


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_full_disk_refuses_all_writes_and_takes_them_when_space_is_back(
    tmp_path: Path, durability: str
) -> None:
    data = ("--data", str(tmp_path), "--durability", durability)
    with ServerProcess(*data) as server:
        async with connected(server) as client:
            ask = Asking(client)
            assert ErrorCode.NONE == await ask.create_topic("t")
            assert ErrorCode.NONE == await ask.produce(b"before")
            assert ErrorCode.NONE == await ask.commit(1)
            set_full(server, is_full=True)
            for _ in range(3):
                assert REFUSED == await ask.produce(b"refused")
                assert REFUSED == await ask.create_topic("new")
                assert REFUSED == await ask.delete_topic("t")
                assert REFUSED == await ask.grow_topic(7)
                assert REFUSED == await ask.alter("5000")
                assert ErrorCode.COORDINATOR_NOT_AVAILABLE == await ask.commit(9)
                assert [b"before"] == await ask.values()
                assert 1 == await ask.committed()
            set_full(server, is_full=False)
            assert ErrorCode.NONE == await ask.produce(b"after")
            assert ErrorCode.NONE == await ask.create_topic("new")
            assert ErrorCode.NONE == await ask.grow_topic(2)
            assert ErrorCode.NONE == await ask.alter("600000")
            assert ErrorCode.NONE == await ask.commit(2)
            assert [b"before", b"after"] == await ask.values()
        server.kill()
    assert 0 == run(["doctor", "--data", str(tmp_path)])
    with ServerProcess(*data) as server:
        async with connected(server) as client:
            ask = Asking(client)
            assert [b"before", b"after"] == await ask.values()
            assert 2 == await ask.committed()
            assert ErrorCode.TOPIC_ALREADY_EXISTS == await ask.create_topic("new")
            assert ErrorCode.INVALID_PARTITIONS == await ask.grow_topic(2)


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk of 32 MiB, where mounting is allowed."""
    with tempfile.TemporaryDirectory(prefix="kledger-disk-") as folder:
        mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", folder]
        if subprocess.run(mount, check=False, capture_output=True).returncode:
            pytest.skip("mounting needs privileges; the limit of file sizes is tested everywhere")
        yield Path(folder)
        subprocess.run(["umount", "--lazy", folder], check=True)


class Load:
    """An idempotent producer that retries forever, and the answers it got."""

    def __init__(self, address: str) -> None:
        self.acknowledged: list[bytes] = []
        self.errors: list[KafkaError] = []
        self.sent = 0
        self._producer = Producer({
            "bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 2,
            "message.timeout.ms": 600_000, "retry.backoff.ms": 20, "log_level": 0,
        })  # fmt: skip

    def send(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce(
                "t", value_of(self.sent), partition=0, on_delivery=self._on_delivery
            )
            self.sent += 1
            self._producer.poll(0)

    def flush(self, seconds: float) -> int:
        return self._producer.flush(seconds)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acknowledged.append(message.value() or b"")


def value_of(number: int) -> bytes:
    return b"%06d" % number * 1000


def read_all(address: str, count: int) -> list[bytes]:
    """Read partition 0 from its beginning."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "log_level": 0})
    consumer.assign([TopicPartition("t", 0, 0)])
    found: list[bytes] = []
    quiet_rounds = 0
    while len(found) < count:
        received = consumer.consume(500, timeout=0.2)
        quiet_rounds = 0 if received else quiet_rounds + 1
        assert quiet_rounds < 300, f"nothing behind {len(found)} of {count}"
        found += [message.value() or b"" for message in received if message.error() is None]
    consumer.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("durability", DURABILITIES)
def test_full_disk_under_a_real_producer(small_disk: Path, durability: str) -> None:
    """The producer tries again until there is space; every record is there once, in order."""
    filler = small_disk / "filler"
    filler.write_bytes(bytes(8 << 20))
    # A cache of 1 MiB: what is read while the disk is full comes from the disk.
    data = ("--data", str(small_disk / "data"), "--durability", durability,
            "--set", "storage.cache_bytes=1048576")  # fmt: skip
    with ServerProcess(*data) as server:
        load = Load(server.kafka_address)
        load.send(6000)
        while len(load.acknowledged) <= 500:
            load.flush(1)
        assert 0 < load.flush(3), "36 MB do not fit"
        count = len(load.acknowledged)
        assert 500 < count < 6000
        values = [value_of(number) for number in range(load.sent)]
        assert values[:count] == read_all(server.kafka_address, count)
        subprocess.run(["mount", "-o", "remount,size=128m", str(small_disk)], check=True)
        assert 0 == load.flush(300)
        assert [] == load.errors
        assert values == load.acknowledged
        server.kill()
    with suppress(FileNotFoundError):
        filler.unlink()
    with ServerProcess(*data) as server:
        assert values == read_all(server.kafka_address, len(values))
    assert 0 == run(["doctor", "--data", str(small_disk / "data")])
