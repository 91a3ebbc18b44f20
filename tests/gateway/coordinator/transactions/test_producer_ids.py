"""Producer ids are never given out twice."""

import asyncio

import pytest

from kledger.gateway.coordinator.transactions.producer_ids import (
    PRODUCER_ID_BLOCK_SIZE,
    ProducerIdBlock,
    ProducerIds,
)
from kledger.ledger import LedgerError, LedgerStore
from kledger.ledger.testing import FaultyEngine


def test_block_ends_where_it_says() -> None:
    block = ProducerIdBlock(0, 0)
    assert block.take() is None
    block.start_block(5_000)
    assert [5_000, 5_001] == [block.take(), block.take()]
    block.next_id = 5_000 + PRODUCER_ID_BLOCK_SIZE
    assert block.take() is None


def test_block_cannot_go_back() -> None:
    with pytest.raises(AssertionError):
        ProducerIdBlock(0, 2_000).start_block(1_000)


async def test_row_37_ids_go_on_over_blocks_without_repeating() -> None:
    async with LedgerStore.open(None) as store:
        ids = ProducerIds(store)
        given = [await ids.next_id() for _ in range(2 * PRODUCER_ID_BLOCK_SIZE + 1)]
    assert list(range(2 * PRODUCER_ID_BLOCK_SIZE + 1)) == given


async def test_row_37_restart_begins_behind_everything_given_out() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, engine=engine) as store:
        before = await ProducerIds(store).next_id()
    async with LedgerStore.open(None, engine=engine) as store:
        after = await ProducerIds(store).next_id()
    assert after >= before + 1


async def test_concurrent_requests_get_different_ids() -> None:
    async with LedgerStore.open(None) as store:
        ids = ProducerIds(store)
        given = await asyncio.gather(*(ids.next_id() for _ in range(PRODUCER_ID_BLOCK_SIZE + 500)))
    assert len(given) == len(set(given))


async def test_failed_reservation_gives_out_nothing_and_the_next_one_works() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, engine=engine) as store:
        ids = ProducerIds(store)
        engine.fail_next("commit")
        with pytest.raises(LedgerError):
            await ids.next_id()
        assert 0 == await ids.next_id()
