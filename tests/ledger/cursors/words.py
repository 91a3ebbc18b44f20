"""Words for tests of cursors: what a crash and a restart leave."""

from kledger.ledger import LedgerStore, ManagedLedger
from kledger.ledger.testing import FaultyEngine
from tests.ledger.words import SMALL, OpenStore, datas


async def crashed(store: LedgerStore, engine: FaultyEngine, open_store: OpenStore) -> ManagedLedger:
    engine.drop_unsynced()
    await store.close()
    return await reopened(engine, open_store)


async def reopened(engine: FaultyEngine, open_store: OpenStore) -> ManagedLedger:
    store = await open_store(engine=engine)
    return await store.open_managed_ledger("orders", config=SMALL)


async def unacknowledged(ml: ManagedLedger, name: str = "c") -> list[bytes]:
    cursor = await ml.open_cursor(name)
    await cursor.rewind()
    return datas(await cursor.read(100))
