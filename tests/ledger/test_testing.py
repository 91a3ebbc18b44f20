"""The tools for users: a power cut kills the store on top."""

import pytest

from ledger import Fenced, LedgerStore, StoreConfig
from ledger.testing import FaultyEngine
from tests.ledger.words import OpenStore, add_all, all_of, numbers


@pytest.mark.parametrize("durability", ["fsync", "os"])
async def test_a_dead_store_leaves_nothing_behind(open_store: OpenStore, durability: str) -> None:
    """Closing it afterwards must not write what it still believes."""
    engine = FaultyEngine(None)
    config = StoreConfig(durability=durability)  # type: ignore[arg-type]
    store = await open_store(engine=engine, config=config)
    ml = await store.open_managed_ledger("orders")
    await add_all(ml, numbers(0, 9))
    engine.drop_unsynced()
    with pytest.raises(Fenced):
        await ml.add_entry(b"late")
    with pytest.raises(Fenced):
        store.get_row(b"k")
    await store.close()
    again = await open_store(engine=engine, config=config)
    survived = numbers(0, 9) if durability == "fsync" else []
    assert survived == await all_of(await again.open_managed_ledger("orders"))


async def test_a_power_cut_without_a_store() -> None:
    engine = FaultyEngine(None)
    engine.drop_unsynced()
    async with LedgerStore.open(None, engine=engine) as store:
        await store.put_rows([(b"k", b"v")])
    engine.drop_unsynced()
    engine.close()
