"""EndTxn; rows of docs/SCENARIOS.md."""

import asyncio

import pytest

from kledger.batches.reader import iterate_batches, iterate_records
from kledger.gateway.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.gateway.running import fetch, running_gateway
from tests.gateway.txn_client import NEW, OLD, TxnClient, read, settled
from tests.gateway.wire_client import WireClient


async def seen(client: WireClient) -> list[bytes | None]:
    """Values that a careful reader hands on."""
    found = await read(client)
    aborted = {(one.producer_id, one.first_offset) for one in found.aborted_transactions or ()}
    skipped: set[int] = set()
    values = []
    for header, batch in iterate_batches(bytes(found.records or b"")):
        skipped |= {who for who, first in aborted if first == header.base_offset}
        if header.is_control:
            skipped.discard(header.producer_id)
        elif header.producer_id not in skipped:
            values += [record.value for record in iterate_records(batch)]
    return values


@pytest.mark.parametrize("version", range(6))
async def test_row_117_committed_is_seen_and_aborted_is_not(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer, produce_version = TxnClient(client), 12 if version >= NEW else 11
        await producer.init()
        for value, commit in ((b"a", True), (b"b", False), (b"c", True)):
            if version < NEW:
                await producer.add(0)
            assert 0 == await producer.produce(value, version=produce_version)
            assert 0 == await producer.end(commit=commit, version=version)
        await settled(gateway)
        assert [b"a", b"c"] == await seen(client)
        everything = await read(client, committed_only=False)
        assert (6, 6) == (everything.high_watermark, everything.last_stable_offset)
        assert everything.aborted_transactions is None


async def test_row_117_producers_interleaved() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        good, bad = TxnClient(client, "good"), TxnClient(client, "bad")
        for each in (good, bad):
            await each.init()
            await each.add(0)
        for value in (b"1", b"2"):
            await bad.produce(b"-" + value)
            await good.produce(value)
        assert 0 == await good.end(commit=True)
        await settled(gateway)
        assert [] == await seen(client), "held back by the other one"
        assert 0 == await bad.end(commit=False)
        await settled(gateway)
        assert [b"1", b"2"] == await seen(client)


async def test_row_119_aborted_list_has_what_overlaps() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        await producer.init()
        await producer.add(0)
        for _ in range(3):
            await producer.produce()
        await producer.end(commit=False)
        await settled(gateway)
        for offset in range(4):
            found = await read(client, offset)
            assert found.aborted_transactions is not None
            (one,) = found.aborted_transactions
            assert (producer.producer_id, 0) == (one.producer_id, one.first_offset)
        assert [] == (await read(client, 4)).aborted_transactions


@pytest.mark.parametrize("commit", [True, False])
async def test_row_120_one_poll_of_a_log_that_ends_with_a_marker_reaches_its_end(
    commit: bool,
) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        await producer.init()
        await producer.add(0)
        await producer.produce()
        await producer.end(commit=commit)
        await settled(gateway)
        polled = list(iterate_batches(bytes((await read(client)).records or b"")))
        assert [False, True] == [header.is_control for header, _ in polled]
        for isolation_level in (0, 1):
            asked = ListOffsetsPartition(timestamp=-1)
            ends = ListOffsetsRequest(
                isolation_level=isolation_level,
                topics=[ListOffsetsTopic(name="t", partitions=[asked])],
            )
            (end,) = (await client.ask(ends, 7)).topics[0].partitions
            assert polled[-1][0].last_offset + 1 == end.offset == 2


@pytest.mark.parametrize("commit", [True, False])
async def test_row_121_a_careful_fetch_waits_for_the_marker(commit: bool) -> None:
    async with running_gateway() as gateway, gateway.client() as client, gateway.client() as reader:
        await gateway.create_topic()
        producer = TxnClient(client)
        await producer.init()
        await producer.add(0)
        await producer.produce(b"first")
        reader.send(fetch({0: 0}, max_wait_ms=60_000, min_bytes=1, isolation_level=1), 11)
        answer = asyncio.ensure_future(reader.receive())
        await producer.produce(b"second")
        for _ in range(100):
            await asyncio.sleep(0)
        assert not answer.done()
        await producer.end(commit=commit)
        (found,) = (await answer).responses[0].partitions
        headers = [header for header, _ in iterate_batches(bytes(found.records))]
        assert [False, False, True] == [header.is_control for header in headers]
        assert [] == found.aborted_transactions if commit else found.aborted_transactions


async def test_row_123_repeated_end_of_a_rising_epoch() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        await producer.init()
        await producer.produce(version=12)
        before = producer.epoch
        assert 0 == await producer.end(commit=True, version=NEW)
        assert before + 1 == producer.epoch
        producer.epoch = before
        assert 48 == await producer.end(commit=False, version=NEW)
        assert 0 == await producer.end(commit=True, version=NEW)
        assert before + 1 == producer.epoch


async def test_row_124_the_next_transaction_may_begin_at_once() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        await producer.init()
        for _ in range(5):
            assert {0: 0} == await producer.add(0)
            assert 0 == await producer.produce()
            assert 0 == await producer.end(commit=True)
            assert 0 == await producer.end(commit=True), "the same end again"


async def test_what_cannot_be_is_refused() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        assert 49 == await producer.end(commit=True)
        await producer.init()
        for version in (OLD, NEW):
            assert 48 == await producer.end(commit=True, version=version)
        await producer.add(0)
        producer.epoch += 1
        assert [90, 47] == [await producer.end(commit=True, version=one) for one in (2, 1)]
        producer.transactional_id = ""
        assert 42 == await producer.end(commit=True)


async def test_outcome_that_was_not_stored_is_no_outcome() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        await producer.init()
        await producer.add(0)
        await producer.produce()
        gateway.engine.fail_next("commit")
        assert 15 == await producer.end(commit=True)
        assert 0 == (await read(client)).last_stable_offset
        assert 0 == await producer.end(commit=False), "it can still be aborted"
        await settled(gateway)
        assert 2 == (await read(client)).last_stable_offset
