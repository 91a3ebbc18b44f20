"""Requests that begin like one before them."""

import weakref
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from kledger.batches.header import FLAGS_AT, TRANSACTIONAL_BIT
from kledger.gateway.peer import Peer
from kledger.gateway.produce.request import ROUTES_MAX, ProduceRouteCache
from kledger.gateway.wire.codec import encode
from kledger.gateway.wire.produce_codec import (
    ParsedProduceRequest,
    find_single_batch,
    parse_produce_request,
)
from kledger.ledger import LedgerStore
from kledger.topics import PartitionLog, Topic, TopicRegistry
from tests.gateway.running import batch, produce

VERSION = 9
BATCH = batch(b"v")
PEER = Peer("127.0.0.1")


def frame_of(batches: dict[int, bytes | None], acks: int = -1) -> memoryview:
    return memoryview(bytearray(encode(produce(batches, acks=acks), VERSION)))


def find(
    heads: ProduceRouteCache, frame: memoryview, version: int = VERSION, peer: Peer = PEER
) -> tuple[ParsedProduceRequest, Sequence[PartitionLog | int]] | None:
    return heads.find(version, find_single_batch(frame, version, 0), peer)


def remember(
    heads: ProduceRouteCache, frame: memoryview, *found: PartitionLog | int, version: int = VERSION
) -> None:
    assert find(heads, frame, version) is None
    single_batch = find_single_batch(frame, version, 0)
    heads.remember(version, single_batch, parse_produce_request(frame, version)[0], found, PEER)


@asynccontextmanager
async def one_topic() -> AsyncIterator[tuple[TopicRegistry, Topic, PartitionLog]]:
    async with LedgerStore.open(None) as store:
        registry = await TopicRegistry.open(store)
        topic = await registry.create("t", partitions=2)
        yield registry, topic, await topic.open_partition(0)


async def test_next_request_is_what_the_parser_makes_of_it() -> None:
    async with one_topic() as (registry, _, log):
        heads = ProduceRouteCache(registry)
        remember(heads, frame_of({0: BATCH}), log)
        frame = frame_of({0: batch(b"another", b"two")})
        route = find(heads, frame)
        assert route is not None
        assert route[1] == (log,)
        assert parse_produce_request(frame, VERSION)[0] == route[0]


async def test_other_heads_are_not_known() -> None:
    async with one_topic() as (registry, _, log):
        heads = ProduceRouteCache(registry)
        frame = frame_of({0: BATCH})
        remember(heads, frame, log)
        assert find(heads, frame_of({1: BATCH})) is None
        assert find(heads, frame_of({0: BATCH}, acks=1)) is None
        assert find(heads, frame, VERSION + 1) is None
        assert find(heads, frame_of({0: BATCH, 1: BATCH})) is None


async def test_batch_of_a_transaction_is_never_known() -> None:
    async with one_topic() as (registry, _, log):
        heads = ProduceRouteCache(registry)
        remember(heads, frame_of({0: BATCH}), log)
        marked = bytearray(BATCH)
        marked[FLAGS_AT] |= TRANSACTIONAL_BIT
        assert find(heads, frame_of({0: bytes(marked)})) is None


@pytest.mark.parametrize("size", [0, 1, FLAGS_AT])
async def test_records_without_attributes_are_not_known(size: int) -> None:
    async with one_topic() as (registry, _, log):
        heads = ProduceRouteCache(registry)
        remember(heads, frame_of({0: BATCH}), log)
        assert find(heads, frame_of({0: BATCH[:size]})) is None


async def test_change_of_a_topic_forgets() -> None:
    async with one_topic() as (registry, _, log):
        heads = ProduceRouteCache(registry)
        frame = frame_of({0: BATCH})
        remember(heads, frame, log)
        await registry.delete("t")
        await registry.create("t")
        assert find(heads, frame) is None


async def test_log_that_was_closed_is_not_known() -> None:
    async with one_topic() as (registry, _, log):
        heads = ProduceRouteCache(registry)
        frame = frame_of({0: BATCH})
        remember(heads, frame, log)
        await log.close()
        assert find(heads, frame) is None


async def test_refused_and_several_batches_are_not_remembered() -> None:
    async with one_topic() as (registry, topic, log):
        heads = ProduceRouteCache(registry)
        frame = frame_of({0: BATCH})
        remember(heads, frame, 3)
        assert find(heads, frame) is None
        both = frame_of({0: BATCH, 1: BATCH})
        remember(heads, both, log, await topic.open_partition(1))
        assert find(heads, both) is None


async def test_number_of_heads_is_limited() -> None:
    async with one_topic() as (registry, _, log):
        heads = ProduceRouteCache(registry)
        frame = frame_of({0: BATCH})
        for index in range(1, ROUTES_MAX + 1):
            remember(heads, frame_of({index: BATCH}), log)
        remember(heads, frame, log)
        assert find(heads, frame) is not None
        assert find(heads, frame_of({1: BATCH})) is None


async def test_logs_that_are_closed_as_idle_leave_memory() -> None:
    """A head kept its log, and all that this keeps, until 4,096 others had come."""
    async with one_topic() as (registry, topic, log):
        heads = ProduceRouteCache(registry)
        remember(heads, frame_of({0: BATCH}), log)
        used = await topic.open_partition(1)
        remember(heads, frame_of({1: BATCH}), used)
        closed = weakref.ref(log)
        del log
        for _ in range(2):
            used.idle.is_used = True
            await registry.close_idle_partitions(1)
        assert closed() is None
        assert 1 == len(heads)
        assert find(heads, frame_of({1: BATCH})) is not None
