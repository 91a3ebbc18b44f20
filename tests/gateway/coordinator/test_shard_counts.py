"""The numbers of shards of a store are what they were when it was made."""

from typing import Final

import pytest

from kledger.gateway.coordinator import shard_counts
from kledger.gateway.coordinator.shard_counts import (
    COORDINATOR_SHARD_COUNT,
    SHARD_COUNT_MAX,
    encode_count,
    encode_count_key,
    load_shard_count,
)
from kledger.ledger import LedgerStore, UnreadableRow
from kledger.ledger.testing import FaultyEngine

OTHER: Final = 50


async def test_a_store_keeps_the_number_that_it_was_made_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, engine=engine) as store:
        assert 64 == COORDINATOR_SHARD_COUNT == load_shard_count(store, "groups")
        before = engine.calls["commit"]
        assert 0 == before, "the row costs no commit of its own"
    monkeypatch.setattr(shard_counts, "COORDINATOR_SHARD_COUNT", OTHER)
    async with LedgerStore.open(None, engine=engine) as store:
        assert [64, OTHER] == [load_shard_count(store, kind) for kind in ("groups", "transactions")]


async def test_the_row_is_lost_only_with_all_that_was_written_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, engine=engine) as store:
        load_shard_count(store, "groups")
        await store.put_rows([(b"anything", b"")])
        load_shard_count(store, "transactions")
        engine.drop_unsynced()
    monkeypatch.setattr(shard_counts, "COORDINATOR_SHARD_COUNT", OTHER)
    async with LedgerStore.open(None, engine=engine) as store:
        assert [64, OTHER] == [load_shard_count(store, kind) for kind in ("groups", "transactions")]


@pytest.mark.parametrize("count", [0, SHARD_COUNT_MAX + 1])
async def test_a_number_out_of_range_stops_the_start(count: int) -> None:
    async with LedgerStore.open(None) as store:
        await store.put_rows([(encode_count_key("groups"), encode_count(count))])
        with pytest.raises(UnreadableRow, match=f"'groups': expected 1 to 65536, got {count}"):
            load_shard_count(store, "transactions")
