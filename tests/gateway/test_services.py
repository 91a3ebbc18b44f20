"""What stands in the store once for the whole cluster."""

import base64

from kledger.gateway.services import load_cluster_id
from kledger.ledger import LedgerStore
from kledger.ledger.testing import FaultyEngine
from kledger.runtime.entropy import SeededEntropy


async def test_cluster_id_is_made_once_and_stays() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, engine=engine) as store:
        made = await load_cluster_id(store, SeededEntropy(1))
    async with LedgerStore.open(None, engine=engine) as store:
        assert made == await load_cluster_id(store, SeededEntropy(2))


async def test_cluster_id_has_kafkas_form() -> None:
    async with LedgerStore.open(None) as store:
        cluster_id = await load_cluster_id(store, SeededEntropy(1))
    assert 22 == len(cluster_id)
    assert 16 == len(base64.urlsafe_b64decode(cluster_id + "=="))
