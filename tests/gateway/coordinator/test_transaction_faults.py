"""A fault at each step of a transaction: the client gets an error and can repeat the step."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kledger.gateway.coordinator.groups.group_offsets import GroupOffsets
from kledger.gateway.coordinator.groups.group_table import GroupTable
from kledger.gateway.coordinator.transactions import txn_state
from kledger.gateway.coordinator.transactions.producer_ids import ProducerIds
from kledger.gateway.coordinator.transactions.transaction_coordinator import MARKER_RETRY_MS
from kledger.gateway.coordinator.transactions.txn_record import TxnState
from kledger.ledger.record_table import RecordTable
from tests.contained import Contained
from tests.gateway.running import running_gateway, until
from tests.gateway.txn_client import TxnClient, committed, read, settled

UNAVAILABLE = 15
Step = Callable[[TxnClient], Awaitable[int]]


async def initialise(producer: TxnClient) -> int:
    return await producer.init()


async def add_partition(producer: TxnClient) -> int:
    return (await producer.add(0))[0]


async def add_group(producer: TxnClient) -> int:
    return await producer.add_group("g")


async def commit(producer: TxnClient) -> int:
    return await producer.end(commit=True)


STEPS: tuple[Step, ...] = (initialise, add_partition, add_group, commit)
FAULTS: list[tuple[Step, Any, str]] = [
    (initialise, ProducerIds, "next_id"),
    (initialise, txn_state, "initialise"),
    (initialise, RecordTable, "row"),
    (add_partition, txn_state, "add"),
    (add_partition, RecordTable, "row"),
    (add_group, txn_state, "add"),
    (add_group, RecordTable, "row"),
    (commit, txn_state, "end"),
    (commit, RecordTable, "row"),
    (commit, GroupOffsets, "end"),
]


def fail_once(patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    original = getattr(owner, name)

    def fails(*_: object, **__: object) -> object:
        patch.setattr(owner, name, original)
        raise RuntimeError("injected")

    patch.setattr(owner, name, fails)


@pytest.mark.parametrize(("failing", "owner", "name"), FAULTS)
async def test_failed_step_is_refused_and_can_be_repeated(
    failing: Step, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        for step in STEPS:
            if step is commit:
                assert 0 == await producer.produce()
                assert 0 == await producer.commit_offset("g", 7)
            if step is failing:
                fail_once(monkeypatch, owner, name)
                assert UNAVAILABLE == await asyncio.wait_for(step(producer), 60)
            assert 0 == await asyncio.wait_for(step(producer), 60)
        await settled(gateway)
        assert (0, 7) == await committed(client, "g", require_stable=True)
        found = await read(client)
        assert (2, 2, []) == (
            found.last_stable_offset,
            found.high_watermark,
            found.aborted_transactions or [],
        )
    assert ["a fault here closes transaction x"] == contained.messages


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (txn_state, "completed"),
        (RecordTable, "row"),
    ],
)
async def test_fault_behind_an_outcome_lets_the_next_transaction_begin(
    owner: Any, name: str, is_commit: bool, monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    """Its markers are written after MARKER_RETRY_MS, and no request waits for ever."""
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        for step in STEPS[:-1]:
            assert 0 == await step(producer)
        assert 0 == await producer.produce()
        assert 0 == await producer.commit_offset("g", 7)
        original, calls = getattr(owner, name), 0

        def fails(*arguments: Any, **options: Any) -> object:
            nonlocal calls
            calls += 1
            if calls == (2 if name == "row" else 1):
                raise RuntimeError("injected")
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, fails)
        assert 0 == await asyncio.wait_for(producer.end(commit=is_commit), 60)
        await until(lambda: bool(contained.messages))
        gateway.clock.advance(MARKER_RETRY_MS)
        complete = TxnState.COMPLETE_COMMIT if is_commit else TxnState.COMPLETE_ABORT
        record = gateway.services.transactions.record
        await until(lambda: (found := record("x")) is not None and found.state is complete)
        for step in STEPS[1:]:
            if step is commit:
                assert 0 == await producer.produce()
            assert 0 == await asyncio.wait_for(step(producer), 60)
        await settled(gateway)
        assert (0, 7 if is_commit else -1) == await committed(client, "g", require_stable=True)


async def test_fault_at_the_group_of_an_offset_leaves_no_request_waiting(
    monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    """The step never ended, and every later one of this transactional id waited for it."""
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        for step in STEPS[:-1]:
            assert 0 == await step(producer)
        fail_once(monkeypatch, GroupTable, "ensure")
        assert 0 == await asyncio.wait_for(producer.commit_offset("g", 7), 60)
        for step in (commit, add_partition, commit):
            assert 0 == await asyncio.wait_for(step(producer), 60)
        await settled(gateway)
        assert (0, 7) == await committed(client, "g", require_stable=True)
    assert ["a fault here closes group g"] == contained.messages


async def test_fault_in_aborting_a_timed_out_transaction_is_retried(
    monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        assert 0 == await producer.init(timeout_ms=5_000)
        assert 0 == await add_partition(producer)
        assert 0 == await producer.produce()
        fail_once(monkeypatch, txn_state, "abort_of")
        record = gateway.services.transactions.record

        def is_aborted() -> bool:
            gateway.clock.advance(5_000)
            found = record("x")
            return found is not None and found.state is TxnState.COMPLETE_ABORT

        await until(is_aborted)
        # By then the time of the clock may have closed the idle connection of the producer.
        async with gateway.client() as reader:
            assert 2 == (await read(reader)).last_stable_offset
    assert ["a fault here closes transaction x"] == contained.messages
