"""The coordinator of transactions as a whole; rows 110, 125 and 126 of docs/SCENARIOS.md."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import pytest

from kledger.gateway.config import GatewayConfig
from kledger.gateway.coordinator.group_messages import RequestingMember
from kledger.gateway.coordinator.transactions import transaction_coordinator, txn_state
from kledger.gateway.coordinator.transactions.transaction_coordinator import (
    MARKER_RETRY_MS,
    TransactionCoordinator,
)
from kledger.gateway.coordinator.transactions.txn_record import TXN_KEY_PREFIX, TxnState
from kledger.gateway.coordinator.transactions.txn_state import InitProducerId, ProducerIdAndEpoch
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger.engine.errors import StorageWriteFailed
from kledger.ledger.testing import FaultyEngine
from kledger.offsets import NO_EXPIRY, CommittedOffset, TopicPartition
from tests.contained import Contained
from tests.gateway.running import RunningGateway, running_gateway, until
from tests.gateway.txn_client import TxnClient, committed, read, settled

HERE = TopicPartition("t", 0)
NO_MEMBER = RequestingMember("", -1)
SWEEP_MS = GatewayConfig().transaction_abort_timed_out_transaction_cleanup_interval_ms


def coordinator(gateway: RunningGateway) -> TransactionCoordinator:
    return gateway.services.transactions


def state(gateway: RunningGateway) -> TxnState:
    record = coordinator(gateway).record("x")
    assert record is not None
    return record.state


@asynccontextmanager
async def open_transaction(
    engine: FaultyEngine | None = None,
) -> AsyncIterator[tuple[RunningGateway, TxnClient]]:
    """A gateway with a record in an open transaction of `x`, and an offset of group `g`."""
    async with running_gateway(engine=engine) as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        assert 0 == await producer.init(timeout_ms=5_000)
        assert {0: 0} == await producer.add(0)
        assert 0 == await producer.add_group("g")
        assert 0 == await producer.produce()
        assert 0 == await producer.commit_offset("g", 7)
        yield gateway, producer


async def test_row_125_transaction_that_takes_too_long_is_aborted() -> None:
    async with open_transaction() as (gateway, producer):
        for _ in range(2):
            gateway.clock.advance(SWEEP_MS)
            await asyncio.sleep(0)
        await until(lambda: state(gateway) is TxnState.COMPLETE_ABORT)
        assert 2 == (await read(producer.client)).last_stable_offset
        assert (0, -1) == await committed(producer.client, "g", require_stable=True)
        assert 47 == await producer.produce(b"late")
        assert 90 == await producer.end(commit=True)


async def test_transaction_within_its_timeout_continues() -> None:
    async with open_transaction() as (gateway, producer):
        gateway.clock.advance(4_999)
        assert 0 == await producer.produce()
        assert 0 == await producer.end(commit=True)


async def test_idle_transactional_ids_are_forgotten_open_ones_are_not() -> None:
    config = GatewayConfig(
        transactional_id_expiration_ms=1_000,
        transaction_remove_expired_transaction_cleanup_interval_ms=1_000,
        transaction_max_timeout_ms=1 << 30,
    )
    async with running_gateway(config) as gateway, gateway.client() as client:
        await gateway.create_topic()
        idle, busy = TxnClient(client, "idle"), TxnClient(client, "busy")
        for each in (idle, busy):
            await each.init(timeout_ms=1 << 30)
        await busy.add(0)
        gateway.clock.advance(1_000)
        await until(lambda: coordinator(gateway).record("idle") is None)
        assert coordinator(gateway).record("busy") is not None
        assert 49 == await idle.end(commit=True)
        await gateway.services.store.flush()
        assert 1 == len(gateway.services.store.scan_rows(TXN_KEY_PREFIX))


async def test_ids_of_failed_requests_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_coordinator, "TRANSACTIONAL_IDS_MAX", 1)
    async with running_gateway() as gateway, gateway.client() as client:
        gateway.engine.fail_next("commit")
        assert 15 == await TxnClient(client, "not stored").init()
        assert 0 == await TxnClient(client, "stored").init()
        assert 44 == await TxnClient(client, "one more").init()
        assert 0 == await TxnClient(client, "stored").init()


async def test_ids_that_begin_together_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_coordinator, "TRANSACTIONAL_IDS_MAX", 2)
    async with running_gateway() as gateway:
        requests = [InitProducerId(name, 1_000) for name in ("a", "b", "c")]
        outcomes = await asyncio.gather(*map(coordinator(gateway).initialise, requests))
        assert [0, 0, 44] == [error for error, _ in outcomes]


CRASHES: list[tuple[Literal["commit", "sync"], int]] = [
    (moment, later) for later in range(4) for moment in ("commit", "sync")
]


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize(("moment", "later"), CRASHES)
async def test_row_126_crash_at_every_step_of_an_end(
    moment: Literal["commit", "sync"], later: int, is_commit: bool
) -> None:
    """After a kill at any point a reported outcome holds, and nothing hangs."""
    engine = FaultyEngine(None)
    async with open_transaction(engine) as (_, producer):
        for _ in range(later):
            engine.delay_next(moment, 0)
        hold = engine.hold_next(moment)
        ending = asyncio.ensure_future(producer.end(commit=is_commit))
        reaching = asyncio.ensure_future(hold.reached())
        await asyncio.wait([ending, reaching], return_when=asyncio.FIRST_COMPLETED)
        was_answered = ending.done() and ending.result() == 0
        engine.drop_unsynced()
        reaching.cancel()
        ending.cancel()
        await asyncio.gather(ending, reaching, return_exceptions=True)
    async with running_gateway(engine=engine) as gateway, gateway.client() as client:
        producer.client = client
        await until(lambda: not state(gateway).is_prepared)
        if state(gateway) is TxnState.ONGOING:
            assert not was_answered, "a reported outcome was lost"
            assert 0 == await producer.end(commit=is_commit)
            await until(lambda: state(gateway).is_idle)
        found = await read(client)
        assert found.last_stable_offset == found.high_watermark >= 2
        assert (0 if is_commit else 1) == len(found.aborted_transactions or ())
        expected = 7 if is_commit else -1
        assert (0, expected) == await committed(client, "g", require_stable=True)
        assert {0: 0} == await producer.add(0), "the next transaction begins"
        assert 0 == await producer.produce()
        assert 0 == await producer.end(commit=True)


async def test_markers_that_could_not_be_written_are_written_later() -> None:
    async with open_transaction() as (gateway, producer):
        engine = gateway.engine
        hold = engine.hold_next("commit")
        ending = asyncio.ensure_future(producer.end(commit=True))
        await hold.reached()
        engine.fail_next("commit", StorageWriteFailed("full"))
        hold.release()
        assert 0 == await ending
        await until(lambda: "x" not in coordinator(gateway)._locks)
        assert TxnState.PREPARE_COMMIT is state(gateway)
        timers = len(coordinator(gateway)._timers)
        for _ in range(3):
            assert {0: 51} == await producer.add(0)
            assert TxnState.PREPARE_COMMIT is state(gateway), "who asks again hurries nothing"
        assert timers == len(coordinator(gateway)._timers)
        gateway.clock.advance(MARKER_RETRY_MS)
        await until(lambda: state(gateway) is TxnState.COMPLETE_COMMIT)
        assert 2 == (await read(producer.client)).last_stable_offset
        assert timers - 1 == len(coordinator(gateway)._timers)


async def test_only_markers_that_were_refused_are_written_again() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        topic = await gateway.services.registry.create("t", partitions=3)
        logs = [await topic.open_partition(index) for index in (0, 2)]
        producer = TxnClient(client)
        await producer.init()
        await producer.add(0, 1, 2)
        engine = gateway.engine
        hold = engine.hold_next("commit")
        ending = asyncio.ensure_future(producer.end(commit=True))
        await hold.reached()
        engine.fail_next("commit")
        hold.release()
        assert 0 == await ending
        for _ in range(3):
            await until(lambda: "x" not in coordinator(gateway)._locks)
            record = coordinator(gateway).record("x")
            assert record is not None
            assert TxnState.PREPARE_COMMIT is record.state
            assert {TopicPartition("t", 1)} == record.partitions
            assert [1, 1] == [log.high_watermark for log in logs]
            engine.fail_next("commit")
            gateway.clock.advance(MARKER_RETRY_MS)
            await until(lambda: "x" in coordinator(gateway)._locks)
        await until(lambda: "x" not in coordinator(gateway)._locks)
        gateway.clock.advance(MARKER_RETRY_MS)
        await settled(gateway)
        logs.append(await topic.open_partition(1))
        assert [1, 1, 1] == [log.high_watermark for log in logs]


async def test_a_step_completes_when_its_request_is_cancelled() -> None:
    async with open_transaction() as (gateway, producer):
        identity = ProducerIdAndEpoch(producer.producer_id, producer.epoch)
        hold = gateway.engine.hold_next("commit")
        ending = asyncio.ensure_future(coordinator(gateway).end("x", identity, is_commit=True))
        await hold.reached()
        ending.cancel()
        hold.release()
        await until(lambda: state(gateway) is TxnState.COMPLETE_COMMIT)


async def test_a_commit_behind_the_end_of_a_transaction_stays() -> None:
    """Memory says what the rows say: both were stored, the commit last."""
    async with open_transaction() as (gateway, producer):
        offsets = gateway.services.groups.offsets
        topic = gateway.services.registry.get("t")
        assert topic is not None
        later = CommittedOffset(9, -1, "", 1, NO_EXPIRY, topic.id)
        hold = gateway.engine.hold_next("commit")
        first = asyncio.ensure_future(offsets.commit("other", NO_MEMBER, [(HERE, later)]))
        await hold.reached()
        identity = ProducerIdAndEpoch(producer.producer_id, producer.epoch)
        ending = asyncio.ensure_future(coordinator(gateway).end("x", identity, is_commit=True))
        await until(lambda: "x" in coordinator(gateway)._locks)
        behind = asyncio.ensure_future(offsets.commit("g", NO_MEMBER, [(HERE, later)]))
        await asyncio.sleep(0)
        hold.release()
        await asyncio.gather(first, ending, behind)
        assert (0, 9) == await committed(producer.client, "g", require_stable=True)


async def test_topic_that_is_deleted_meanwhile_keeps_nothing_open() -> None:
    async with open_transaction() as (gateway, producer):
        await gateway.services.registry.delete("t")
        assert 0 == await producer.end(commit=True)
        await until(lambda: state(gateway) is TxnState.COMPLETE_COMMIT)


@pytest.mark.parametrize("is_commit", [True, False])
async def test_topic_that_is_terminated_meanwhile_can_be_read(is_commit: bool) -> None:
    async with open_transaction() as (gateway, producer):
        topic = gateway.services.registry.get("t")
        assert topic is not None
        await (await topic.open_partition(0)).terminate()
        assert 0 == (await read(producer.client)).last_stable_offset
        assert 0 == await producer.end(commit=is_commit)
        await settled(gateway)
        found = await read(producer.client)
        assert (1, 1) == (found.last_stable_offset, found.high_watermark)
        assert (0 if is_commit else 1) == len(found.aborted_transactions or ())


async def test_topic_that_is_terminated_can_be_read_when_the_transaction_times_out() -> None:
    async with open_transaction() as (gateway, producer):
        topic = gateway.services.registry.get("t")
        assert topic is not None
        await (await topic.open_partition(0)).terminate()
        for _ in range(2):
            gateway.clock.advance(SWEEP_MS)
            await asyncio.sleep(0)
        await until(lambda: state(gateway) is TxnState.COMPLETE_ABORT)
        assert 1 == (await read(producer.client)).last_stable_offset


async def test_closed_coordinator_lets_all_members_rejoin() -> None:
    async with open_transaction() as (gateway, producer):
        closed = coordinator(gateway)
        identity = ProducerIdAndEpoch(producer.producer_id, producer.epoch)
        closed.close()
        unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert unavailable == (await closed.initialise(InitProducerId("y", 1)))[0]
        assert unavailable == await closed.add("x", identity, partitions=[HERE])
        assert unavailable == (await closed.end("x", identity, is_commit=True))[0]


async def test_step_of_a_transaction_that_fails_is_answered_and_can_be_taken_again(
    monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    """It ended the server."""
    async with open_transaction() as (gateway, producer):
        end = txn_state.end

        def fails(*_: object, **__: object) -> None:
            monkeypatch.setattr(txn_state, "end", end)
            raise RuntimeError("injected")

        monkeypatch.setattr(txn_state, "end", fails)
        assert 15 == await producer.end(commit=True)
        assert 0 == await producer.end(commit=True)
        await settled(gateway)
    assert ["a fault here closes transaction x"] == contained.messages


async def test_markers_of_an_outcome_are_written_later_when_that_fails(
    monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    """The outcome is durable already: it must not be left without its markers."""
    async with open_transaction() as (gateway, producer):
        completed = txn_state.completed

        def fails(*_: object, **__: object) -> None:
            monkeypatch.setattr(txn_state, "completed", completed)
            raise RuntimeError("injected")

        monkeypatch.setattr(txn_state, "completed", fails)
        assert 0 == await producer.end(commit=True)
        await until(lambda: bool(contained.messages))
        assert TxnState.PREPARE_COMMIT is state(gateway)
        gateway.clock.advance(MARKER_RETRY_MS)
        await until(lambda: state(gateway) is TxnState.COMPLETE_COMMIT)
        assert {0: 0} == await producer.add(0)
    assert ["a fault here closes transaction x"] == contained.messages
