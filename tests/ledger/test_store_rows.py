"""Rows that the index cannot give: what the engine raises is translated at the store."""

from collections.abc import Callable

import pytest

from kledger.ledger import Corrupt, Fenced, LedgerError, LedgerStore, StorageFailed
from kledger.ledger.engine.errors import IndexCorrupt, StorageError
from kledger.ledger.engine.memory import MemoryEngine
from tests.ledger.words import OpenStore


class UnreadableIndex(MemoryEngine):
    """An engine whose rows cannot be read."""

    error: Exception | None = None

    def get(self, key: bytes) -> bytes | None:
        if self.error is not None:
            raise self.error
        return super().get(key)

    def scan(
        self, start: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        if self.error is not None:
            raise self.error
        return super().scan(start, end, reverse=reverse, limit=limit)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (StorageError("too many open files"), StorageFailed),
        (IndexCorrupt("block checksum mismatch"), Corrupt),
        (OSError("by no seam"), Fenced),
    ],
)
@pytest.mark.parametrize(
    "read",
    [
        lambda store: store.get_row(b"k"),
        lambda store: store.scan_rows(b"k"),
        lambda store: store.scan_rows_between(b"a", b"z"),
    ],
    ids=["get", "scan", "scan between"],
)
async def test_unreadable_rows_raise_a_ledger_error(
    open_store: OpenStore,
    read: Callable[[LedgerStore], object],
    error: Exception,
    expected: type[LedgerError],
) -> None:
    """Regression: the engine's error reached requests as an unknown fault."""
    engine = UnreadableIndex()
    store = await open_store(engine=engine)
    await store.put_rows([(b"k", b"v")])
    engine.error = error
    with pytest.raises(expected, match=str(error)):
        read(store)
    engine.error = None
    assert read(store) in (b"v", [(b"k", b"v")])
