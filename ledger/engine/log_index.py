"""Log index: makes the groups of the log visible, and finds again what is in them.

Rule: rows reach the database in the order of the log, each batch with the watermark of its last
group, so that whatever part of it is durable says how far it goes. What is being flushed is durable
in the log before: the index is never ahead of it.
Must not know: how the log is written; of it only how far it is synced, and how to sync it.

Groups wait here until enough of them make a batch; whoever reads makes the batch at once. A move
counts only if the index, with what waits, still has the entry where the move says; so an entry that
was copied is never brought back after its ledger went, neither live nor by a replay.
"""

from collections.abc import Set
from itertools import islice
from threading import Lock
from typing import Protocol, TypeAlias

from rocksdict import WriteBatch

from ledger.engine.base import Move
from ledger.engine.entry_log import Place, PlacedGroup
from ledger.engine.frames import HEADER_SIZE
from ledger.engine.index_keys import (
    ENTRY_PREFIX,
    ROW_PREFIX,
    SPACE_END,
    SPACE_PREFIX,
    WATERMARK_KEY,
    EntryPlace,
    decode_entry,
    decode_space,
    decode_watermark,
    encode_space,
    encode_watermark,
    entry_key,
    ledger_range,
    place_value,
    space_key,
)
from ledger.engine.recovery_plan import Watermark
from ledger.engine.rocksdb_table import RocksdbTable, new_batch
from ledger.engine.space_plan import LogSpace

FRAME_WEIGHT = 4096
WAITING_WEIGHT_MAX = 1024 * 1024
"""Waiting groups keep their data in memory; 256 small frames, or 1 MiB of data, make a batch."""
STALLED_WEIGHT_MAX = 16 * WAITING_WEIGHT_MAX
"""When RocksDB has no room for so long, the writer waits for it."""
UNFLUSHED_BYTES_MAX = 48 * 1024 * 1024

_Ids: TypeAlias = tuple[int, int]
_NONE: frozenset[_Ids] = frozenset()


class LogDurability(Protocol):
    """What the index needs of the log."""

    synced_end: Place

    def sync(self) -> None:
        """Make every group durable that was appended before the call."""
        ...


class LogIndex:
    """The index behind one log. `add` in one thread at a time, everything else in any."""

    def __init__(self, table: RocksdbTable) -> None:
        value = table.get(WATERMARK_KEY)
        self.watermark = decode_watermark(value) if value is not None else Watermark(1, 0, 0)
        self.space = LogSpace()
        self.log: LogDurability | None = None  # None: all groups that are added are durable
        self._table = table
        self._lock = Lock()
        self._waiting: list[PlacedGroup] = []
        self._weight = 0
        self._write_at_weight = WAITING_WEIGHT_MAX
        self._touched: dict[int, set[int]] = {}  # file -> ledgers whose space changed
        self._waiting_moves: dict[_Ids, tuple[int, int]] = {}  # where a waiting group puts them
        self._stale: dict[int, set[_Ids]] = {}  # group -> entries whose move came too late
        self._is_flushing = False
        self.has_dead_file = False
        self.is_large = False  # so much is in memory only that a flush should come soon
        for key, value in table.rows(SPACE_PREFIX, SPACE_END):
            file, ledger_id, size = decode_space(key, value)
            self.space.ledgers_in(file)[ledger_id] = size

    def add(self, placed: PlacedGroup) -> None:
        """Make a group visible."""
        group, file = placed.group, placed.end.file
        with self._lock:
            if group.moves:
                self._add_moved(placed)
            elif group.entries:
                ledgers = self.space.ledgers_in(file)
                touched = self._touched.setdefault(file, set())
                for ledger_id, _, data in group.entries:
                    ledgers[ledger_id] = ledgers.get(ledger_id, 0) + HEADER_SIZE + len(data)
                    touched.add(ledger_id)
            for ledger_id in group.drops:
                for dropped_from in self.space.drop(ledger_id):
                    self._touched.setdefault(dropped_from, set()).add(ledger_id)
                    if dropped_from < file and not self.space.ledgers_in(dropped_from):
                        self.has_dead_file = True
            self._waiting.append(placed)
            weight = placed.frame_count * FRAME_WEIGHT + placed.end.position - placed.start
            self._weight = weight = weight + self._weight
            if weight >= self._write_at_weight:
                self._write_waiting(wait=weight >= STALLED_WEIGHT_MAX)

    def _add_moved(self, placed: PlacedGroup) -> None:
        """Count a group with moves among its entries."""
        if self.log is None:  # a replay: the places may be among what waits
            self._write_waiting(wait=True)
        group, file, position = placed.group, placed.end.file, placed.start
        moves = {(move.ledger_id, move.entry_id): move for move in group.moves}
        stale = {ids for ids, move in moves.items() if not self._stands_at(move)}
        for ledger_id, entry_id, data in group.entries:
            ids, size = (ledger_id, entry_id), HEADER_SIZE + len(data)
            if (move := moves.get(ids)) is None:
                ledgers = self.space.ledgers_in(file)
                ledgers[ledger_id] = ledgers.get(ledger_id, 0) + size
                self._touched.setdefault(file, set()).add(ledger_id)
            elif ids not in stale:
                is_last = self.space.move(ledger_id, size, source=move.file, target=file)
                self.has_dead_file |= is_last
                self._waiting_moves[ids] = file, position
                for each in (move.file, file):
                    self._touched.setdefault(each, set()).add(ledger_id)
            position += size
        self._stale[placed.end.group] = stale

    def _stands_at(self, move: Move) -> bool:
        """Tell whether an entry is still where a move found it."""
        if not self.space.has(move.file, move.ledger_id):
            return False
        where = self._waiting_moves.get(move[:2])
        if where is None:
            key = entry_key(ENTRY_PREFIX, move.ledger_id, move.entry_id)
            if (value := self._table.get(key)) is None:
                return False
            where = decode_entry(key, value)[1:3]
        return where == (move.file, move.position)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a row."""
        self._settle()
        return self._table.get(ROW_PREFIX + key)

    def scan(
        self, start: bytes, end: bytes, *, reverse: bool, limit: int | None
    ) -> list[tuple[bytes, bytes]]:
        """Return rows."""
        self._settle()
        found: list[tuple[bytes, bytes]] = []
        if limit == 0 or start >= end:
            return found
        for key, value in self._table.rows(ROW_PREFIX + start, ROW_PREFIX + end, reverse=reverse):
            found.append((key[1:], value))
            if len(found) == limit:
                break
        return found

    def places(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[EntryPlace]:
        """Return where the entries of an unbroken run are, as many as fit; one always fits."""
        self._settle()
        return self._places(ledger_id, first_entry, last_entry, bytes_max)

    def places_nowait(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[EntryPlace]:
        """Do the same, or return nothing where that could take a sync of the log."""
        if self._waiting:
            with self._lock:
                self._write_waiting(wait=False)
                if self._waiting:
                    return []
        return self._places(ledger_id, first_entry, last_entry, bytes_max)

    def _places(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[EntryPlace]:
        found: list[EntryPlace] = []
        size = 0
        start = entry_key(ENTRY_PREFIX, ledger_id, first_entry)
        end = entry_key(ENTRY_PREFIX, ledger_id, last_entry) + b"\0"
        for key, value in self._table.rows(start, end):
            place = decode_entry(key, value)
            size += place.data_length
            if place.entry_id != first_entry + len(found) or (found and size > bytes_max):
                break
            found.append(place)
        return found

    def places_in(
        self, file: int, ledger_id: int, first_entry: int, *, rows_max: int
    ) -> tuple[list[EntryPlace], int | None]:
        """Return which of the next entries of a ledger are in a file; looks at `rows_max` of them.

        The second value is where to go on, None at the end of the ledger.
        """
        self._settle()
        start, end = entry_key(ENTRY_PREFIX, ledger_id, first_entry), ledger_range(ledger_id)[1]
        rows = islice(self._table.rows(start, end), rows_max)
        places = [decode_entry(key, value) for key, value in rows]
        go_on = places[-1].entry_id + 1 if len(places) == rows_max else None
        return [place for place in places if place.file == file], go_on

    def ledgers_in(self, file: int) -> list[int]:
        """Return the ids of the ledgers that have entries in a file, ascending."""
        with self._lock:
            return sorted(self.space.ledgers_in(file))

    def live_bytes(self, file: int) -> int:
        """Return the bytes of a file that some ledger still needs."""
        with self._lock:
            return self.space.live_bytes(file)

    def last_entry(self, ledger_id: int) -> int:
        """Return the newest entry id of a ledger, -1 without one."""
        self._settle()
        for key, value in self._table.rows(*ledger_range(ledger_id), reverse=True):
            return decode_entry(key, value).entry_id
        return -1

    def begin_flush(self) -> Watermark:
        """Write out what waits. Until `end_flush` only what the log has durably is written.

        Returns:
            The watermark that the flush will make durable, at least.
        """
        with self._lock:
            self._write_waiting(wait=True)
            self._is_flushing = True
            return self.watermark

    def flush(self) -> None:
        """Make durable what was written; the log must be synced that far."""
        self._table.flush()

    def end_flush(self) -> None:
        """Go on as usual."""
        self._is_flushing = False
        self.is_large = self._table.unflushed_bytes() > UNFLUSHED_BYTES_MAX

    def removable_files(self, files: list[int]) -> list[int]:
        """Return which files nothing needs any more once the watermark is durable."""
        with self._lock:
            return self.space.removable(files, before=self.watermark.file)

    def forget_file(self, file: int) -> None:
        """A removable file was removed."""
        with self._lock:
            self.space.forget(file)

    def unflushed_bytes(self) -> int:
        """Return about how much space a flush takes."""
        return self._table.unflushed_bytes()

    def close(self) -> None:
        """Close the database, which flushes it: the log must be synced."""
        self._table.close()

    def _settle(self) -> None:
        if self._waiting:
            with self._lock:
                self._write_waiting(wait=True)

    def _write_waiting(self, *, wait: bool) -> None:
        """Turn what waits into one batch. Without `wait` it may go on waiting."""
        if not self._waiting or not self._may_write(wait):
            return
        end = self._waiting[-1].end
        batch = new_batch()
        for placed in self._waiting:
            _put_group(batch, placed, self._stale.get(placed.end.group, _NONE))
        self._put_space(batch)
        batch.put(WATERMARK_KEY, encode_watermark(Watermark(*end)))
        if not self._table.write(batch, wait=wait):
            self._write_at_weight = 2 * self._weight
            return
        self.watermark = Watermark(*end)
        self.is_large = self._table.unflushed_bytes() > UNFLUSHED_BYTES_MAX
        self._waiting, self._weight, self._write_at_weight = [], 0, WAITING_WEIGHT_MAX
        self._touched.clear()
        self._waiting_moves.clear()
        self._stale.clear()

    def _may_write(self, wait: bool) -> bool:
        """Tell whether RocksDB could make nothing durable now that the log may lose.

        With `wait` there is no time to wait for such a moment: the log is synced instead.
        """
        log = self.log
        if log is None or self._waiting[-1].end.group <= log.synced_end.group:
            return True
        if not self._is_flushing and not self.is_large:
            return True
        if wait:
            log.sync()
        return wait

    def _put_space(self, batch: WriteBatch) -> None:
        for file, ledger_ids in self._touched.items():
            ledgers = self.space.ledgers_in(file)
            for ledger_id in ledger_ids:
                if (size := ledgers.get(ledger_id)) is None:
                    batch.delete(space_key(file, ledger_id))
                else:
                    batch.put(space_key(file, ledger_id), encode_space(size))


def _put_group(batch: WriteBatch, placed: PlacedGroup, stale: Set[_Ids]) -> None:
    """Put the rows of one group into a batch: entries but the stale ones, rows, drops."""
    put, key_of, value_of = batch.put, entry_key, place_value
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
