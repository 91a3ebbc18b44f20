"""Prefix offload: closed non-empty ledgers before a position; which position is returned."""

from kledger.ledger import (
    LedgerStore,
    Position,
)
from kledger.ledger.testing import MemoryTier
from tests.ledger.offload.words import (
    five,
    offloaded,
    read_all,
    reads,
)
from tests.ledger.words import numbers


async def test_prefix_offload_copies_closed_ledgers_and_returns_the_first_position_without_copy(
    store: LedgerStore, tier: MemoryTier
) -> None:
    ml = await five(store, tier)
    first, second, last = (info.ledger_id for info in ml.ledgers)
    assert Position(second, 0) == await ml.offload_prefix(Position(second, 1))
    assert [True, False, False] == offloaded(ml)
    assert Position(last, 0) == await ml.offload_prefix(Position(last, 0))
    assert [True, True, False] == offloaded(ml)
    assert [first, second] == tier.ledger_ids
    assert numbers(0, 4) == await read_all(ml)
    assert (0, 1, 4) == reads(ml)
