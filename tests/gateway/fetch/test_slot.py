"""A fetch as an object: listening, counting, answering once."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kledger.gateway.fetch.slot import FetchedPartition, FetchSlot
from kledger.gateway.wire.codec import decode
from kledger.gateway.wire.fetch_codec import ParsedFetchRequest
from kledger.gateway.wire.messages.k01_fetch import FetchResponse
from kledger.topics import AppendResult, PartitionLog
from tests.gateway.recording_port import RecordingPort
from tests.gateway.running import RunningGateway, batch, running_gateway, until

VERSION = 12
BODY = b"the request's bytes"


@pytest.fixture(name="gateway")
async def make_gateway() -> AsyncIterator[RunningGateway]:
    async with running_gateway() as gateway:
        yield gateway


def begin(
    gateway: RunningGateway, port: RecordingPort, *logs: PartitionLog, bytes_min: int = 1
) -> FetchSlot:
    """Start a fetch from the beginning of some logs, waiting for up to 500 ms."""
    head = (-1, 500, bytes_min, 1 << 20, 0, 0, -1)
    slot = FetchSlot(gateway.services, port, VERSION, BODY, ParsedFetchRequest(head, [], [], ""))
    for log in logs:
        wanted = FetchedPartition(slot, b"t", log.index, log.high_watermark, 1 << 20)
        wanted.use(log, -1)
        slot.wanted.append(wanted)
    slot.begin(7)
    return slot


async def append(gateway: RunningGateway, log: PartitionLog, value: bytes = b"v") -> None:
    results: list[AppendResult] = []
    assert log.append_nowait(memoryview(bytearray(batch(value))), results.append) is None
    await gateway.services.store.flush()
    assert results[0].error is None


def sizes(frame: bytes) -> list[int]:
    """Bytes of records per partition in a response."""
    assert 7 == int.from_bytes(frame[4:8], "big")
    response = decode(FetchResponse, VERSION, frame, 9)
    return [len(one.records or b"") for topic in response.responses for one in topic.partitions]


async def expire(gateway: RunningGateway, port: RecordingPort, count: int) -> None:
    """Let the time pass until there are so many answers."""
    await asyncio.sleep(0)
    gateway.clock.advance(500)
    await until(lambda: len(port.sent) >= count)


async def test_what_becomes_durable_together_is_answered_together(gateway: RunningGateway) -> None:
    topic = await gateway.create_topic(partitions=2)
    logs = [await topic.open_partition(index) for index in range(2)]
    port = RecordingPort()
    begin(gateway, port, *logs)
    for log in logs:
        await append(gateway, log)
    assert [] == port.sent
    port.end_tick()
    assert 1 == len(port.sent)
    assert all(sizes(port.sent[0]))


async def test_quiet_fetch_is_kept_and_serves_the_same_request_again(
    gateway: RunningGateway,
) -> None:
    topic = await gateway.create_topic()
    log = await topic.open_partition(0)
    port = RecordingPort()
    slot = begin(gateway, port, log)
    for round_ in range(1, 4):
        await expire(gateway, port, round_)
        assert port.retained_slot is slot
        assert slot.matches(VERSION, BODY)
        slot.wait_again(7)
    assert len(set(port.sent)) == 1
    assert [0] == sizes(port.sent[0])


async def test_kept_fetch_is_not_the_same_after_anything_happened(gateway: RunningGateway) -> None:
    topic = await gateway.create_topic()
    log = await topic.open_partition(0)
    port = RecordingPort()
    slot = begin(gateway, port, log)
    await expire(gateway, port, 1)
    assert not slot.matches(VERSION, BODY + b".")
    assert not slot.matches(VERSION + 1, BODY)
    await append(gateway, log)
    assert not slot.matches(VERSION, BODY)


async def test_fetch_with_too_little_is_not_kept(gateway: RunningGateway) -> None:
    topic = await gateway.create_topic()
    log = await topic.open_partition(0)
    port = RecordingPort()
    begin(gateway, port, log, bytes_min=1 << 20)
    await append(gateway, log)
    await expire(gateway, port, 1)
    assert port.retained_slot is None
    assert all(sizes(port.sent[0]))


async def test_abandoned_fetch_has_no_listener(gateway: RunningGateway) -> None:
    topic = await gateway.create_topic()
    log = await topic.open_partition(0)
    port = RecordingPort()
    slot = begin(gateway, port, log)
    slot.abandon()
    await append(gateway, log)
    assert ([], []) == (port.to_finish, port.sent)


async def test_answer_now_sends_what_there_is(gateway: RunningGateway) -> None:
    topic = await gateway.create_topic()
    port = RecordingPort()
    slot = begin(gateway, port, await topic.open_partition(0))
    slot.answer_now()
    assert [0] == sizes(port.sent[0])
    slot.finish()
    assert 1 == len(port.sent), "answered twice"


async def test_a_fetch_waits_for_free_bytes_and_then_returns_records(
    gateway: RunningGateway,
) -> None:
    log = await (await gateway.create_topic()).open_partition(0)
    port = RecordingPort()
    begin(gateway, port, log)
    port.fetch_space.is_full = True
    await append(gateway, log)
    port.end_tick()
    assert ([], 1) == (port.sent, len(port.fetch_space.waiting))
    await append(gateway, log)
    port.fetch_space.waiting.pop()()
    assert [[2 * len(batch(b"v"))]] == [sizes(each) for each in port.sent]


async def test_a_fetch_that_waits_for_free_bytes_opens_a_slot(
    gateway: RunningGateway,
) -> None:
    """It is answered at once otherwise, and what comes behind it must not overtake it."""
    port = RecordingPort()
    port.fetch_space.is_full = True
    begin(gateway, port)
    assert port.state.is_exclusive
    port.fetch_space.waiting.pop()()
    assert 1 == len(port.sent)
    assert not port.state.is_exclusive


async def test_room_is_reserved_for_a_read_of_the_storage(gateway: RunningGateway) -> None:
    log = await (await gateway.create_topic()).open_partition(0)
    await append(gateway, log)
    gateway.services.store._services.cache.limit = 0
    gateway.services.store._services.cache.evict()
    port = RecordingPort()
    slot = begin(gateway, port)
    port.sent.clear()
    wanted = FetchedPartition(slot, b"t", 0, 0, 1 << 20)
    wanted.use(log, -1)
    slot.wanted.append(wanted)
    slot.begin(7)
    assert (1 << 20, []) == (port.fetch_space.reserved, port.sent)
    await until(lambda: bool(port.sent))
    assert 0 == port.fetch_space.reserved


async def test_a_fetch_returns_at_most_the_free_bytes(gateway: RunningGateway) -> None:
    log = await (await gateway.create_topic()).open_partition(0)
    port = RecordingPort()
    begin(gateway, port, log)
    for _ in range(5):
        await append(gateway, log)
    port.fetch_space.fetch_bytes_max = 1
    port.end_tick()
    [size] = sizes(port.sent[0])
    assert len(batch(b"v")) == size
