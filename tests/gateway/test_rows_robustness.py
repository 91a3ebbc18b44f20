"""Row 130 of docs/SCENARIOS.md, field by field: what a peer can get wrong inside a whole frame.

Sweeps over every API are in `test_sweep.py`, frames and limits in `test_connection.py`. Where a
frame can be read it is served, as Apache Kafka does; otherwise that connection ends, and no other.
"""

import struct

import pytest

from kledger.gateway.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from kledger.gateway.wire.messages.k12_heartbeat import HeartbeatRequest
from kledger.gateway.wire.schema import ApiMessage
from tests.gateway.running import batch, fetch, produce, running_gateway

CLIENT_ID = struct.pack(">h4s", 4, b"test")
METADATA_V = 12

REQUESTS: list[tuple[str, ApiMessage, int]] = [
    ("produce", produce({0: batch(b"x")}), 3),
    ("produce, flexible", produce({0: batch(b"x")}), 9),
    ("fetch", fetch({0: 0}), 4),
    ("fetch, flexible", fetch({0: 0}), 12),
    ("metadata", MetadataRequest(topics=None), 1),
    ("metadata, flexible", MetadataRequest(topics=None), 9),
    ("heartbeat", HeartbeatRequest(group_id="g", member_id="m"), 4),
    (
        "list offsets",
        ListOffsetsRequest(
            topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=-1)])]
        ),
        7,
    ),
]


def metadata(version: int, body: bytes) -> bytes:
    """Build a Metadata request by hand; flexible versions have a tag count in the header."""
    tags = b"\0" if version >= 9 else b""
    return struct.pack(">hhi", 3, version, 1) + CLIENT_ID + tags + body


BROKEN: list[tuple[str, bytes]] = [
    ("array of 2^31-1", metadata(1, struct.pack(">i", 2**31 - 1))),
    ("array of a million", metadata(1, struct.pack(">i", 1_000_000))),
    ("array of -2", metadata(1, struct.pack(">i", -2))),
    ("array of -2^31", metadata(1, struct.pack(">i", -(2**31)))),
    ("string of 32767", metadata(1, struct.pack(">ih", 1, 32_767))),
    ("string of -2", metadata(1, struct.pack(">ih", 1, -2))),
    ("null where forbidden", metadata(1, struct.pack(">ih", 1, -1))),
    ("bad UTF-8", metadata(1, struct.pack(">ih2s", 1, 2, b"\xff\xfe"))),
    ("compact array of 2^32-2", metadata(9, b"\xff\xff\xff\xff\x0f")),
    ("compact array of a million", metadata(9, b"\xc1\x84\x3d")),
    ("varint without an end", metadata(9, b"\xff" * 5)),
    ("varint of six bytes", metadata(9, b"\x80\x80\x80\x80\x80\x00")),
    ("compact string beyond the frame", metadata(9, b"\x02\x7f")),
    ("count of tags beyond the frame", metadata(9, b"\0\0\0\0\xff\xff\x03")),
    ("size of a tag beyond the frame", metadata(9, b"\0\0\0\0\1\x63\x7f")),
    ("client id beyond the frame", struct.pack(">hhih", 3, 1, 1, 32_767)),
    ("header alone", struct.pack(">hhi", 3, 1, 1)),
]


@pytest.mark.parametrize("frame", [row[1] for row in BROKEN], ids=[row[0] for row in BROKEN])
async def test_row_130_field_that_cannot_be_ends_that_connection_alone(frame: bytes) -> None:
    async with running_gateway() as gateway, gateway.client() as bystander:
        async with gateway.client() as client:
            client.send_frame(frame)
            assert await client.is_closed_by_server()
        answer = await bystander.ask(MetadataRequest(topics=[]), METADATA_V)
        assert isinstance(answer, MetadataResponse)
        assert 1 == gateway.services.metrics.snapshot()["malformed_requests"]


@pytest.mark.parametrize(
    ("request_", "version"), [row[1:] for row in REQUESTS], ids=[row[0] for row in REQUESTS]
)
async def test_row_130_trailing_bytes_are_ignored(request_: ApiMessage, version: int) -> None:
    """As in Apache Kafka: a later version of a client may know fields that we do not."""
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        plain = await client.ask(request_, version)
        key = type(request_).__api__.key
        for trailing in (b"\0", b"zz", b"\xff" * 100):
            client.send_frame(client.frame(request_, version) + trailing)
            client.expect(key, version)
            assert type(plain) is type(await client.receive())


@pytest.mark.parametrize(
    ("request_", "version"), [row[1:] for row in REQUESTS], ids=[row[0] for row in REQUESTS]
)
async def test_row_130_frame_cut_anywhere_ends_that_connection_alone(
    request_: ApiMessage, version: int
) -> None:
    async with running_gateway() as gateway, gateway.client() as bystander:
        topic = await gateway.create_topic()
        for left_out in (1, 2, 3, 5, 8):
            async with gateway.client() as client:
                client.send_frame(client.frame(request_, version)[:-left_out])
                assert await client.is_closed_by_server()
        assert await bystander.ask(MetadataRequest(topics=[]), METADATA_V)
        assert 0 == (await topic.open_partition(0)).high_watermark


async def test_row_130_peers_that_speak_another_protocol_are_cut_off() -> None:
    async with running_gateway() as gateway:
        for words in (
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            bytes.fromhex("160301020001000001fc0303") + bytes(100),
            b"\xff" * 64,
            bytes(64),
        ):
            async with gateway.client() as client:
                client.writer.write(words)
                assert await client.is_closed_by_server()
        async with gateway.client() as client:
            assert await client.ask(MetadataRequest(topics=[]), METADATA_V)


@pytest.mark.parametrize("name", ["a b", "", "..", "x" * 250, "é", "a/b"])
async def test_bad_input_topic_names_are_an_answer_of_each_api(name: str) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        response = await client.ask(produce({0: batch(b"x")}, topic=name), 9)
        assert 3 == response.responses[0].partition_responses[0].error_code
        response = await client.ask(fetch({0: 0}, topic=name), 12)
        assert 3 == response.responses[0].partitions[0].error_code
        asked = ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(timestamp=-1)])
        response = await client.ask(ListOffsetsRequest(topics=[asked]), 7)
        assert 3 == response.topics[0].partitions[0].error_code
        assert [] == gateway.services.registry.all()
