"""What the tiers of a stopped store should have, and what is wrong with a copy."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kledger.ledger import Entry, LedgerStore, Position, TierUnavailable
from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.engine.log_rocksdb import LogRocksdbEngine
from kledger.ledger.inspection import (
    LedgerRecord,
    Problem,
    StoppedStore,
    TierListing,
    check_copy,
    inspect_folder,
)
from kledger.ledger.metadata import keys
from kledger.ledger.testing import MemoryTier, MemoryTiers
from tests.ledger.offload.words import ATTEMPT, five, offload_all
from tests.ledger.words import nothing_wrong, numbers


@dataclass(frozen=True)
class Tiered:
    """A stopped store with `orders`: ledger 2 only in the tier, 3 in both, 4 in the storage; of
    `gone` two copies have still to be deleted.
    """

    folder: Path
    tier: MemoryTier

    def listing(self) -> TierListing:
        with StoppedStore(self.folder) as store:
            return store.tier_listing()


@pytest.fixture
async def tiered(tmp_path: Path, tier: MemoryTier) -> Tiered:
    async with LedgerStore.open(tmp_path, offloaders=MemoryTiers(tier)) as store:
        ml = await five(store, tier)
        await offload_all(ml)
        await ml.delete_primaries([ml.ledgers[0].ledger_id])
        await ml.close()
        gone = await five(store, tier, name="gone")
        await offload_all(gone)
        tier.is_down = True
        await store.delete_managed_ledger("gone")
    tier.is_down = False
    return Tiered(tmp_path, tier)


@pytest.fixture
def tier() -> MemoryTier:
    return MemoryTier()


def test_copies_and_deletions_are_listed(tiered: Tiered) -> None:
    listing = tiered.listing()
    assert [("orders", 2, True), ("orders", 3, False)] == [
        (each.managed_ledger, each.record.ledger_id, each.copy.primary_deleted)
        for each in listing.copies
    ]
    assert 2 == len(listing.deletions)
    assert {attempt for _, attempt in tiered.tier.copies} == listing.attempts


def test_a_store_with_ledgers_in_the_tier_alone_is_whole(tiered: Tiered) -> None:
    found: list[tuple[Position, bytes | None]] = []

    def check(name: str, position: Position, data: bytes | None) -> str | None:
        found.append((position, data))
        return None

    assert [] == inspect_folder(tiered.folder, check_entry=check).problems
    assert [None, b"2", b"3", b"4"] == [data for _, data in found]


def test_entries_that_only_the_tier_has_are_named(tiered: Tiered) -> None:
    with StoppedStore(tiered.folder) as store:
        orders = store.find("orders")
        assert orders is not None
        problem, *entries = store.entries(orders)
        assert isinstance(problem, Problem)
        assert "entries 0 to 1 are in tier memory" == problem.reason
        assert 3 == len(entries)
        assert 5 == orders.entries


def test_entries_that_only_the_tier_has_are_read_from_it(tiered: Tiered) -> None:
    def read(record: LedgerRecord, first: int) -> Iterator[bytes]:
        (entries,) = (each for key, each in tiered.tier.copies.items() if key[0] == 2)
        assert 2 == record.ledger_id
        yield from entries[first:]

    with StoppedStore(tiered.folder) as store:
        store.read_tier = read
        orders = store.find("orders")
        assert orders is not None
        entries = [*store.entries(orders)]
        assert numbers(0, 4) == [each.data for each in entries if isinstance(each, Entry)]
        (found, *_) = store.entries(orders, Position(2, 1))
        assert found == Entry(Position(2, 1), b"1")


def test_a_copy_that_breaks_off_is_reported_from_there(tiered: Tiered) -> None:
    def read(record: LedgerRecord, first: int) -> Iterator[bytes]:
        yield b"0"
        raise TierUnavailable("the link is down")

    with StoppedStore(tiered.folder) as store:
        store.read_tier = read
        orders = store.find("orders")
        assert orders is not None
        first, problem, *others = store.entries(orders)
    assert Entry(Position(2, 0), b"0") == first
    assert isinstance(problem, Problem)
    assert (2, 1) == (problem.ledger_id, problem.entry_id)
    assert (
        "entries 1 to 1 are in tier memory and cannot be read: the link is down" == problem.reason
    )
    assert 3 == len(others)


async def test_whole_copies_are_whole(tiered: Tiered) -> None:
    datas = []
    for listed in tiered.listing().copies:
        assert None is await check_copy(listed, tiered.tier)
        assert None is await check_copy(
            listed, tiered.tier, lambda name, position, data: datas.append(data)
        )
    assert numbers(0, 3) == datas


async def test_what_is_wrong_with_a_copy_is_said(tiered: Tiered) -> None:
    first, second = tiered.listing().copies
    copies, key = tiered.tier.copies, (first.record.ledger_id, first.copy.attempt)
    copies[key].append(b"more")
    assert "the copy has 3 entries, its record has 2" == await check_copy(first, tiered.tier)
    copies[key][:] = [b"0", b"longer"]
    assert "the copy has 7 bytes, its record 2" == await check_copy(
        first, tiered.tier, nothing_wrong
    )
    assert "entry 3:0: bad" == await check_copy(second, tiered.tier, lambda *_: "bad")
    del copies[key]
    assert "there is no copy" in str(await check_copy(first, tiered.tier))
    tiered.tier.is_down = True
    with pytest.raises(TierUnavailable):
        await check_copy(first, tiered.tier)


def test_a_damaged_deletion_is_reported_and_left_out(tiered: Tiered) -> None:
    engine = LogRocksdbEngine(tiered.folder)
    group = CommitGroup(rows=[(keys.copy_deletion_key(ATTEMPT), b"\x09")])
    engine.commit(group, sync=True)
    engine.index(group)
    engine.close()
    (problem,) = inspect_folder(tiered.folder, check_entry=nothing_wrong).problems
    assert "expected version 1, got 9" in problem.reason
    assert 2 == len(tiered.listing().deletions)


def test_entries_of_a_primary_that_was_deleted_are_damage(tiered: Tiered) -> None:
    engine = LogRocksdbEngine(tiered.folder)
    group = CommitGroup(entries=[(2, 0, b"0")])
    engine.commit(group, sync=True)
    engine.index(group)
    engine.close()
    (problem,) = inspect_folder(tiered.folder, check_entry=nothing_wrong).problems
    assert "has entries, although its primary copy was deleted" == problem.reason
