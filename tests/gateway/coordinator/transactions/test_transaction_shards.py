"""Shards of transactional ids move, and transactions end in groups that are served elsewhere."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kledger.gateway.coordinator.coordinator_shards_state import shard_of
from kledger.gateway.coordinator.shard_counts import COORDINATOR_SHARD_COUNT
from kledger.gateway.coordinator.transactions.transaction_coordinator import MARKER_RETRY_MS
from kledger.gateway.coordinator.transactions.txn_record import (
    TxnRecord,
    TxnState,
    decode_txn,
    encode_txn_key,
)
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger.testing import FaultyEngine
from kledger.offsets import TopicPartition
from tests.gateway.running import RunningGateway, running_gateway, until
from tests.gateway.txn_client import TxnClient, committed, read, settled

G, X = ([shard_of(key, COORDINATOR_SHARD_COUNT)] for key in "gx")
NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR


@asynccontextmanager
async def open_transaction(
    engine: FaultyEngine | None = None,
) -> AsyncIterator[tuple[RunningGateway, TxnClient]]:
    """A gateway with a record in an open transaction of `x`, and offsets of `g` and `h`."""
    async with running_gateway(engine=engine) as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        assert 0 == await producer.init()
        assert {0: 0} == await producer.add(0)
        assert 0 == await producer.produce()
        for group, offset in (("g", 7), ("h", 8)):
            assert 0 == await producer.add_group(group)
            assert 0 == await producer.commit_offset(group, offset)
        yield gateway, producer


def record(gateway: RunningGateway) -> TxnRecord:
    found = gateway.services.transactions.record("x")
    assert found is not None
    return found


@pytest.mark.parametrize("is_commit", [True, False])
async def test_an_end_waits_for_a_group_that_is_served_elsewhere(is_commit: bool) -> None:
    """Its other group and its partitions take the outcome at once."""
    async with open_transaction() as (gateway, producer):
        groups = gateway.services.groups
        await groups.detach(G)
        assert 0 == await producer.end(commit=is_commit)
        expected = 8 if is_commit else -1
        assert (0, expected) == await committed(producer.client, "h", require_stable=True)
        await until(lambda: not record(gateway).partitions)
        assert 2 == (await read(producer.client)).last_stable_offset
        assert {"g"} == record(gateway).groups
        assert 51 == await producer.end(commit=is_commit)

        await groups.attach(G)
        assert (
            ErrorCode.UNSTABLE_OFFSET_COMMIT
            == (await committed(producer.client, "g", require_stable=True))[0]
        )
        gateway.clock.advance(MARKER_RETRY_MS)
        await settled(gateway)
        expected = 7 if is_commit else -1
        assert (0, expected) == await committed(producer.client, "g", require_stable=True)


async def test_an_outcome_reaches_a_group_elsewhere_over_a_crash() -> None:
    engine = FaultyEngine(None)
    async with open_transaction(engine) as (gateway, producer):
        await gateway.services.groups.detach(G)
        assert 0 == await producer.end(commit=True)
        engine.drop_unsynced()
    async with running_gateway(engine=engine) as gateway, gateway.client() as client:
        await settled(gateway)
        for group, offset in (("g", 7), ("h", 8)):
            assert (0, offset) == await committed(client, group, require_stable=True)


async def test_an_end_whose_groups_are_all_here_is_one_write() -> None:
    """The outcome, and the offsets of both groups; markers follow in the next."""
    engine = FaultyEngine(None)
    async with open_transaction(engine) as (gateway, producer):
        hold = engine.hold_next("sync")
        ending = asyncio.ensure_future(producer.end(commit=True))
        await hold.reached()
        assert TxnState.ONGOING is record(gateway).state
        after = engine.hold_next("sync")
        hold.release()
        assert 0 == await ending
        assert not record(gateway).groups
        for group, offset in (("g", 7), ("h", 8)):
            assert (0, offset) == await committed(producer.client, group, require_stable=True)
        after.release()


async def test_a_step_under_way_is_finished_before_its_shard_moves() -> None:
    engine = FaultyEngine(None)
    async with open_transaction(engine) as (gateway, producer):
        transactions = gateway.services.transactions
        hold = engine.hold_next("commit")
        ending = asyncio.ensure_future(producer.end(commit=True))
        await hold.reached()
        detaching = asyncio.ensure_future(transactions.detach(X))
        async with gateway.client() as client:
            other = TxnClient(client)
            assert NOT_COORDINATOR == await other.init()
            assert [] == transactions.records()
            hold.release()
            assert 0 == await ending
            await detaching
            assert transactions.record("x") is None
            await transactions.attach(X)
            await settled(gateway)
            assert TxnState.COMPLETE_COMMIT is record(gateway).state
            assert 2 == (await read(client)).high_watermark, "one marker, not two"


async def test_a_completion_that_was_written_lazily_is_durable_before_its_shard_moves() -> None:
    async with open_transaction() as (gateway, producer):
        assert 0 == await producer.end(commit=True)
        await settled(gateway)
        store = gateway.services.store
        key = encode_txn_key("x")
        await gateway.services.transactions.detach(X)
        row = store.get_row(key)
        assert row is not None
        assert TxnState.COMPLETE_COMMIT is decode_txn(key, row).state


async def test_a_step_that_waits_is_sent_elsewhere() -> None:
    engine = FaultyEngine(None)
    async with open_transaction(engine) as (gateway, producer):
        hold = engine.hold_next("commit")
        ending = asyncio.ensure_future(producer.end(commit=True))
        await hold.reached()
        async with gateway.client() as client:
            other = TxnClient(client)
            waiting = asyncio.ensure_future(other.init())
            await gateway.parked()
            await until(lambda: _waiting_steps(gateway) == 2)
            detaching = asyncio.ensure_future(gateway.services.transactions.detach(X))
            await asyncio.sleep(0)
            hold.release()
            assert [0, NOT_COORDINATOR] == [await ending, await waiting]
            await detaching


def _waiting_steps(gateway: RunningGateway) -> int:
    tasks = asyncio.all_tasks()
    return sum(task.get_name() == "transaction x" for task in tasks)


async def test_an_outcome_without_markers_is_completed_where_its_shard_is_attached() -> None:
    async with open_transaction() as (gateway, producer):
        transactions = gateway.services.transactions
        await gateway.services.groups.detach(G)
        assert 0 == await producer.end(commit=True)
        await until(lambda: not record(gateway).partitions)
        await transactions.detach(X)
        await gateway.services.groups.attach(G)
        gateway.clock.advance(2 * MARKER_RETRY_MS)
        offsets = gateway.services.groups.offsets
        assert offsets.is_unstable("g", TopicPartition("t", 0)), (
            "nobody coordinates this transaction"
        )
        await transactions.attach(X)
        await settled(gateway)
        assert (0, 7) == await committed(producer.client, "g", require_stable=True)


async def test_the_next_transaction_continues_after_a_move() -> None:
    async with open_transaction() as (gateway, producer):
        transactions = gateway.services.transactions
        await transactions.detach(X)
        assert NOT_COORDINATOR == await producer.end(commit=True)
        await transactions.attach(X)
        assert 0 == await producer.end(commit=True)
        await settled(gateway)
        assert {0: 0} == await producer.add(0)
        await transactions.detach(X)
        await transactions.attach(X)
        assert 0 == await producer.produce(b"second")
        assert 0 == await producer.end(commit=False)
