"""Table store: where record tables are kept.

Rule: a single server keeps them in its `LedgerStore`; brokers of one cluster keep some of them in
shared tables (`shared_tables`). A change is decided and written under `change_lock`, as otherwise
another process could change the record in between.
Must not know: what rows mean.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from kledger.ledger.commits.committer import RowsDone
from kledger.ledger.engine.base import Row
from kledger.runtime.containment import Containment

RowChanged: TypeAlias = Callable[[bytes, bytes | None], None]
"""Called with key and value of a row that another process has changed; None: it was deleted."""


class TableStore(Protocol):
    """Where record tables are kept: in the store of one server, or in tables that brokers share."""

    @property
    def containment(self) -> Containment:
        """What a fault of a listener of changes closes."""
        ...

    def get_row(self, key: bytes) -> bytes | None:
        """Return the durable value of a row."""
        ...

    def scan_rows(self, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        """Return the rows whose key begins with `prefix`, in the order of keys."""
        ...

    def append_rows_nowait(self, rows: Sequence[Row], done: RowsDone) -> None:
        """Make rows durable, in order and all or none; call `done` then, or with the error."""
        ...

    def append_rows_lazily(self, rows: Sequence[Row], done: RowsDone) -> None:
        """Make rows durable with the next ones, or at once."""
        ...

    async def put_rows(self, rows: Sequence[Row]) -> None:
        """Make rows durable, all or none."""
        ...

    def change_lock(self) -> AbstractAsyncContextManager[None]:
        """Return a lock under which one part of the server decides on changes and writes them.

        It may be taken again and again, but not by a task that has it. The locks of shared tables
        are one, for all brokers; those of a store are independent of each other.
        """
        ...

    def follow(self, prefix: bytes, changed: RowChanged) -> None:
        """Call `changed` for each row of that prefix which another process has changed."""
        ...
