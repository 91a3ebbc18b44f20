"""Tier URL: the store remembers where its ledgers were offloaded to last.

Rule: programs that check a stopped store find its tier without the settings of its server; secrets
are not stored.
Must not know: what a URL means.
"""

from typing import Protocol

from kledger.ledger import LedgerStore
from kledger.ledger.row_format import TEXT_REST, RowFormat

KEY = b"offload-url\x01"
_URLS = RowFormat[str]("offload URL", {1: TEXT_REST})


class StoredRows(Protocol):
    """The user's rows of a store."""

    def get_row(self, key: bytes) -> bytes | None:
        """Return a row's value."""
        ...


async def remember_url(store: LedgerStore, url: str) -> None:
    """Store the URL, unless it is stored. Raises LedgerError."""
    if remembered_url(store) != url:
        await store.put_rows([(KEY, _URLS.encode(url))])


def remembered_url(rows: StoredRows) -> str | None:
    """Return the URL that was stored last, None if there was none. Raises UnreadableRow."""
    row = rows.get_row(KEY)
    if row is None:
        return None
    return _URLS.decode(row)
