"""DescribeLogDirs; row 34 of docs/SCENARIOS.md, and what Apache Kafka 4.3 answers."""

from pathlib import Path

import pytest

from kledger.gateway.handlers import k35_describe_log_dirs
from kledger.gateway.peer import Peer
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.messages.k35_describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from kledger.ledger import LedgerStore
from kledger.ledger.engine.errors import StorageError
from kledger.ledger.testing import FaultyEngine
from tests.gateway.running import RunningGateway, batch, produce, running_gateway

STORAGE = 56


class Unreadable(FaultyEngine):
    """Does not find rows once it is broken."""

    is_broken = False

    def get(self, key: bytes) -> bytes | None:
        if self.is_broken:
            raise StorageError("input/output error")
        return super().get(key)


def asked(topic: str, *partitions: int) -> DescribableLogDirTopic:
    return DescribableLogDirTopic(topic=topic, partitions=list(partitions))


async def describe(
    gateway: RunningGateway, *topics: DescribableLogDirTopic, version: int = 5, every: bool = False
) -> DescribeLogDirsResult:
    async with gateway.client() as client:
        request = DescribeLogDirsRequest(topics=None if every else list(topics))
        response: DescribeLogDirsResponse = await client.ask(request, version)
        assert 0 == response.error_code
        (result,) = response.results
        return result


def sizes(result: DescribeLogDirsResult) -> dict[str, dict[int, int]]:
    assert 0 == result.error_code
    return {
        topic.name: {each.partition_index: each.partition_size for each in topic.partitions}
        for topic in result.topics
    }


@pytest.mark.parametrize("version", range(1, 6))
async def test_row_34_all_partitions_of_one_folder_with_their_sizes(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic("a", partitions=2)
        await gateway.create_topic("b")
        records = batch(b"x" * 100)
        for _ in range(2):
            await client.ask(produce({1: records}, topic="a"), 9)
        result = await describe(gateway, every=True, version=version)
        assert ("memory", False) == (result.log_dir, result.is_cordoned)
        assert {"a": {0: 0, 1: 2 * len(records)}, "b": {0: 0}} == sizes(result)
        for topic in result.topics:
            assert {(0, False)} == {(p.offset_lag, p.is_future_key) for p in topic.partitions}


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        ([], {}),
        ([asked("a", 1)], {"a": {1: 0}}),
        ([asked("a", 1, 0, 1), asked("a", 0)], {"a": {0: 0, 1: 0}}),
        ([asked("a", 0, 9, -1), asked("nowhere", 0)], {"a": {0: 0}}),
        ([asked("a", 9), asked("b")], {}),
    ],
)
async def test_row_34_those_asked_for_that_exist(
    topics: list[DescribableLogDirTopic], expected: dict[str, dict[int, int]]
) -> None:
    async with running_gateway() as gateway:
        await gateway.create_topic("a", partitions=2)
        await gateway.create_topic("b")
        assert expected == sizes(await describe(gateway, *topics))


async def test_closed_partitions_are_not_opened_for_it() -> None:
    async with running_gateway() as gateway:
        topic = await gateway.services.registry.create("a", partitions=3)
        assert {"a": {0: 0, 1: 0, 2: 0}} == sizes(await describe(gateway, every=True))
        assert [] == topic.open_partitions()


async def test_partitions_that_were_closed_stay_closed_and_open_ones_are_not_used_by_it() -> None:
    """It opened all partitions, and frequent requests kept them open."""
    async with running_gateway() as gateway, gateway.client() as client:
        topic = await gateway.services.registry.create("a", partitions=3)
        records = batch(b"x" * 100)
        await client.ask(produce({0: records, 1: records}, topic="a"), 9)
        await topic.close_partition(0)
        for _ in range(2):
            topic.idle_partitions(1)
            found = sizes(await describe(gateway, every=True))
            assert {"a": {0: len(records), 1: len(records), 2: 0}} == found
        assert [False, True, False] == [topic.is_open(index) for index in range(3)]
        assert [1] == topic.idle_partitions(1)


async def test_sizes_are_reported_after_a_restart() -> None:
    engine = FaultyEngine(None)
    records = batch(b"x" * 100)
    async with running_gateway(engine=engine) as gateway, gateway.client() as client:
        await gateway.create_topic("a")
        await client.ask(produce({0: records}, topic="a"), 9)
    async with running_gateway(engine=engine) as gateway:
        assert {"a": {0: len(records)}} == sizes(await describe(gateway, every=True))


async def test_unreadable_storage_is_an_error_of_the_folder() -> None:
    engine = Unreadable(None)
    async with running_gateway(engine=engine) as gateway:
        await gateway.create_topic("a")
        await gateway.services.registry.all()[0].close_partition(0)
        engine.is_broken = True
        result = await describe(gateway, every=True)
        engine.is_broken = False
        assert (STORAGE, []) == (result.error_code, result.topics)


async def test_row_34_a_folder_on_disk_has_a_path_and_space(tmp_path: Path) -> None:
    async with LedgerStore.open(tmp_path) as store, running_gateway() as gateway:
        gateway.services.store = store
        context = RequestContext(
            services=gateway.services, version=5, client_id=None, connection_id=1, peer=Peer("")
        )
        response = await k35_describe_log_dirs.handle(context, DescribeLogDirsRequest(topics=None))
        (result,) = response.results
        assert str(tmp_path) == result.log_dir
        assert 0 < result.usable_bytes <= result.total_bytes
