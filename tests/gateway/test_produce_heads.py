"""Requests that begin like one before them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from batches.header import FLAGS_AT, TRANSACTIONAL_BIT
from gateway.produce_heads import HEADS_MAX, ProduceHeads
from gateway.wire.codec import encode
from gateway.wire.produce_codec import parse_produce_request
from ledger import LedgerStore
from tests.gateway.running import batch, produce
from topics import PartitionLog, Topic, TopicRegistry

VERSION = 9
BATCH = batch(b"v")


def frame_of(batches: dict[int, bytes | None], acks: int = -1) -> memoryview:
    return memoryview(bytearray(encode(produce(batches, acks=acks), VERSION)))


def remember(
    heads: ProduceHeads, frame: memoryview, *found: PartitionLog | int, version: int = VERSION
) -> None:
    assert heads.find(frame, version, 0) is None
    heads.remember(frame, version, 0, parse_produce_request(frame, version), found)


@asynccontextmanager
async def one_topic() -> AsyncIterator[tuple[TopicRegistry, Topic, PartitionLog]]:
    async with LedgerStore.open(None) as store:
        registry = await TopicRegistry.open(store)
        topic = await registry.create("t", partitions=2)
        yield registry, topic, await topic.open_partition(0)


async def test_next_request_is_what_the_parser_makes_of_it() -> None:
    async with one_topic() as (registry, _, log):
        heads = ProduceHeads(registry)
        remember(heads, frame_of({0: BATCH}), log)
        frame = frame_of({0: batch(b"another", b"two")})
        known = heads.find(frame, VERSION, 0)
        assert known is not None
        assert known[1] is log
        parsed = parse_produce_request(frame, VERSION)
        for name in type(parsed).__slots__:
            assert getattr(parsed, name) == getattr(known[0], name)


async def test_other_heads_are_not_known() -> None:
    async with one_topic() as (registry, _, log):
        heads = ProduceHeads(registry)
        frame = frame_of({0: BATCH})
        remember(heads, frame, log)
        assert heads.find(frame_of({1: BATCH}), VERSION, 0) is None
        assert heads.find(frame_of({0: BATCH}, acks=1), VERSION, 0) is None
        assert heads.find(frame, VERSION + 1, 0) is None
        assert heads.find(frame_of({0: BATCH, 1: BATCH}), VERSION, 0) is None


async def test_batch_of_a_transaction_is_never_known() -> None:
    async with one_topic() as (registry, _, log):
        heads = ProduceHeads(registry)
        remember(heads, frame_of({0: BATCH}), log)
        marked = bytearray(BATCH)
        marked[FLAGS_AT] |= TRANSACTIONAL_BIT
        assert heads.find(frame_of({0: bytes(marked)}), VERSION, 0) is None


@pytest.mark.parametrize("size", [0, 1, FLAGS_AT])
async def test_records_without_attributes_are_not_known(size: int) -> None:
    async with one_topic() as (registry, _, log):
        heads = ProduceHeads(registry)
        remember(heads, frame_of({0: BATCH}), log)
        assert heads.find(frame_of({0: BATCH[:size]}), VERSION, 0) is None


async def test_change_of_a_topic_forgets() -> None:
    async with one_topic() as (registry, _, log):
        heads = ProduceHeads(registry)
        frame = frame_of({0: BATCH})
        remember(heads, frame, log)
        await registry.delete("t")
        await registry.create("t")
        assert heads.find(frame, VERSION, 0) is None


async def test_log_that_was_closed_is_not_known() -> None:
    async with one_topic() as (registry, _, log):
        heads = ProduceHeads(registry)
        frame = frame_of({0: BATCH})
        remember(heads, frame, log)
        await log.close()
        assert heads.find(frame, VERSION, 0) is None


async def test_refused_and_several_batches_are_not_remembered() -> None:
    async with one_topic() as (registry, topic, log):
        heads = ProduceHeads(registry)
        frame = frame_of({0: BATCH})
        remember(heads, frame, 3)
        assert heads.find(frame, VERSION, 0) is None
        both = frame_of({0: BATCH, 1: BATCH})
        remember(heads, both, log, await topic.open_partition(1))
        assert heads.find(both, VERSION, 0) is None


async def test_number_of_heads_is_limited() -> None:
    async with one_topic() as (registry, _, log):
        heads = ProduceHeads(registry)
        frame = frame_of({0: BATCH})
        for index in range(1, HEADS_MAX + 1):
            remember(heads, frame_of({index: BATCH}), log)
        remember(heads, frame, log)
        assert heads.find(frame, VERSION, 0) is not None
        assert heads.find(frame_of({1: BATCH}), VERSION, 0) is None
