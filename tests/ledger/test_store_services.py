"""Ids are given out once; versions are compared before they are set."""

from pathlib import Path

from kledger.ledger import EARLIEST, LedgerStore, ManagedLedger, ManagedLedgerConfig, StoreConfig
from kledger.ledger.metadata import keys
from kledger.ledger.metadata.records import decode_counter
from kledger.ledger.reads.entry_cache import OBJECT_BYTES
from kledger.ledger.store_services import IdCounter, MetadataVersions


def test_ids_are_given_out_once_and_the_row_covers_them() -> None:
    ids = IdCounter(5)
    assert [5, 6, 7] == [ids.take() for _ in range(3)]
    key, row = ids.row()
    assert keys.ID_COUNTER == key
    assert row is not None
    assert 8 == decode_counter(row)


def test_only_the_newest_version_can_be_replaced() -> None:
    versions = MetadataVersions()
    assert not versions.compare_and_set("a", 1, 2)
    versions.reset("a", 1)
    assert versions.compare_and_set("a", 1, 2)
    assert not versions.compare_and_set("a", 1, 2)
    assert not versions.compare_and_set("b", 2, 3)
    versions.forget("a")
    assert not versions.compare_and_set("a", 2, 3)
    versions.forget("a")


async def test_trimmed_and_deleted_ledgers_are_dropped_from_memory(tmp_path: Path) -> None:
    """Neither the cache of the tail nor what was read of the disk outlives a ledger."""
    one = 10 + OBJECT_BYTES
    async with LedgerStore.open(tmp_path, config=StoreConfig(cache_bytes=one)) as store:
        orders, others = [await filled_and_read(store, name) for name in ("orders", "others")]
        assert one == store.cached_bytes
        cold = store._services.cold_reads
        kept = cold.kept_bytes
        assert kept > 0
        await orders.truncate()
        assert 0 < cold.kept_bytes < kept
        assert one == store.cached_bytes, "the newest entry is of the other log"
        await others.close()
        await store.delete_managed_ledger("others")
        assert (0, 0) == (cold.kept_bytes, cold.ahead_bytes)
        assert 0 == store.cached_bytes


async def filled_and_read(store: LedgerStore, name: str) -> ManagedLedger:
    config = ManagedLedgerConfig(max_entries_per_ledger=4)
    ml = await store.open_managed_ledger(name, config=config)
    for number in range(8):
        await ml.add_entry(b"%010d" % number)
    await ml.roll_over()
    for _ in range(2):
        assert 8 == len(await ml.read_entries(EARLIEST, 100))
    return ml
