"""Produce; rows 37 to 58 of docs/SCENARIOS.md, as far as the gateway decides them."""

from uuid import UUID

import pytest

from kledger.batches.builder import BatchProducer, NewRecord, build_batch
from kledger.batches.compression import Codec
from kledger.batches.header import check, read_header, refresh_checksum
from kledger.gateway.wire.messages.k00_produce import PartitionProduceResponse
from kledger.gateway.wire.schema import ApiMessage
from tests.gateway.running import START_MS, batch, fetch, produce, running_gateway
from tests.gateway.wire_client import WireClient

VERSION = 9


async def sent(
    client: WireClient, request: ApiMessage, version: int = VERSION
) -> list[PartitionProduceResponse]:
    response = await client.ask(request, version)
    return [one for topic in response.responses for one in topic.partition_responses]


async def outcome(
    client: WireClient, data: bytes | None, version: int = VERSION
) -> tuple[int, int]:
    """Send one batch to partition 0 and return its error and base offset."""
    (one,) = await sent(client, produce({0: data}), version)
    return one.error_code, one.base_offset


def sequenced(first: int, count: int = 1, *, epoch: int = 0, producer_id: int = 9) -> bytes:
    records = [NewRecord(b"v", timestamp=START_MS) for _ in range(count)]
    return bytes(build_batch(records, producer=BatchProducer(producer_id, epoch, first)))


def changed(data: bytes, at: int, value: bytes, *, redo_checksum: bool = True) -> bytes:
    whole = bytearray(data)
    whole[at : at + len(value)] = value
    if redo_checksum:
        refresh_checksum(whole)
    return bytes(whole)


@pytest.mark.parametrize("version", range(3, 13))
async def test_every_version_by_name_gives_dense_offsets(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        assert (0, 0) == await outcome(client, batch(b"a", b"b"), version)
        (one,) = await sent(client, produce({0: batch(b"c")}), version)
        assert (0, 2, -1) == (one.error_code, one.base_offset, one.log_append_time_ms)
        if version >= 5:
            assert 0 == one.log_start_offset


@pytest.mark.parametrize("acks", [-1, 1])
async def test_version_13_by_id(acks: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        topic = await gateway.create_topic()
        (one,) = await sent(client, produce({0: batch(b"a")}, acks=acks, topic_id=topic.id), 13)
        assert (0, 0) == (one.error_code, one.base_offset)


async def test_row_57_unknown_name_and_unknown_id() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        (one,) = await sent(client, produce({0: batch(b"a")}, topic="missing"), 12)
        assert (3, -1) == (one.error_code, one.base_offset)
        (one,) = await sent(client, produce({0: batch(b"a")}, topic_id=UUID(int=7)), 13)
        assert 100 == one.error_code
        assert gateway.services.registry.get("missing") is None


@pytest.mark.parametrize(
    "topic", ["__consumer_offsets", "persistent://public/default/__transaction_state"]
)
async def test_names_that_kafka_keeps_for_itself_cannot_be_written(topic: str) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        (one,) = await sent(client, produce({0: batch(b"a")}, topic=topic))
        assert (17, -1) == (one.error_code, one.base_offset)


async def test_row_24_id_of_a_deleted_topic() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        topic = await gateway.create_topic()
        request = produce({0: batch(b"a")}, topic_id=topic.id)
        assert 0 == (await sent(client, request, 13))[0].error_code
        await gateway.services.registry.delete("t")
        await gateway.create_topic()
        assert 100 == (await sent(client, request, 13))[0].error_code


async def test_row_56_each_partition_is_answered_for_itself() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        topic = await gateway.create_topic(partitions=2)
        data = batch(b"a")
        results = await sent(client, produce({0: data, 7: data, 1: data, -1: data}))
        assert [(0, 0), (7, 3), (1, 0), (-1, 3)] == [(one.index, one.error_code) for one in results]
        for index in range(2):
            assert 1 == (await topic.open_partition(index)).high_watermark


async def test_row_55_impossible_acks_are_refused_for_every_partition() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic(partitions=2)
        results = await sent(client, produce({0: batch(b"a"), 1: batch(b"b")}, acks=2))
        assert [21, 21] == [one.error_code for one in results]


async def test_row_47_records_that_are_not_exactly_one_batch() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        for data in (batch(b"a") + batch(b"b"), b"", None):
            assert (87, -1) == await outcome(client, data)
        assert (0, 0) == await outcome(client, batch(b"a"))


@pytest.mark.parametrize(
    ("at", "value", "redo_checksum", "error"),
    [
        (17, b"\0\0\0\0", False, 2),
        (8, (5).to_bytes(4, "big"), False, 2),
        (8, (10_000).to_bytes(4, "big"), False, 87),
        (0, (7).to_bytes(8, "big"), True, 87),
        (21, (0x20).to_bytes(2, "big"), True, 87),
        (23, (5).to_bytes(4, "big"), True, 87),
        (16, b"\1", False, 87),
    ],
    ids=["checksum", "too short", "past the field", "base offset", "control", "count", "magic"],
)
async def test_row_48_broken_batches(
    at: int, value: bytes, redo_checksum: bool, error: int
) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        data = changed(batch(b"a", b"b"), at, value, redo_checksum=redo_checksum)
        assert (error, -1) == await outcome(client, data)
        assert (0, 0) == await outcome(client, batch(b"a"))


@pytest.mark.parametrize("epoch", [-1, 0, 12_345])
async def test_row_49_batch_leader_epoch_is_ours_in_the_end(epoch: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        data = changed(batch(b"a"), 12, epoch.to_bytes(4, "big", signed=True))
        assert (0, 0) == await outcome(client, data)
        assert 0 == read_header(await stored(client)).leader_epoch


async def stored(client: WireClient, offset: int = 0) -> bytes:
    """Fetch what partition 0 holds from an offset on."""
    response = await client.ask(fetch({0: offset}), 12)
    return bytes(response.responses[0].partitions[0].records)


async def test_row_50_largest_batch_and_one_byte_more() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        data = batch(b"x" * 500)
        await gateway.create_topic(configs={"max.message.bytes": str(len(data))})
        assert (0, 0) == await outcome(client, data)
        (one,) = await sent(client, produce({0: batch(b"x" * 501)}))
        assert 10 == one.error_code
        assert one.error_message


async def test_row_51_zstd_needs_version_7() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        data = bytes(build_batch([NewRecord(b"a", timestamp=START_MS)], codec=Codec.ZSTD))
        for version in range(3, 7):
            assert (76, -1) == await outcome(client, data, version)
            assert (0, version - 3) == await outcome(client, batch(b"plain"), version)
            assert (76, -1) == await outcome(client, data, version)
        assert (0, 4) == await outcome(client, data, 7)


async def test_row_52_log_append_time_is_returned_and_stored() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic(configs={"message.timestamp.type": "LogAppendTime"})
        (one,) = await sent(client, produce({0: batch(b"a", timestamp=START_MS - 5_000)}))
        assert START_MS == one.log_append_time_ms
        header = check(bytearray(await stored(client)))
        assert (True, START_MS) == (header.is_log_append_time, header.max_timestamp)


async def test_row_53_timestamp_type_and_time_of_the_producer() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
        data = changed(batch(b"a"), 21, (0x08).to_bytes(2, "big"))
        assert (32, -1) == await outcome(client, data)
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        assert (0, 0) == await outcome(client, data)
        assert not check(bytearray(await stored(client))).is_log_append_time
        late = batch(b"a", timestamp=START_MS + 2 * 86_400_000)
        assert (32, -1) == await outcome(client, late)


@pytest.mark.parametrize("version", [7, 8])
async def test_row_54_null_key_on_a_compacted_topic(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic(configs={"cleanup.policy": "compact"})
        (one,) = await sent(client, produce({0: batch(b"a")}), version)
        assert 87 == one.error_code
        if version >= 8:
            assert 0 == one.record_errors[0].batch_index
            assert one.record_errors[0].batch_index_error_message
            assert one.error_message


async def test_row_38_39_40_idempotence_over_the_wire() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        for number in range(6):
            assert (0, number) == await outcome(client, sequenced(number))
        assert (0, 1) == await outcome(client, sequenced(1)), "still among the last five"
        assert (45, -1) == await outcome(client, sequenced(0))
        assert (45, -1) == await outcome(client, sequenced(7))
        assert (0, 6) == await outcome(client, sequenced(6, 3))
        assert (0, 6) == await outcome(client, sequenced(6, 3))


async def test_row_41_a_batch_too_large_among_pipelined_ones_breaks_the_sequence() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic(configs={"max.message.bytes": "200"})
        large = bytes(
            build_batch(
                [NewRecord(b"x" * 500, timestamp=START_MS)], producer=BatchProducer(9, 0, 1)
            )
        )
        for data in (sequenced(0), large, sequenced(2), sequenced(3), sequenced(4)):
            client.send(produce({0: data}), VERSION)
        codes = []
        for _ in range(5):
            response = await client.receive()
            codes.append(response.responses[0].partition_responses[0].error_code)
        assert [0, 10, 45, 45, 45] == codes


async def test_row_44_45_46_sequence_wrap_and_epochs() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        assert (0, 0) == await outcome(client, sequenced(2**31 - 1))
        assert (0, 1) == await outcome(client, sequenced(0))
        assert (45, -1) == await outcome(client, sequenced(1, epoch=1))
        assert (0, 2) == await outcome(client, sequenced(0, epoch=1))
        assert (47, -1) == await outcome(client, sequenced(1, epoch=0))


async def test_row_58_without_a_producer_id_a_repeat_is_stored_again() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        data = batch(b"a")
        assert [(0, 0), (0, 1)] == [await outcome(client, data) for _ in range(2)]


async def test_failed_write_is_a_storage_error_and_consumes_no_offset() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        gateway.engine.fail_next("commit")
        assert (56, -1) == await outcome(client, batch(b"a"))
        assert (0, 0) == await outcome(client, batch(b"a"))


async def test_failed_write_under_acks_0_closes_the_connection() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        gateway.engine.fail_next("commit")
        client.send(produce({0: batch(b"a")}, acks=0), VERSION, is_answered=False)
        assert await client.is_closed_by_server()


async def test_request_without_partitions_is_answered() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        assert [] == await sent(client, produce({}))


async def test_logs_are_opened_when_first_produced_to_and_order_is_kept() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.services.registry.create("t", partitions=3, configs={})
        for number in range(6):
            client.send(produce({number % 3: batch(bytes([number]))}), VERSION)
        offsets = []
        for _ in range(6):
            response = await client.receive()
            offsets.append(response.responses[0].partition_responses[0].base_offset)
        assert [0, 0, 0, 1, 1, 1] == offsets


async def test_stored_bytes_do_not_change_when_later_frames_use_the_same_buffer() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        values = [bytes([number]) * 100 for number in range(50)]
        for value in values:
            client.send(produce({0: batch(value)}), VERSION)
        for _ in values:
            await client.receive()
        data = await stored(client)
        assert all(value in data for value in values)
        position = 0
        while position < len(data):
            header = read_header(data, position)
            whole = bytearray(data[position : position + header.size])
            whole[:8] = bytes(8)
            check(whole)
            position += header.size
