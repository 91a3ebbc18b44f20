"""Record table: records of one kind by key, each durable before it holds.

Rule: `submit` writes a record, and `replay` takes it over when its row is durable; a start replays
every stored row by the same function. A write that fails is not replayed; nothing else is needed to
roll back. A decision that is made while writes are under way is made on `head`, the newest record
submitted: the store completes writes in order, and fails all behind one that failed.
Must not know: what records mean, how changes are decided.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from kledger.ledger.commits.committer import RowsDone, ignore_outcome
from kledger.ledger.engine.base import Row
from kledger.ledger.errors import LedgerError
from kledger.ledger.store import LedgerStore
from kledger.runtime.deferred import Deferred

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class Append(Protocol):
    """Writes rows in one atomic group and calls `done`; may raise LedgerError instead."""

    def __call__(self, rows: Sequence[Row], done: RowsDone, /) -> None:
        """Begin to write."""
        ...


@dataclass(frozen=True)  # slots and generic parameters do not go together
class RecordRows(Generic[K, R]):
    """How records of one kind are stored.

    Attributes:
        prefix: of their keys, and of no others.
        encode_key: returns the key of a row.
        encode: returns the row of a record.
        decode: returns key and record of a row. Raises UnreadableRow.
    """

    prefix: bytes
    encode_key: Callable[[K], bytes]
    encode: Callable[[R], bytes]
    decode: Callable[[bytes, bytes], tuple[K, R]]


class RecordTable(Generic[K, R]):
    """The records of one kind in one store."""

    def __init__(
        self,
        store: LedgerStore,
        rows: RecordRows[K, R],
        on_replay: Callable[[K], None] | None = None,
    ) -> None:
        """Open an empty table; `load` fills it.

        Args:
            store: keeps the rows.
            rows: how records are stored.
            on_replay: called with the key when a record has begun to hold, or has been deleted.
        """
        self._store = store
        self._rows = rows
        self._on_replay = on_replay
        self._records: dict[K, R] = {}
        self._heads: dict[K, tuple[R | None, int]] = {}
        """The newest submitted record of a key, and how many writes of the key are under way."""

    def load(self) -> None:
        """Replay every stored row.

        Raises:
            UnreadableRow: one of them cannot be read.
        """
        for key, row in self._store.scan_rows(self._rows.prefix):
            self.replay(*self._rows.decode(key, row))

    @property
    def durable(self) -> Mapping[K, R]:
        """The records that hold, by key."""
        return self._records

    def get(self, key: K) -> R | None:
        """Return the record that holds, None without one."""
        return self._records.get(key)

    def head(self, key: K) -> R | None:
        """Return the record that will hold when every write under way is durable."""
        newest = self._heads.get(key)
        return self._records.get(key) if newest is None else newest[0]

    def head_count(self) -> int:
        """Return how many keys have a record, or will have their first one."""
        return len(self._records) + sum(key not in self._records for key in self._heads)

    def row(self, key: K, record: R | None) -> Row:
        """Return the row of a record; None deletes it."""
        content = None if record is None else self._rows.encode(record)
        return self._rows.encode_key(key), content

    def replay(self, key: K, record: R | None) -> None:
        """Let a durable record hold; None: it was deleted."""
        if record is None:
            self._records.pop(key, None)
        else:
            self._records[key] = record
        if self._on_replay is not None:
            self._on_replay(key)

    def submit(
        self, key: K, record: R | None, append: Append | None = None
    ) -> Deferred[Exception | None]:
        """Write a record, and replay it when it is durable.

        It is replayed in the very step in which it is durable, so what was submitted behind it
        holds after it in memory too; and it is replayed also when the caller is cancelled.

        Args:
            key: of the record.
            record: None deletes it.
            append: writes the row together with other rows; the store's own append if None.

        Returns:
            None once the record holds; a LedgerError: nothing has changed; another error: it is
            durable, and replaying it has failed.
        """
        ended: Deferred[Exception | None] = Deferred()
        landed = partial(self._landed, key, record, ended)
        rows, before = [self.row(key, record)], self._heads.get(key)
        self._heads[key] = record, 1 if before is None else before[1] + 1
        try:
            if append is None:
                self._store.append_rows_nowait(rows, landed)
            else:
                append(rows, landed)
        except LedgerError as error:
            landed(error)
        except BaseException:
            self._set_head(key, before)
            raise
        return ended

    def submit_lazily(self, changes: Iterable[tuple[K, R | None]]) -> None:
        """Let records hold at once, and write them with whatever comes next.

        For what can be worked out again: a crash may bring the records before them back.

        Raises:
            LedgerError: the store has stopped; nothing has changed.
        """
        changed = list(changes)
        if changed:
            self._store.append_rows_lazily([self.row(*each) for each in changed], ignore_outcome)
        for key, record in changed:
            self.replay(key, record)

    def _landed(
        self,
        key: K,
        record: R | None,
        ended: Deferred[Exception | None],
        error: LedgerError | None,
    ) -> None:
        newest, count = self._heads[key]
        self._set_head(key, (newest, count - 1) if count > 1 else None)
        outcome: Exception | None = error
        if error is None:
            try:
                self.replay(key, record)
            except Exception as fault:  # noqa: BLE001 - it is a fault of the request alone
                outcome = fault
        ended.resolve(outcome)

    def _set_head(self, key: K, head: tuple[R | None, int] | None) -> None:
        if head is None:
            del self._heads[key]
        else:
            self._heads[key] = head
