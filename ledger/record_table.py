"""Record table: records of one kind by key, each durable before it holds.

Rule: `submit` writes a record, and `replay` takes it over when its row is durable; a start replays
every stored row by the same function. A write that fails is not replayed; nothing else is needed to
roll back. A decision that is made while writes are under way is made on `head`, the newest record
submitted: the store completes writes in order, and fails all behind one that failed. Records of
several tables that are written together (`submit_together`) hold together or not at all.
Must not know: what records mean, how changes are decided.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

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

    @property
    def is_writing(self) -> bool:
        """Whether a write is under way."""
        return bool(self._heads)

    def change(self, key: K, record: R | None) -> "RecordChange":
        """Return a change for `submit_together`; None deletes the record."""
        return self, key, record

    def submit(
        self, key: K, record: R | None, append: Append | None = None
    ) -> Deferred[Exception | None]:
        """Write one record, and replay it when it is durable, as `submit_together` does."""
        return submit_together(((self, key, record),), append)

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

    def _begin(self, key: K, record: R | None) -> tuple[R | None, int] | None:
        """Let a record be the head of its key; return the head before it."""
        first = record, 1
        before = self._heads.setdefault(key, first)
        if before is first:
            return None
        self._heads[key] = record, before[1] + 1
        return before

    def _end(self, key: K) -> None:
        """Count a write of a key as ended; without another one its head is the durable record."""
        newest, count = self._heads.pop(key)
        if count > 1:
            self._heads[key] = newest, count - 1

    def _undo(self, key: K, before: tuple[R | None, int] | None) -> None:
        """Take back a `_begin` that returned `before`."""
        del self._heads[key]
        if before is not None:
            self._heads[key] = before


RecordChange: TypeAlias = tuple[RecordTable[Any, Any], Any, Any]
"""A table, a key of it and the record as it will be; `RecordTable.change` makes it."""


def submit_together(
    changes: Sequence[RecordChange], append: Append | None = None
) -> Deferred[Exception | None]:
    """Write records, all or none, and replay them in their order when they are durable.

    They are replayed in the very step in which they are durable, so what was submitted behind them
    holds after them in memory too; and they are replayed also when the caller is cancelled.

    Args:
        changes: at least one; their tables are in one store.
        append: writes the rows together with other rows; the store's own append if None.

    Returns:
        None once the records hold; a LedgerError: nothing has changed; another error: they are
        durable, and replaying one has failed.
    """
    ended: Deferred[Exception | None] = Deferred()
    rows = [table.row(key, record) for table, key, record in changes]
    landed = partial(_landed, changes, ended)
    before = [table._begin(key, record) for table, key, record in changes]
    try:
        (append or changes[0][0]._store.append_rows_nowait)(rows, landed)
    except LedgerError as error:
        landed(error)
    except BaseException:
        for (table, key, _), head in zip(reversed(changes), reversed(before), strict=True):
            table._undo(key, head)
        raise
    return ended


def _landed(
    changes: Sequence[RecordChange],
    ended: Deferred[Exception | None],
    error: LedgerError | None,
) -> None:
    outcome: Exception | None = error
    for table, key, record in changes:
        table._end(key)
        if error is None:
            try:
                table.replay(key, record)
            except Exception as fault:  # noqa: BLE001 - it is a fault of the request alone
                outcome = outcome or fault
    ended.resolve(outcome)
