"""Row 130 of docs/SCENARIOS.md: lengths that cannot be, in headers and bodies of every API.

What each field refuses is in `wire/test_lengths.py`; here it is what becomes of the connection.
"""

import struct

import pytest

from kledger.gateway.served_apis import HANDLERS, HandlerSpec
from kledger.gateway.wire.header import is_flexible
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest
from tests.gateway.running import RunningGateway, batch, produce, running_gateway
from tests.gateway.test_sweep import no_faults, request_class
from tests.gateway.wire.lengths import STEPPED_OVER_BY_FETCH, SampleBody

METADATA_V = 12
CLIENT_ID_SIZES = (-32_768, -11, -10, -5, -2, 32_767)
"""-10 would end the header before the client id, -5 inside the correlation id, where zeros are."""


def header(spec: HandlerSpec, version: int, client_id_size: int = 4) -> bytes:
    """Return a request header with that size before its client id."""
    tags = b"\0" if is_flexible(spec.key, version) else b""
    return struct.pack(">hhih4s", spec.key, version, 0, client_id_size, b"test") + tags


async def closed_count(gateway: RunningGateway, frames: list[bytes]) -> int:
    """Send each frame on a connection of its own; return how many were closed for what came."""
    malformed = gateway.services.metrics.counter("malformed_requests", "")
    before = malformed.value
    for frame in frames:
        async with gateway.client() as client:
            client.send_frame(frame)
            assert await client.is_closed_by_server(), frame.hex(" ")
    return malformed.value - before


@pytest.mark.parametrize("spec", HANDLERS, ids=lambda spec: spec.module)
async def test_row_130_client_id_of_impossible_length_ends_that_connection_alone(
    spec: HandlerSpec,
) -> None:
    frames = [
        header(spec, version, size) + bytes(SampleBody(request_class(spec), version).data)
        for version in range(spec.min_version, spec.max_version + 1)
        for size in CLIENT_ID_SIZES
    ]
    with no_faults():
        async with running_gateway() as gateway, gateway.client() as bystander:
            assert len(frames) == await closed_count(gateway, frames)
            assert await bystander.ask(MetadataRequest(topics=[]), METADATA_V)


@pytest.mark.parametrize("spec", HANDLERS, ids=lambda spec: spec.module)
async def test_row_130_body_with_an_impossible_length_ends_that_connection_alone(
    spec: HandlerSpec,
) -> None:
    """The values differ in how they are read, not in where: one of each kind is sent."""
    frames = []
    for version in {spec.min_version, spec.max_version}:
        body = SampleBody(request_class(spec), version)
        refused = {
            length: data
            for length, data in body.broken()
            if spec.module != "k01_fetch" or length.path not in STEPPED_OVER_BY_FETCH
        }
        frames += [header(spec, version) + data for data in refused.values()]
    with no_faults():
        async with running_gateway() as gateway:
            assert len(frames) == await closed_count(gateway, frames)


@pytest.mark.parametrize("length", [-(2**31), -2, -1, 0, 49, 2**31 - 1])
async def test_row_130_batch_of_impossible_length_is_an_answer(length: int) -> None:
    """The records are read by the partition, so its answer refuses them: CORRUPT_MESSAGE or
    INVALID_RECORD, as in Apache Kafka."""
    records = bytearray(batch(b"value"))
    struct.pack_into(">i", records, 8, length)
    with no_faults():
        async with running_gateway() as gateway, gateway.client() as client:
            await gateway.create_topic()
            for version in (3, 9):
                answer = await client.ask(produce({0: bytes(records)}), version)
                assert answer.responses[0].partition_responses[0].error_code in {2, 87}
