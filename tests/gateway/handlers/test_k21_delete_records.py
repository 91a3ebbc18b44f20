"""DeleteRecords; row 28 of docs/SCENARIOS.md, and what Apache Kafka 4.3 answers."""

import pytest

from kledger.gateway.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from kledger.ledger.testing import FaultyEngine
from tests.gateway.running import RunningGateway, batch, fetch, produce, running_gateway

OUT_OF_RANGE, UNKNOWN, POLICY, STORAGE = 1, 3, 44, 56


def below(topic: str, *offsets: tuple[int, int]) -> DeleteRecordsTopic:
    return DeleteRecordsTopic(
        name=topic,
        partitions=[
            DeleteRecordsPartition(partition_index=index, offset=offset)
            for index, offset in offsets
        ],
    )


async def delete(
    gateway: RunningGateway, *topics: DeleteRecordsTopic, version: int = 2
) -> list[DeleteRecordsTopicResult]:
    async with gateway.client() as client:
        response = await client.ask(DeleteRecordsRequest(topics=list(topics)), version)
        results: list[DeleteRecordsTopicResult] = response.topics
        return results


async def delete_one(gateway: RunningGateway, offset: int, version: int = 2) -> tuple[int, int]:
    """Return (error, low watermark) for partition 0 of t."""
    ((one,),) = [each.partitions for each in await delete(gateway, below("t", (0, offset)))]
    return one.error_code, one.low_watermark


async def fill(gateway: RunningGateway, count: int = 6, *, timestamp: int | None = None) -> None:
    async with gateway.client() as client:
        for number in range(count):
            stamp = {} if timestamp is None else {"timestamp": timestamp}
            await client.ask(produce({0: batch(b"%d" % number, **stamp)}), 9)


@pytest.mark.parametrize("version", range(3))
async def test_log_start_moves_and_records_below_are_gone(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic("t")
        await fill(gateway)
        results = await delete(gateway, below("t", (0, 2)), version=version)
        (one,) = results[0].partitions
        assert (0, 0, 2) == (one.partition_index, one.error_code, one.low_watermark)
        for offset, code in ((1, OUT_OF_RANGE), (2, 0)):
            response = await client.ask(fetch({0: offset}), 12)
            partition = response.responses[0].partitions[0]
            assert (code, 2 if not code else -1) == (
                partition.error_code,
                partition.log_start_offset,
            )


async def test_row_28_offsets_one_after_another() -> None:
    """Steps on one partition of six records: what is asked, error, low watermark."""
    async with running_gateway() as gateway:
        await gateway.create_topic("t")
        await fill(gateway)
        for offset, expected in (
            (0, (0, 0)),
            (2, (0, 2)),
            (1, (0, 2)),
            (2, (0, 2)),
            (7, (OUT_OF_RANGE, -1)),
            (-2, (OUT_OF_RANGE, -1)),
            (4, (0, 4)),
            (-1, (0, 6)),
            (6, (0, 6)),
        ):
            assert expected == await delete_one(gateway, offset), offset


async def test_records_of_any_age_above_the_offset_stay() -> None:
    async with running_gateway() as gateway:
        await gateway.create_topic("t")
        await fill(gateway, timestamp=1)
        assert (0, 2) == await delete_one(gateway, 2)


async def test_row_28_every_partition_is_answered_and_refusals_stay_alone() -> None:
    async with running_gateway() as gateway:
        await gateway.create_topic("t")
        await fill(gateway, 2)
        results = await delete(
            gateway,
            below("t", (5, 0), (0, 1), (-1, 0)),
            below("nowhere", (0, 0), (1, 0)),
            below("a b", (0, 0)),
            below("none"),
        )
        assert [
            ("t", [(5, UNKNOWN, -1), (0, 0, 1), (-1, UNKNOWN, -1)]),
            ("nowhere", [(0, UNKNOWN, -1), (1, UNKNOWN, -1)]),
            ("a b", [(0, UNKNOWN, -1)]),
            ("none", []),
        ] == [
            (
                each.name,
                [(p.partition_index, p.error_code, p.low_watermark) for p in each.partitions],
            )
            for each in results
        ]


@pytest.mark.parametrize(
    ("policy", "code"),
    [("delete", 0), ("compact", POLICY), ("compact,delete", 0), ("", 0)],
)
async def test_topic_that_is_compacted_and_nothing_else_refuses(policy: str, code: int) -> None:
    async with running_gateway() as gateway:
        await gateway.create_topic("t", configs={"cleanup.policy": policy})
        assert (code, -1 if code else 0) == await delete_one(gateway, -1)
        (unknown,) = (await delete(gateway, below("t", (4, 0))))[0].partitions
        assert UNKNOWN == unknown.error_code


async def test_log_start_survives_a_restart() -> None:
    engine = FaultyEngine(None)
    async with running_gateway(engine=engine) as gateway:
        await gateway.create_topic("t")
        await fill(gateway)
        assert (0, 3) == await delete_one(gateway, 3)
    async with running_gateway(engine=engine) as gateway:
        assert (0, 3) == await delete_one(gateway, 0)


async def test_storage_that_fails_moves_nothing() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic("t")
        await fill(gateway)
        gateway.engine.fail_next("commit")
        assert (STORAGE, -1) == await delete_one(gateway, 3)
        assert 0 == (await client.ask(fetch({0: 0}), 12)).responses[0].partitions[0].error_code
        assert (0, 3) == await delete_one(gateway, 3)


async def test_logs_that_must_be_opened_share_a_commit() -> None:
    async with running_gateway() as gateway:
        await gateway.services.registry.create("t", partitions=5)
        before = gateway.engine.calls["commit"]
        results = await delete(gateway, below("t", *((index, 0) for index in range(5))))
        assert [(0, 0)] * 5 == [(p.error_code, p.low_watermark) for p in results[0].partitions]
        assert 1 == gateway.engine.calls["commit"] - before
