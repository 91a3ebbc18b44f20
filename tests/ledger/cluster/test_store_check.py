"""Stores that a cluster can use, and stores that lie."""

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest

from kledger.ledger.cluster.store_check import check_store
from kledger.ledger.engine.base import Buffer
from kledger.ledger.errors import StoreUnusable
from kledger.ledger.offload.object_store import ObjectStore, StoredObject
from kledger.runtime.blocking import InlinePool

ATTEMPT = UUID(int=7)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "objects").as_uri()


async def test_store_that_works_is_accepted_and_keeps_nothing(url: str) -> None:
    store = ObjectStore(url, pool=InlinePool())
    await check_store(store, ATTEMPT)
    assert [] == await store.list()


class Unlisted(ObjectStore):
    async def list(self, prefix: str = "") -> Sequence[StoredObject]:
        return []


class OtherBytes(ObjectStore):
    async def get_range(self, name: str, start: int, length: int) -> Buffer:
        return await self.get(name)


class Undeleted(ObjectStore):
    async def delete(self, name: str) -> None:
        pass


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Unlisted, "was written and not listed"),
        (OtherBytes, "was read as other bytes"),
        (Undeleted, "was deleted and is still there"),
    ],
)
async def test_store_that_lies_is_refused(url: str, kind: type[ObjectStore], message: str) -> None:
    with pytest.raises(StoreUnusable, match=message):
        await check_store(kind(url, pool=InlinePool()), ATTEMPT)


async def test_store_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "objects"
    store = ObjectStore(folder.as_uri(), pool=InlinePool())
    (folder / "check").write_text("no folder")
    with pytest.raises(StoreUnusable, match="objects: writing check/"):
        await check_store(store, ATTEMPT)
