"""Folders that earlier programs have written: each version of the rows of ledgers opens.

The archives have the same five entries in ledgers 2, 3 and 4, and a cursor behind the third. Rows
of version 1 know no tiers; in the other archive, ledger 2 is only in the tier, and ledger 3 there,
too.
"""

import tarfile
from pathlib import Path
from uuid import UUID

import pytest

from kledger.ledger import EARLIEST, LedgerStore, ManagedLedger, Position
from kledger.ledger.engine.base import StorageEngine
from kledger.ledger.inspection import StoppedStore
from kledger.ledger.metadata import keys
from kledger.ledger.metadata.records import decode_managed_ledger
from kledger.ledger.testing import MemoryTier, MemoryTiers
from tests.ledger.offload.words import (
    COLD_STORE,
    offload_all,
    offloaded,
    primary_deleted,
    read_all,
    reads,
    tiered,
)
from tests.ledger.words import nothing_wrong, numbers

ARCHIVES = Path(__file__).parents[1] / "data"
COPIES = {
    (2, UUID("0a9e7eb0-db6b-411a-8efe-cdc444a124aa")): [b"0", b"1"],
    (3, UUID("01da1a0b-0c11-4a07-adfa-e6647e8bb76e")): [b"2", b"3"],
}
"""What the tier of the second archive has."""


def extracted(version: int, folder: Path) -> Path:
    with tarfile.open(ARCHIVES / f"store-ledger-rows-{version}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def versions(engine: StorageEngine) -> set[int]:
    """The versions of the rows of ledgers, which are the first bytes."""
    (_, head), *_ = engine.scan(*keys.managed_ledger_range())
    ledgers = keys.ledger_range(decode_managed_ledger(head).managed_ledger_id)
    return {row[0] for _, row in engine.scan(*ledgers)}


async def opened(store: LedgerStore, tier: MemoryTier) -> ManagedLedger:
    ml = await store.open_managed_ledger("orders", config=tiered(tier))
    assert numbers(0, 4) == [bytes(each) for each in await read_all(ml)]
    assert {"owner": "sales"} == ml.properties
    cursor = await ml.open_cursor("reader")
    assert Position(3, 0) == cursor.mark_delete_position
    return ml


async def test_rows_of_version_1_open_and_are_offloaded(tmp_path: Path) -> None:
    tier = MemoryTier()
    folder = extracted(1, tmp_path)
    async with LedgerStore.open(folder, config=COLD_STORE, offloaders=MemoryTiers(tier)) as store:
        assert {1} == versions(store._engine)
        ml = await opened(store, tier)
        assert not any(offloaded(ml))
        await offload_all(ml)
        await ml.delete_primaries([2])
    async with LedgerStore.open(folder, config=COLD_STORE, offloaders=MemoryTiers(tier)) as store:
        assert 2 in versions(store._engine)
        ml = await opened(store, tier)
        assert [True, False] == primary_deleted(ml)[:2]
        assert reads(ml)[2] > 0


async def test_rows_of_version_2_open_with_their_copies(tmp_path: Path) -> None:
    tier = MemoryTier()
    for (ledger_id, attempt), entries in COPIES.items():
        tier.add_copy(ledger_id, attempt, entries)
    folder = extracted(2, tmp_path)
    async with LedgerStore.open(folder, config=COLD_STORE, offloaders=MemoryTiers(tier)) as store:
        assert {2} == versions(store._engine)
        ml = await opened(store, tier)
        assert [True, False] == primary_deleted(ml)[:2]
        assert [True, True] == offloaded(ml)[:2]
        assert 4 == reads(ml)[2]
        assert [b"0"] == [bytes(each.data) for each in await ml.read_entries(EARLIEST, 1)]


@pytest.mark.parametrize("version", [1, 2])
def test_stopped_stores_of_each_version_are_whole(tmp_path: Path, version: int) -> None:
    with StoppedStore(extracted(version, tmp_path)) as store:
        orders = store.find("orders")
        assert orders is not None
        assert 5 == orders.entries
        assert [] == store.verify(orders, nothing_wrong).problems
