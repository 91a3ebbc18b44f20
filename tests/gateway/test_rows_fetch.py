"""Rows of docs/SCENARIOS.md that need several APIs.

Each rule of one fetch is in `handlers/test_k01_fetch.py`.
"""

from typing import Any

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.reader import iterate_batches, iterate_records
from kledger.gateway.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kledger.gateway.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kledger.gateway.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kledger.ledger.testing import FaultyEngine
from kledger.topics.partition.partition_compaction import CompactionLimits
from tests.gateway.running import batch, fetch, produce, running_gateway
from tests.gateway.wire_client import WireClient
from tests.topics.words import append

PRODUCE_V = 9
FETCH_V = 12
BY_ID_V = 13


async def fetched(client: WireClient, offset: int, **changes: Any) -> Any:
    response = await client.ask(fetch({0: offset}, **changes), FETCH_V)
    return response.responses[0].partitions[0]


async def written(client: WireClient, *values: bytes) -> int:
    """Write each value as a batch of its own; return the offset of the last."""
    offset = -1
    for value in values:
        response = await client.ask(produce({0: batch(value)}), PRODUCE_V)
        (one,) = response.responses[0].partition_responses
        assert 0 == one.error_code
        offset = one.base_offset
    return offset


async def offset_at(client: WireClient, time: int, isolation_level: int = 0) -> tuple[int, int]:
    asked = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=time)])
    request = ListOffsetsRequest(isolation_level=isolation_level, topics=[asked])
    (found,) = (await client.ask(request, 7)).topics[0].partitions
    return found.error_code, found.offset


async def deleted(client: WireClient, offset: int) -> tuple[int, int]:
    asked = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(offset=offset)])
    request = DeleteRecordsRequest(topics=[asked], timeout_ms=1_000)
    (found,) = (await client.ask(request, 2)).topics[0].partitions
    return found.error_code, found.low_watermark


async def test_row_25_names_and_ids_lead_to_the_same_data() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        topic = await gateway.create_topic()
        await client.ask(produce({0: batch(b"by id")}, topic="", topic_id=topic.id), BY_ID_V)
        await client.ask(produce({0: batch(b"by name")}), PRODUCE_V)
        by_name = await client.ask(fetch({0: 0}), FETCH_V)
        request = fetch({0: 0}, topic="")
        request.topics[0].topic_id = topic.id
        by_id = await client.ask(request, BY_ID_V)
        assert topic.id == by_id.responses[0].topic_id
        data = bytes(by_name.responses[0].partitions[0].records)
        assert data == bytes(by_id.responses[0].partitions[0].records)
        assert b"by id" in data
        assert b"by name" in data


async def test_row_69_epoch_does_not_fall_over_a_restart() -> None:
    engine = FaultyEngine(None)
    for _ in range(3):
        async with running_gateway(engine=engine) as gateway, gateway.client() as client:
            if gateway.services.registry.get("t") is None:
                await gateway.create_topic()
            await written(client, b"a")
            for epoch, error in ((0, 0), (-1, 0), (1, 75)):
                request = fetch({0: 0})
                request.topics[0].partitions[0].current_leader_epoch = epoch
                response = await client.ask(request, FETCH_V)
                assert error == response.responses[0].partitions[0].error_code


@pytest.mark.parametrize(
    ("epoch", "expected"), [(0, (0, 3)), (1, (-1, -1)), (-1, (-1, -1)), (-3, (-3, 1))]
)
async def test_row_70_where_an_epoch_ends_in_a_trimmed_log(
    epoch: int, expected: tuple[int, int]
) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        await written(client, b"a", b"b", b"c")
        await deleted(client, 1)
        partition = OffsetForLeaderPartition(leader_epoch=epoch, current_leader_epoch=-1)
        topic = OffsetForLeaderTopic(topic="t", partitions=[partition])
        response = await client.ask(OffsetForLeaderEpochRequest(topics=[topic]), 3)
        (found,) = response.topics[0].partitions
        assert (0, *expected) == (found.error_code, found.leader_epoch, found.end_offset)


async def test_row_71_ends_are_the_same_for_committed_readers_without_transactions() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        for count in range(3):
            for isolation_level in (0, 1):
                assert (0, count) == await offset_at(client, -1, isolation_level)
                assert (0, 0) == await offset_at(client, -2, isolation_level)
            await written(client, b"a")


async def test_row_77_deleted_records_are_gone_for_everyone() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        await written(client, *(b"%d" % number for number in range(8)))
        assert (0, 5) == await deleted(client, 5)
        assert 1 == (await fetched(client, 0)).error_code
        assert (0, 5) == await offset_at(client, -2)
        one = await fetched(client, 5)
        assert (0, 8, 8, 5) == (
            one.error_code, one.high_watermark, one.last_stable_offset, one.log_start_offset
        )  # fmt: skip
        assert (0, 5) == await deleted(client, 2), "never back"
        assert (1, -1) == await deleted(client, 9)
        assert (1, -1) == await deleted(client, -2)
        assert (0, 8) == await deleted(client, -1)
        assert ((0, 8), (0, 8)) == (await offset_at(client, -1), await offset_at(client, -2))
        assert 8 == await written(client, b"next")
        assert (0, 9) == ((await fetched(client, 8)).error_code, (await offset_at(client, -1))[1])


async def test_feature_offset_lookup_every_offset_returns_the_batch_around_it() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        sizes, starts, offset = (1, 4, 2, 7), [], 0
        for size in sizes:
            await client.ask(produce({0: batch(*[b"v"] * size)}), PRODUCE_V)
            starts.append(offset)
            offset += size
        for asked in range(offset):
            one = await fetched(client, asked, partition_max_bytes=1)
            base = int.from_bytes(bytes(one.records)[:8])
            assert max(start for start in starts if start <= asked) == base
        for asked, error in ((offset, 0), (offset + 1, 1), (-1, 1)):
            assert error == (await fetched(client, asked)).error_code


@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_feature_watermarks_are_in_every_response(isolation_level: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        for end in range(4):
            for asked in range(end + 1):
                one = await fetched(client, asked, isolation_level=isolation_level)
                assert (end, end, 0) == (
                    one.high_watermark, one.last_stable_offset, one.log_start_offset
                )  # fmt: skip
            await written(client, b"v")


@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_feature_aborted_transactions_of_an_error_are_kafkas(isolation_level: int) -> None:
    """None at an offset that is not there, and an empty list where there is no log at all."""
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        there = await fetched(client, 9, isolation_level=isolation_level)
        assert (1, None) == (there.error_code, there.aborted_transactions)
        request = fetch({7: 0}, isolation_level=isolation_level)
        (gone,) = (await client.ask(request, 12)).responses[0].partitions
        assert (3, []) == (gone.error_code, gone.aborted_transactions)


async def test_row_78_a_compacted_log_is_read_to_its_end() -> None:
    """Batches with gaps within, two that are gone, an empty one at the end.

    Records without a key, written before the policy was changed, are those that go.
    """
    async with running_gateway() as gateway, gateway.client() as client:
        topic = await gateway.create_topic()
        log = await topic.open_partition(0)
        for keys in ((b"k0", None, None), (None, None), (None,) * 4, (b"k1",), (b"k2", None)):
            batch = build_batch([NewRecord(b"kept" if key else b"gone", key=key) for key in keys])
            await append(log, batch)
        await append(log, build_batch([NewRecord(b"gone")] * 5))
        await gateway.services.registry.alter_configs("t", {"cleanup.policy": "compact"})
        await log.compact(CompactionLimits())
        position, values = 0, []
        while True:
            one = await fetched(client, position, partition_max_bytes=1)
            assert 0 == one.error_code
            if not one.records:
                break
            for header, data in iterate_batches(one.records):
                values += [(header.base_offset, record.value) for record in iterate_records(data)]
                assert position <= header.last_offset
                position = header.last_offset + 1
        assert [(0, b"kept"), (9, b"kept"), (10, b"kept")] == values
        ends = ListOffsetsRequest(
            topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=-1)])]
        )
        (end,) = (await client.ask(ends, 7)).topics[0].partitions
        assert 17 == end.offset == position
        assert 17 == (await append(log, build_batch([NewRecord(b"next", key=b"k")]))).base_offset
