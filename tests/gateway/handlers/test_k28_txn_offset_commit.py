"""TxnOffsetCommit; rows 101 and 122 of docs/SCENARIOS.md."""

import pytest

from kledger.ledger.testing import FaultyEngine
from tests.gateway.running import running_gateway
from tests.gateway.txn_client import NEW, OLD, TxnClient, committed


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("commit", [True, False])
async def test_row_122_offsets_end_with_the_transaction(version: int, commit: bool) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        await producer.init()
        if version < 5:
            await producer.add_group("g")
        assert 0 == await producer.commit_offset("g", 7, version=version)
        assert (0, -1) == await committed(client, "g")
        assert (88, -1) == await committed(client, "g", require_stable=True)
        end_version = NEW if version >= 5 else OLD
        assert 0 == await producer.end(commit=commit, version=end_version)
        expected = 7 if commit else -1
        assert (0, expected) == await committed(client, "g", require_stable=True)


async def test_row_101_the_last_stable_offset_is_seen_meanwhile() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        await producer.init()
        for offset in (3, 9):
            await producer.add_group("g")
            await producer.commit_offset("g", offset)
            if offset == 3:
                await producer.end(commit=True)
        assert (0, 3) == await committed(client, "g")
        assert 88 == (await committed(client, "g", require_stable=True))[0]


@pytest.mark.parametrize("commit", [True, False])
async def test_offsets_of_an_open_transaction_survive_a_crash(commit: bool) -> None:
    engine = FaultyEngine(None)
    async with running_gateway(engine=engine) as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        await producer.init()
        await producer.add_group("g")
        await producer.commit_offset("g", 7)
    engine.drop_unsynced()
    async with running_gateway(engine=engine) as gateway, gateway.client() as client:
        producer.client = client
        assert 88 == (await committed(client, "g", require_stable=True))[0]
        assert 0 == await producer.end(commit=commit)
        assert (0, 7 if commit else -1) == await committed(client, "g", require_stable=True)
    async with running_gateway(engine=engine) as gateway, gateway.client() as client:
        assert (0, 7 if commit else -1) == await committed(client, "g", require_stable=True)


async def test_what_cannot_be_is_refused() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        assert 49 == await producer.commit_offset("g", 7)
        await producer.init()
        assert 48 == await producer.commit_offset("g", 7), "the group was not added"
        await producer.add_group("g")
        assert 3 == await producer.commit_offset("g", 7, partition=5)
        assert 24 == await producer.commit_offset("", 7)
        assert 22 == await producer.commit_offset("g", 7, generation_id=3, member_id="m")
        producer.epoch += 1
        assert 47 == await producer.commit_offset("g", 7)


@pytest.mark.parametrize(("version", "error"), [(3, 48), (4, 120)])
async def test_group_that_was_not_added_has_a_code_of_its_own(version: int, error: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        await producer.init()
        assert error == await producer.commit_offset("g", 7, version=version)


@pytest.mark.parametrize("version", [0, 4, 5])
async def test_fenced_producer_gets_the_old_error_code(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        producer = TxnClient(client)
        await producer.init()
        await producer.add_group("g")
        producer.epoch -= 1
        assert 47 == await producer.commit_offset("g", 7, version=version)
