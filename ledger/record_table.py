"""Record table: records of one kind by key, each durable before it holds.

Rule: `submit` writes a record, and `replay` takes it over when its row is durable; a start replays
every stored row by the same function. A write that fails is not replayed; nothing else is needed to
roll back. A decision that is made while writes are under way is made on `head`, the newest record
submitted: the store completes writes in order, and fails all behind one that failed. Records of
several tables that are written together (`submit_together`) hold together or not at all. Records
that are read and written by groups are in a `GroupedRecordTable`, by the same rule. A table may
hold a part of the stored records: a part is loaded by the same `replay`, and unloaded when no write
of it is under way.
Must not know: what records mean, how changes are decided.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, starmap
from operator import itemgetter
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

from kledger.ledger.commits.committer import RowsDone, ignore_outcome
from kledger.ledger.engine.base import Row
from kledger.ledger.errors import LedgerError
from kledger.ledger.table_store import TableStore
from kledger.runtime.deferred import Deferred

G = TypeVar("G", bound=Hashable)
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
        decode_key: returns the key of a row's key, for tables that are loaded in parts.
    """

    prefix: bytes
    encode_key: Callable[[K], bytes]
    encode: Callable[[R], bytes]
    decode: Callable[[bytes, bytes], tuple[K, R]]
    decode_key: Callable[[bytes], K] | None = None


@dataclass(frozen=True)
class GroupedRecordRows(Generic[G, K, R]):
    """How records of one kind are stored whose keys are unique in their group.

    Attributes:
        prefix: of their keys, and of no others.
        encode_key: returns the key of a row, from the group and the key in it.
        encode: returns the row of a record.
        decode: returns group, key and record of a row. Raises UnreadableRow.
        decode_group: returns the group of a row's key, for tables that are loaded in parts.
    """

    prefix: bytes
    encode_key: Callable[[G, K], bytes]
    encode: Callable[[R], bytes]
    decode: Callable[[bytes, bytes], tuple[G, K, R]]
    decode_group: Callable[[bytes], G] | None = None


class RecordTable(Generic[K, R]):
    """The records of one kind in one store."""

    def __init__(
        self,
        store: TableStore,
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
        self._heads: dict[K, RecordChange] = {}
        """The newest change of a key that is being written."""
        store.follow(rows.prefix, self._row_changed)

    def read(self, is_included: Callable[[K], bool] | None = None) -> Iterator[tuple[K, R]]:
        """Iterate over stored keys with their records, for `load`; changes nothing, blocks.

        Args:
            is_included: whether the record of a key is wanted; None wants all.

        Raises:
            UnreadableRow: a wanted one cannot be read.
        """
        rows = _stored(self._store, self._rows.prefix, self._rows.decode_key, is_included)
        return starmap(self._rows.decode, rows)

    def load(self, records: Iterable[tuple[K, R]] | None = None) -> None:
        """Replay records that were read; None: every stored one.

        Raises:
            UnreadableRow: one of them cannot be read.
        """
        for key, record in self.read() if records is None else records:
            self.replay(key, record)

    def unload(self, is_included: Callable[[K], bool]) -> None:
        """Forget a part of the records; their rows stay, and nothing is replayed."""
        assert not any(map(is_included, self._heads)), "records of the part are being written"
        for key in list(filter(is_included, self._records)):
            del self._records[key]

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
        return self._records.get(key) if newest is None else cast("R | None", newest[2])

    def head_count(self) -> int:
        """Return how many keys have a record, or will have their first one."""
        return len(self._records) + sum(key not in self._records for key in self._heads)

    def row(self, key: K, record: R | None) -> Row:
        """Return the row of a record; None deletes it."""
        content = None if record is None else self._rows.encode(record)
        return self._rows.encode_key(key), content

    def rows(self, key: K, record: R | None) -> Sequence[Row]:
        """Return the rows of a change."""
        return (self.row(key, record),)

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

    def _row_changed(self, row_key: bytes, row: bytes | None) -> None:
        """Follow another process, which has written a row of this table."""
        if row is not None:
            self.replay(*self._rows.decode(row_key, row))
            return
        encode_key = self._rows.encode_key
        deleted = next((key for key in self._records if encode_key(key) == row_key), None)
        if deleted is not None:  # else it came and went between two looks
            self.replay(deleted, None)

    def _begin(self, change: "RecordChange") -> None:
        """Let the record of a change that is being written be the head of its key."""
        self._heads[change[1]] = change

    def _end(self, change: "RecordChange") -> None:
        """Note that the write of a change has ended; a newer one stays the head."""
        key = change[1]
        if self._heads.get(key) is change:
            del self._heads[key]


class GroupedRecordTable(Generic[G, K, R]):
    """The records of one kind in one store, by their group and their key in it.

    A change is of one group: the records of some of its keys, which are written and hold together.
    A group exists while it has a record.
    """

    def __init__(
        self,
        store: TableStore,
        rows: GroupedRecordRows[G, K, R],
        on_replay: Callable[[G, Mapping[K, R | None]], None] | None = None,
    ) -> None:
        """Open an empty table; `load` fills it.

        Args:
            store: keeps the rows.
            rows: how records are stored.
            on_replay: called when records of a group have begun to hold; None: was deleted.
        """
        self._store = store
        self._rows = rows
        self._on_replay = on_replay
        self._records: dict[G, dict[K, R]] = {}
        self._heads: dict[G, dict[K, RecordChange]] = {}
        """The newest change of each key that is being written."""

    def read(
        self, is_included: Callable[[G], bool] | None = None
    ) -> Iterator[tuple[G, Mapping[K, R]]]:
        """Iterate over groups with stored records, for `load`; changes nothing, blocks.

        A group may come more than once, with other records of it.

        Args:
            is_included: whether the records of a group are wanted; None wants all.

        Raises:
            UnreadableRow: a wanted one cannot be read.
        """
        rows = _stored(self._store, self._rows.prefix, self._rows.decode_group, is_included)
        for group, found in groupby(starmap(self._rows.decode, rows), itemgetter(0)):
            yield group, {key: record for _, key, record in found}

    def load(self, records: Iterable[tuple[G, Mapping[K, R]]] | None = None) -> None:
        """Replay records that were read; None: every stored one.

        Raises:
            UnreadableRow: one of them cannot be read.
        """
        for group, found in self.read() if records is None else records:
            self.replay(group, found)

    def unload(self, is_included: Callable[[G], bool]) -> None:
        """Forget the records of some groups; their rows stay, and nothing is replayed."""
        assert not any(map(is_included, self._heads)), "records of the part are being written"
        for group in list(filter(is_included, self._records)):
            del self._records[group]

    @property
    def durable(self) -> Mapping[G, Mapping[K, R]]:
        """The records that hold, by group and key."""
        return self._records

    def head(self, group: G, key: K) -> R | None:
        """Return the record that will hold when every write under way is durable."""
        changes = self._heads.get(group)
        if changes is not None and key in changes:
            return cast("R | None", changes[key][2][key])
        records = self._records.get(group)
        return None if records is None else records.get(key)

    def heads(self, group: G) -> Mapping[K, R]:
        """Return the records of a group that will hold when every write under way is durable.

        Valid until the next await.
        """
        records = self._records.get(group, {})
        if group not in self._heads:
            return records
        heads = records.copy()
        for key, record in self.under_way(group):
            if record is None:
                heads.pop(key, None)
            else:
                heads[key] = record
        return heads

    def under_way(self, group: G) -> Iterator[tuple[K, R | None]]:
        """Iterate over the keys of a group that are being written, with their newest records."""
        for key, change in self._heads.get(group, {}).items():
            yield key, change[2][key]

    def is_writing(self, group: G) -> bool:
        """Whether a write of the group is under way."""
        return group in self._heads

    def has_group(self, group: G) -> bool:
        """Whether the group has a record, or a write of it is under way."""
        return group in self._records or group in self._heads

    def groups_under_way(self) -> Collection[G]:
        """Return the groups of which a write is under way."""
        return self._heads.keys()

    def groups(self) -> Collection[G]:
        """Return the groups that have a record or of which a write is under way."""
        return self._records.keys() | self._heads.keys()

    def rows(self, group: G, records: Mapping[K, R | None]) -> Sequence[Row]:
        """Return the rows of a change."""
        encode_key, encode = self._rows.encode_key, self._rows.encode
        return [
            (encode_key(group, key), None if record is None else encode(record))
            for key, record in records.items()
        ]

    def replay(self, group: G, records: Mapping[K, R | None]) -> None:
        """Let durable records of a group hold; None: was deleted."""
        holding = self._records.setdefault(group, {})
        for key, record in records.items():
            if record is None:
                holding.pop(key, None)
            else:
                holding[key] = record
        if not holding:
            del self._records[group]
        if self._on_replay is not None:
            self._on_replay(group, records)

    def change(self, group: G, records: Mapping[K, R | None]) -> "RecordChange":
        """Return a change for `submit_together`; None deletes a record.

        The table keeps `records`, at least one, which do not change any more.
        """
        return self, group, records

    def _begin(self, change: "RecordChange") -> None:
        """Let the records of a change that is being written be the heads of their keys."""
        _, group, records = change
        heads = dict.fromkeys(records, change)
        if self._heads.setdefault(group, heads) is not heads:
            self._heads[group].update(heads)

    def _end(self, change: "RecordChange") -> None:
        """Note that the write of a change has ended; newer ones stay the heads."""
        _, group, records = change
        heads = self._heads.get(group, {})
        for key in records:
            if heads.get(key) is change:
                del heads[key]
        if not heads:
            self._heads.pop(group, None)


def _stored(
    store: TableStore,
    prefix: bytes,
    decode_key: Callable[[bytes], K] | None,
    is_included: Callable[[K], bool] | None,
) -> Iterable[tuple[bytes, bytes]]:
    """Return the stored rows of one kind, those whose keys are included."""
    rows = store.scan_rows(prefix)
    if is_included is None:
        return rows
    assert decode_key is not None, f"rows of {prefix!r} are not loaded in parts"
    return (row for row in rows if is_included(decode_key(row[0])))


RecordChange: TypeAlias = tuple[
    "RecordTable[Any, Any] | GroupedRecordTable[Any, Any, Any]", Any, Any
]
"""A table, a key or group of it, and the record as it will be, or those of the group; `change` of
the table makes it, to be submitted once."""


def submit_together(
    changes: Sequence[RecordChange], append: Append | None = None
) -> Deferred[Exception | None]:
    """Write records, all or none, and replay them in their order when they are durable.

    They are replayed in the very step in which they are durable, so what was submitted behind them
    holds after them in memory too; and they are replayed also when the caller is cancelled.

    Args:
        changes: at least one, or `append` has other rows; their tables are in one store.
        append: writes the rows together with other rows; the store's own append if None.

    Returns:
        None once the records hold; a LedgerError: nothing has changed; another error: they are
        durable, and replaying one has failed.
    """
    ended: Deferred[Exception | None] = Deferred()
    rows: list[Row] = []
    for table, key, record in changes:
        rows += table.rows(key, record)
    try:
        (append or changes[0][0]._store.append_rows_nowait)(rows, partial(_landed, changes, ended))
    except LedgerError as error:
        ended.resolve(error)
    if not ended.is_resolved:
        for change in changes:
            change[0]._begin(change)
    return ended


def _landed(
    changes: Sequence[RecordChange],
    ended: Deferred[Exception | None],
    error: LedgerError | None,
) -> None:
    outcome: Exception | None = error
    for change in changes:
        table, key, record = change
        table._end(change)
        if error is None:
            try:
                table.replay(key, record)
            except Exception as fault:  # noqa: BLE001 - it is a fault of the request alone
                outcome = outcome or fault
    ended.resolve(outcome)
