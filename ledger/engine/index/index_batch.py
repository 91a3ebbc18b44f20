"""Index batch: groups of the log that go into the database together.

Rule: a batch holds all that its groups change, with the space rows and the watermark as of its last
group, and it can be encoded again when the database had no room for it.
Must not know: when a batch may be written, threads.
"""

from collections.abc import Set
from typing import TypeAlias

from rocksdict import WriteBatch

from kledger.ledger.engine.index.index_keys import (
    ENTRY_PREFIX,
    ROW_PREFIX,
    WATERMARK_KEY,
    encode_space,
    encode_watermark,
    entry_key,
    ledger_range,
    location_value,
    space_key,
)
from kledger.ledger.engine.index.rocksdb_table import new_batch
from kledger.ledger.engine.index.space_plan import LogSpace
from kledger.ledger.engine.log.entry_log import LogEnd, PlacedGroup
from kledger.ledger.engine.log.frames import HEADER_SIZE
from kledger.ledger.engine.log.recovery_plan import Watermark

FRAME_WEIGHT = 4096

EntryIds: TypeAlias = tuple[int, int]
_NONE: frozenset[EntryIds] = frozenset()


class IndexBatch:
    """Groups in the order of the log; not empty when it is encoded.

    Attributes:
        groups: what `add` took in.
        weight: about how much memory the groups keep.
        touched: log file -> ledgers whose space in it the groups change.
        moved: entry -> file and position to which a group moves it.
        stale: group -> entries whose move came too late.
    """

    __slots__ = ("_row_groups", "_rows", "_space_rows", "groups", "moved", "stale", "touched",
                 "weight")  # fmt: skip

    def __init__(self) -> None:
        self.groups: list[PlacedGroup] = []
        self.weight = 0
        self.touched: dict[int, set[int]] = {}
        self.moved: dict[EntryIds, tuple[int, int]] = {}
        self.stale: dict[int, set[EntryIds]] = {}
        self._space_rows: list[tuple[bytes, bytes | None]] | None = None
        self._rows: dict[bytes, bytes | None] = {}
        self._row_groups = 0  # how many groups `_rows` covers

    @property
    def end(self) -> LogEnd:
        """Where the last group ends."""
        return self.groups[-1].end

    def add(self, placed: PlacedGroup) -> None:
        """Take in the next group."""
        self.groups.append(placed)
        self.weight += placed.frame_count * FRAME_WEIGHT + placed.end.position - placed.start

    def rows(self) -> dict[bytes, bytes | None]:
        """Return the rows that the groups put, None for those that they delete."""
        for placed in self.groups[self._row_groups :]:
            self._rows.update(placed.group.rows)
        self._row_groups = len(self.groups)
        return self._rows

    def seal(self, space: LogSpace) -> None:
        """Keep the space rows as they are now, because later groups go into another batch."""
        if self._space_rows is None:
            self._space_rows = self._current_space_rows(space)

    def encode(self, space: LogSpace) -> WriteBatch:
        """Return the batch for the database, which uses it up."""
        batch = new_batch()
        for placed in self.groups:
            _put_group(batch, placed, self.stale.get(placed.end.group, _NONE))
        space_rows = self._space_rows
        if space_rows is None:
            space_rows = self._current_space_rows(space)
        for key, value in space_rows:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        batch.put(WATERMARK_KEY, encode_watermark(Watermark(*self.end)))
        return batch

    def _current_space_rows(self, space: LogSpace) -> list[tuple[bytes, bytes | None]]:
        rows: list[tuple[bytes, bytes | None]] = []
        for file, ledger_ids in self.touched.items():
            ledgers = space.ledgers_in(file)
            for ledger_id in ledger_ids:
                size = ledgers.get(ledger_id)
                value = None if size is None else encode_space(size)
                rows.append((space_key(file, ledger_id), value))
        return rows


def _put_group(batch: WriteBatch, placed: PlacedGroup, stale: Set[EntryIds]) -> None:
    """Put the rows of one group into a batch: entries but the stale ones, rows, drops."""
    put, key_of, value_of = batch.put, entry_key, location_value
    group, file, position = placed.group, placed.end.file, placed.start
    for ledger_id, entry_id, data in group.entries:
        length = len(data)
        if not stale or (ledger_id, entry_id) not in stale:
            put(key_of(ENTRY_PREFIX, ledger_id, entry_id), value_of(file, position, length))
        position += HEADER_SIZE + length
    for key, value in group.rows:
        if value is None:
            batch.delete(ROW_PREFIX + key)
        else:
            put(ROW_PREFIX + key, value)
    for ledger_id in group.drops:
        batch.delete_range(*ledger_range(ledger_id))
