"""Rows of docs/SCENARIOS.md that need more than one request to Produce.

Each rule of a single batch is in `handlers/test_k00_produce.py`.
"""

from typing import Any

import pytest

from kledger.batches.builder import BatchProducer, NewRecord, build_batch
from kledger.batches.header import read_header
from kledger.gateway.wire.messages.k00_produce import PartitionProduceResponse
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
from kledger.gateway.wire.messages.k22_init_producer_id import InitProducerIdRequest
from kledger.ledger.testing import FaultyEngine
from tests.gateway.running import START_MS, batch, fetch, produce, running_gateway
from tests.gateway.wire_client import WireClient

PRODUCE_V = 9
FETCH_V = 12
DAY_MS = 86_400_000
HOUR_MS = 3_600_000


def sequenced(first: int, count: int = 1, *, producer_id: int = 9) -> bytes:
    records = [NewRecord(b"v", timestamp=START_MS) for _ in range(count)]
    return bytes(build_batch(records, producer=BatchProducer(producer_id, 0, first)))


async def sent(client: WireClient, data: bytes) -> PartitionProduceResponse:
    response = await client.ask(produce({0: data}), PRODUCE_V)
    found: PartitionProduceResponse = response.responses[0].partition_responses[0]
    return found


async def outcome(client: WireClient, data: bytes) -> tuple[int, int]:
    found = await sent(client, data)
    return found.error_code, found.base_offset


async def stored(client: WireClient) -> Any:
    response = await client.ask(fetch({0: 0}), FETCH_V)
    return response.responses[0].partitions[0]


async def end_offset(client: WireClient) -> int:
    asked = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=-1)])
    response = await client.ask(ListOffsetsRequest(topics=[asked]), 5)
    offset: int = response.topics[0].partitions[0].offset
    return offset


async def test_row_37_producer_ids_are_never_given_out_twice() -> None:
    engine = FaultyEngine(None)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    given: list[int] = []
    for _ in range(3):
        async with (
            running_gateway(engine=engine) as gateway,
            gateway.client() as one,
            gateway.client() as other,
        ):
            for client in (one, other, one):
                response = await client.ask(request, 4)
                assert (0, 0) == (response.error_code, response.producer_epoch)
                given.append(response.producer_id)
    assert 9 == len(set(given))


async def test_row_42_duplicates_are_known_after_a_restart() -> None:
    engine = FaultyEngine(None)
    async with running_gateway(engine=engine) as gateway, gateway.client() as client:
        await gateway.create_topic()
        for number in range(7):
            assert (0, number) == await outcome(client, sequenced(number))
    async with running_gateway(engine=engine) as gateway, gateway.client() as client:
        assert (0, 6) == await outcome(client, sequenced(6))
        assert (0, 2) == await outcome(client, sequenced(2)), "the oldest of the last five"
        assert (45, -1) == await outcome(client, sequenced(1))
        assert (45, -1) == await outcome(client, sequenced(8))
        assert (0, 7) == await outcome(client, sequenced(7))
        assert 8 == await end_offset(client)


async def test_row_43_forgotten_producer_continues() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        assert (0, 0) == await outcome(client, sequenced(0, 57))
        asked = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(offset=-1)])
        response = await client.ask(DeleteRecordsRequest(topics=[asked], timeout_ms=1_000), 2)
        assert 57 == response.topics[0].partitions[0].low_watermark
        assert (0, 57) == await outcome(client, sequenced(57))
        gateway.clock.advance(DAY_MS + 1)
        assert (0, 58) == await outcome(client, sequenced(90)), "forgotten after a day"


async def test_row_48_damage_in_a_batch_that_is_cut_off() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        whole = bytearray(batch(b"a" * 50))
        too_long = whole[:8] + (999).to_bytes(4, "big") + whole[12:]
        assert (87, -1) == await outcome(client, bytes(too_long))
        too_long[16] = 16
        assert (2, -1) == await outcome(client, bytes(too_long))
        assert (2, -1) == await outcome(client, bytes(whole + bytes(20)))
        assert (0, 0) == await outcome(client, bytes(whole + whole[:30])), "as Kafka does"


async def test_row_53_records_out_of_time_are_named_one_by_one() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        times = [START_MS, START_MS + 2 * DAY_MS, START_MS]
        data = bytes(build_batch([NewRecord(b"v", timestamp=time) for time in times], codec=2))
        found = await sent(client, data)
        assert (32, [1]) == (found.error_code, [one.batch_index for one in found.record_errors])
        assert found.record_errors[0].batch_index_error_message
        for shift, error in ((HOUR_MS, 0), (HOUR_MS + 1, 32)):
            data = batch(b"v", timestamp=START_MS + shift)
            assert error == (await sent(client, data)).error_code


async def test_feature_offset_assignment_is_dense_and_touches_nothing_under_the_checksum() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        records = [[NewRecord(b"v" * size, timestamp=START_MS)] * size for size in (1, 5, 2, 9)]
        batches = [bytes(build_batch(one, codec=codec)) for codec, one in enumerate(records)]
        for data in batches:
            assert 0 == (await outcome(client, data))[0]
        data = bytes((await stored(client)).records)
        position = offset = 0
        for before in batches:
            after = data[position : position + len(before)]
            assert before[17:] == after[17:], "checksum and all that is under it"
            header = read_header(after)
            assert (offset, 0) == (header.base_offset, header.leader_epoch)
            offset += header.record_count
            position += len(before)
        assert (len(data), 17) == (position, offset)


async def test_feature_durability_end_moves_when_the_write_is_confirmed() -> None:
    async with (
        running_gateway() as gateway,
        gateway.client() as client,
        gateway.client() as reader,
    ):
        await gateway.create_topic()
        hold = gateway.engine.hold_next("commit")
        client.send(produce({0: batch(b"a")}), PRODUCE_V)
        await hold.reached()
        assert 0 == await end_offset(reader)
        assert (0, b"") == ((await stored(reader)).high_watermark, (await stored(reader)).records)
        hold.release()
        assert 0 == (await client.receive()).responses[0].partition_responses[0].error_code
        assert 1 == await end_offset(reader)


@pytest.mark.parametrize("failures", [1, 3])
async def test_feature_durability_failed_writes_consume_no_offset_of_several_in_flight(
    failures: int,
) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        assert (0, 0) == await outcome(client, batch(b"a"))
        for _ in range(failures):
            gateway.engine.fail_next("commit")
            for _ in range(4):
                client.send(produce({0: batch(b"b")}), PRODUCE_V)
            for _ in range(4):
                response = await client.receive()
                assert response.responses[0].partition_responses[0].error_code in {0, 56}
        end = await end_offset(client)
        assert (0, end) == await outcome(client, batch(b"c"))
        heads, data, position = [], bytes((await stored(client)).records), 0
        while position < len(data):
            header = read_header(data, position)
            heads.append(header.base_offset)
            position += header.size
        assert list(range(end + 1)) == heads, "no gap, no offset twice"
