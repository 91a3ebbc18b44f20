"""Log index: makes the groups of the log visible, and finds their entries and rows.

Rule: groups are written to the database in the order of the log, each batch with the watermark of
its last group, so the durable part of the database always says how far it covers the log. A batch
is flushed only after the log is durable that far: the durable index is never ahead of the log.
Must not know: how the log is written, except how far it is synced and how to sync it.

Groups wait in an `IndexBatch` until it is large enough; a reader writes the batch at once. If
RocksDB could then make groups durable that the log may still lose, the batch must go on waiting,
and `get` and `scan` read from it. All other readers, and a writer that is too far ahead, sync the
log; they do so in threads and without the lock, so an event loop never waits for a sync.

A move counts only if the entry is still where the move says, waiting groups included. So a moved
entry never reappears after its ledger was dropped, neither live nor by a replay.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import islice
from threading import Lock
from typing import Protocol, TypeAlias

from rocksdict import WriteBatch

from kledger.ledger.engine.base import Move, Row
from kledger.ledger.engine.index.index_keys import (
    ENTRY_PREFIX,
    ROW_PREFIX,
    SPACE_END,
    SPACE_PREFIX,
    WATERMARK_KEY,
    EntryLocation,
    decode_entry,
    decode_run,
    decode_space,
    decode_watermark,
    encode_space,
    encode_watermark,
    entry_key,
    ledger_range,
    location_value,
    space_key,
)
from kledger.ledger.engine.index.rocksdb_table import RocksdbTable, new_batch
from kledger.ledger.engine.index.space_plan import LogSpace
from kledger.ledger.engine.log.entry_log import LogEnd, PlacedGroup
from kledger.ledger.engine.log.frames import HEADER_SIZE
from kledger.ledger.engine.log.recovery_plan import Watermark

WAITING_WEIGHT_MAX = 1024 * 1024
"""Weight at which a batch is written: 256 small frames, or 1 MiB of data, kept in memory."""
STALLED_WEIGHT_MAX = 16 * WAITING_WEIGHT_MAX
"""Weight of waiting groups at which the next commit waits for the index (`is_behind`)."""
BLOCK_ROWS_MIN = 64
"""A block of RocksDB, 4 KiB, has more rows than this, so steps of this size miss no block."""
UNFLUSHED_BYTES_MAX = 48 * 1024 * 1024
"""With more unflushed bytes in the database, a checkpoint is due."""
FRAME_WEIGHT = 4096

EntryIds: TypeAlias = tuple[int, int]
_NONE: frozenset[EntryIds] = frozenset()


class LogDurability(Protocol):
    """What the index uses of the log."""

    synced_end: LogEnd

    def sync(self) -> None:
        """Make every group durable that was appended before the call."""
        ...


class LogIndex:
    """The index of one log. `add` runs in one thread at a time, everything else in any thread.

    An event loop may call `add`, `get`, `scan` and `locations_nowait` only; the others block.
    """

    def __init__(self, table: RocksdbTable) -> None:
        value = table.get(WATERMARK_KEY)
        self.watermark = decode_watermark(value) if value is not None else Watermark(1, 0, 0)
        self.space = LogSpace()
        self.log: LogDurability | None = None  # None while groups are replayed: all are durable
        self._table = table
        self._lock = Lock()  # never held during a sync
        self._sealed: deque[IndexBatch] = deque()  # wait for the end of a sync
        self._batch = IndexBatch()
        self._write_at_weight = WAITING_WEIGHT_MAX
        self._is_flushing = False
        self.is_behind = False  # whether the next commit has to `catch_up`
        self.has_dead_file = False
        self.is_large = False  # whether a flush is due, see UNFLUSHED_BYTES_MAX
        for key, value in table.rows(SPACE_PREFIX, SPACE_END):
            file, ledger_id, size = decode_space(key, value)
            self.space.ledgers_in(file)[ledger_id] = size

    def add(self, placed: PlacedGroup) -> None:
        """Make a group visible."""
        group, file = placed.group, placed.end.file
        if group.moves and self.log is None:  # a replay: the locations may be in waiting groups
            self._settle()
        with self._lock:
            batch = self._batch
            if group.moves:
                self._add_moved(placed)
            elif group.entries:
                ledgers = self.space.ledgers_in(file)
                touched = batch.touched.setdefault(file, set())
                for ledger_id, _, data in group.entries:
                    ledgers.increase(ledger_id, HEADER_SIZE + len(data))
                    touched.add(ledger_id)
            for ledger_id in group.drops:
                for dropped_from in self.space.drop(ledger_id):
                    batch.touched.setdefault(dropped_from, set()).add(ledger_id)
                    if dropped_from < file and not self.space.ledgers_in(dropped_from):
                        self.has_dead_file = True
            batch.add(placed)
            if batch.weight >= self._write_at_weight:
                is_replay = self.log is None
                self._write_waiting(wait=is_replay and batch.weight >= STALLED_WEIGHT_MAX)
                waiting = (*self._sealed, self._batch)
                self.is_behind = sum(each.weight for each in waiting) >= STALLED_WEIGHT_MAX

    def _add_moved(self, placed: PlacedGroup) -> None:
        """Count the space of a group with moves."""
        group, file, position, batch = placed.group, placed.end.file, placed.start, self._batch
        moves = {(move.ledger_id, move.entry_id): move for move in group.moves}
        stale = {ids for ids, move in moves.items() if not self._is_at(move)}
        for ledger_id, entry_id, data in group.entries:
            ids, size = (ledger_id, entry_id), HEADER_SIZE + len(data)
            if (move := moves.get(ids)) is None:
                ledgers = self.space.ledgers_in(file)
                ledgers.increase(ledger_id, size)
                batch.touched.setdefault(file, set()).add(ledger_id)
            elif ids not in stale:
                is_last = self.space.move(ledger_id, size, source=move.file, target=file)
                self.has_dead_file |= is_last
                batch.moved[ids] = file, position
                for each in (move.file, file):
                    batch.touched.setdefault(each, set()).add(ledger_id)
            position += size
        batch.stale[placed.end.group] = stale

    def _is_at(self, move: Move) -> bool:
        """Return whether an entry is still at the file and position of a move."""
        if not self.space.has(move.file, move.ledger_id):
            return False
        where = self._waiting_move(move[:2])
        if where is None:
            key = entry_key(ENTRY_PREFIX, move.ledger_id, move.entry_id)
            if (value := self._table.get(key)) is None:
                return False
            where = decode_entry(key, value)[1:3]
        return where == (move.file, move.position)

    def _waiting_move(self, ids: EntryIds) -> tuple[int, int] | None:
        """Return file and position to which a waiting group moves an entry."""
        for batch in (self._batch, *reversed(self._sealed)):
            if (where := batch.moved.get(ids)) is not None:
                return where
        return None

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a row."""
        if self._is_waiting:
            with self._lock:
                if not self._write_waiting(wait=False):
                    for batch in (self._batch, *reversed(self._sealed)):
                        if key in (rows := batch.rows()):
                            return rows[key]
        return self._table.get(ROW_PREFIX + key)

    def scan(
        self, start: bytes, end: bytes, *, reverse: bool, limit: int | None
    ) -> list[tuple[bytes, bytes]]:
        """Return rows."""
        found: list[tuple[bytes, bytes]] = []
        if limit == 0 or start >= end:
            return found
        waiting: dict[bytes, bytes | None] = {}
        with self._lock:
            if not self._write_waiting(wait=False):
                waiting = self._waiting_rows(start, end)
            # The waiting rows are not in the iterator, even if they are written before it ends.
            stored = self._table.rows(ROW_PREFIX + start, ROW_PREFIX + end, reverse=reverse)
        rows = ((key[1:], value) for key, value in stored)
        for row in _merge_rows(rows, waiting, reverse=reverse) if waiting else rows:
            found.append(row)
            if len(found) == limit:
                break
        return found

    def _waiting_rows(self, start: bytes, end: bytes) -> dict[bytes, bytes | None]:
        """Return the rows of a range in waiting groups, with None for deleted ones."""
        found: dict[bytes, bytes | None] = {}
        for batch in (*self._sealed, self._batch):
            rows = batch.rows().items()
            found.update((key, value) for key, value in rows if start <= key < end)
        return found

    def locations(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[EntryLocation]:
        """Return the locations of consecutive entries, as many as fit, at least one."""
        self._settle()
        return self._locations((ledger_id, first_entry, last_entry), bytes_max, self._is_loaded)

    def locations_nowait(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[EntryLocation]:
        """Do the same without a sync or a disk read, so return fewer or none if needed."""
        if self._is_waiting:
            with self._lock:
                if not self._write_waiting(wait=False):
                    return []
        is_resident = self._table.is_resident
        return self._locations((ledger_id, first_entry, last_entry), bytes_max, is_resident)

    def _locations(
        self, run: tuple[int, int, int], bytes_max: int, is_resident: Callable[[bytes], bool]
    ) -> list[EntryLocation]:
        """Read rows as long as `is_resident` is true for the next block."""
        ledger_id, first_entry, last_entry = run
        found: list[EntryLocation] = []
        start = entry_key(ENTRY_PREFIX, ledger_id, first_entry)
        last = entry_key(ENTRY_PREFIX, ledger_id, last_entry)
        if not is_resident(start):
            return found
        rows, bytes_left = self._table.rows(start, last + b"\0"), bytes_max
        for entry_id in range(first_entry, last_entry + 1, BLOCK_ROWS_MIN):
            resident_entry = min(entry_id + BLOCK_ROWS_MIN, last_entry)
            if resident_entry > entry_id and not is_resident(
                entry_key(ENTRY_PREFIX, ledger_id, resident_entry)
            ):
                break
            step = decode_run(ledger_id, entry_id, list(islice(rows, BLOCK_ROWS_MIN)))
            for location in step:
                bytes_left -= location[3]
                if bytes_left < 0 and found:
                    return found
                found.append(location)
            if len(step) < BLOCK_ROWS_MIN:
                break
        return found

    def _is_loaded(self, key: bytes) -> bool:
        """Load the block of a key, because a disk read by an iterator stops all threads."""
        if not self._table.is_resident(key):
            self._table.load(key)
        return True

    def locations_in(
        self, file: int, ledger_id: int, first_entry: int, *, rows_max: int
    ) -> tuple[list[EntryLocation], int | None]:
        """Return those of the next `rows_max` entries of a ledger that are in a file.

        The second value is the entry id to continue with, None at the end of the ledger.
        """
        self._settle()
        start, end = entry_key(ENTRY_PREFIX, ledger_id, first_entry), ledger_range(ledger_id)[1]
        rows = islice(self._table.rows(start, end), rows_max)
        locations = [decode_entry(key, value) for key, value in rows]
        go_on = locations[-1].entry_id + 1 if len(locations) == rows_max else None
        return [location for location in locations if location.file == file], go_on

    def ledgers_in(self, file: int) -> list[int]:
        """Return the ids of the ledgers that have entries in a file, ascending."""
        with self._lock:
            return sorted(self.space.ledgers_in(file))

    def live_bytes(self, file: int) -> int:
        """Return the bytes of the live entries in a file."""
        with self._lock:
            return self.space.live_bytes(file)

    def last_entry(self, ledger_id: int) -> int:
        """Return the newest entry id of a ledger, -1 without one."""
        self._settle()
        for key, value in self._table.rows(*ledger_range(ledger_id), reverse=True):
            return decode_entry(key, value).entry_id
        return -1

    def begin_flush(self) -> Watermark:
        """Write all waiting groups; until `end_flush` only groups durable in the log are written.

        Groups that are added meanwhile may wait; they are not below the watermark then.

        Returns:
            The watermark that the flush makes durable, at least.
        """
        self._settle()
        with self._lock:
            self._write_waiting(wait=True)
            self._is_flushing = True
            return self.watermark

    def flush(self) -> None:
        """Make everything written durable; the log must be synced that far."""
        self._table.flush()

    def end_flush(self) -> None:
        """End a flush: write groups as usual."""
        self._is_flushing = False
        self.is_large = self._table.unflushed_bytes() > UNFLUSHED_BYTES_MAX

    def removable_files(self, files: list[int]) -> list[int]:
        """Return the files that can be removed once the watermark is durable."""
        with self._lock:
            return self.space.removable(files, before=self.watermark.file)

    def forget_file(self, file: int) -> None:
        """Forget a removed file."""
        with self._lock:
            self.space.forget(file)

    def unflushed_bytes(self) -> int:
        """Return about how many bytes a flush writes."""
        return self._table.unflushed_bytes()

    def close(self) -> None:
        """Close the database, which flushes it: the log must be synced."""
        self._table.close()

    def catch_up(self) -> None:
        """Write all waiting groups, for a writer that is too far ahead; blocks."""
        self._settle()
        self.is_behind = False

    def load_locations_of(self, moves: Sequence[Move]) -> None:
        """Load the rows that `add` reads for these moves; blocks."""
        for move in moves:
            self._is_loaded(entry_key(ENTRY_PREFIX, move.ledger_id, move.entry_id))

    @property
    def _is_waiting(self) -> bool:
        return bool(self._batch.groups or self._sealed)

    def _settle(self) -> None:
        """Write the groups that wait now, after a sync of the log if needed."""
        if not self._is_waiting:
            return
        with self._lock:
            if self._write_waiting(wait=True):
                return
            if self._batch.groups:
                self._batch.seal(self.space)
                self._sealed.append(self._batch)
                self._start_batch()
        assert self.log is not None
        self.log.sync()
        with self._lock:
            self._write_waiting(wait=True)  # groups added during the sync may go on waiting

    def _write_waiting(self, *, wait: bool) -> bool:
        """Write the waiting groups that may be written; return whether none is left.

        Without `wait` RocksDB may refuse a batch for lack of room.
        """
        while self._sealed:
            if not self._write(self._sealed[0], wait=wait):
                return False
            self._sealed.popleft()
        if self._batch.groups:
            if not self._write(self._batch, wait=wait):
                return False
            self._start_batch()
        return True

    def _write(self, batch: "IndexBatch", *, wait: bool) -> bool:
        if not self._may_write(batch):
            return False
        if not self._table.write(batch.encode(self.space), wait=wait):
            self._write_at_weight = max(WAITING_WEIGHT_MAX, 2 * self._batch.weight)
            return False
        self.watermark = Watermark(*batch.end)
        self.is_large = self._table.unflushed_bytes() > UNFLUSHED_BYTES_MAX
        return True

    def _start_batch(self) -> None:
        self._batch, self._write_at_weight = IndexBatch(), WAITING_WEIGHT_MAX

    def _may_write(self, batch: "IndexBatch") -> bool:
        """Return whether RocksDB cannot make a group of the batch durable that the log may lose."""
        log = self.log
        if log is None or batch.end.group <= log.synced_end.group:
            return True
        return not self._is_flushing and not self.is_large


class IndexBatch:
    """Consecutive groups of the log that are written to the database together.

    It has all changes of its groups, and the space rows and the watermark as of its last group. It
    can be encoded again if the database had no room; it must not be empty then.

    Attributes:
        groups: the added groups.
        weight: about how much memory the groups take.
        touched: log file -> ledgers whose space in it the groups change.
        moved: entry -> file and position to which a group moves it.
        stale: group -> entries whose move is ignored, as they were dropped or moved before.
    """

    __slots__ = ("_row_groups", "_rows", "_space_rows", "groups", "moved", "stale", "touched",
                 "weight")  # fmt: skip

    def __init__(self) -> None:
        self.groups: list[PlacedGroup] = []
        self.weight = 0
        self.touched: dict[int, set[int]] = {}
        self.moved: dict[EntryIds, tuple[int, int]] = {}
        self.stale: dict[int, set[EntryIds]] = {}
        self._space_rows: list[Row] | None = None
        self._rows: dict[bytes, bytes | None] = {}
        self._row_groups = 0  # how many groups `_rows` covers

    @property
    def end(self) -> LogEnd:
        """The end of the last group."""
        return self.groups[-1].end

    def add(self, placed: PlacedGroup) -> None:
        """Add the next group."""
        self.groups.append(placed)
        self.weight += placed.frame_count * FRAME_WEIGHT + placed.end.position - placed.start

    def rows(self) -> dict[bytes, bytes | None]:
        """Return the rows of all groups, with None for deleted ones."""
        for placed in self.groups[self._row_groups :]:
            self._rows.update(placed.group.rows)
        self._row_groups = len(self.groups)
        return self._rows

    def seal(self, space: LogSpace) -> None:
        """Fix the space rows, because later groups are added to another batch."""
        if self._space_rows is None:
            self._space_rows = self._current_space_rows(space)

    def encode(self, space: LogSpace) -> WriteBatch:
        """Return a new batch for the database; a write consumes it."""
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

    def _current_space_rows(self, space: LogSpace) -> list[Row]:
        rows: list[Row] = []
        for file, ledger_ids in self.touched.items():
            ledgers = space.ledgers_in(file)
            for ledger_id in ledger_ids:
                size = ledgers.get(ledger_id)
                value = None if size is None else encode_space(size)
                rows.append((space_key(file, ledger_id), value))
        return rows


def _put_group(batch: WriteBatch, placed: PlacedGroup, stale: Set[EntryIds]) -> None:
    """Add one group to a batch of the database: entries but the stale ones, rows, drops."""
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


def _merge_rows(
    stored: Iterable[tuple[bytes, bytes]], waiting: dict[bytes, bytes | None], *, reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Merge rows of the database with waiting rows, which take precedence."""
    keys = deque(sorted(waiting, reverse=reverse))
    for key, value in stored:
        while keys and (keys[0] > key if reverse else keys[0] < key):
            newer = waiting[at := keys.popleft()]
            if newer is not None:
                yield at, newer
        if keys and keys[0] == key:
            newer = waiting[keys.popleft()]
            if newer is not None:
                yield key, newer
        else:
            yield key, value
    for at in keys:
        newer = waiting[at]
        if newer is not None:
            yield at, newer
