"""Log index: makes the groups of the log visible, and finds again what is in them.

Rule: rows reach the database in the order of the log, each batch with the watermark of its last
group, so that whatever part of it is durable says how far it goes. What is being flushed is durable
in the log before: the index is never ahead of it.
Must not know: how the log is written; of it only how far it is synced, and how to sync it.

Groups wait here until enough of them make a batch; whoever reads makes the batch at once. RocksDB
might make a batch durable that the log may still lose: then `get` and `scan` look into the batch
where it waits. All other readers, and a writer that is too far ahead, sync the log. They do so in
threads and without the lock, so an event loop never waits for a sync.

A move
counts only if the index, with what waits, still has the entry where the move says; so an entry that
was copied is never brought back after its ledger went, neither live nor by a replay.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import islice
from threading import Lock
from typing import Protocol, TypeAlias

from rocksdict import WriteBatch

from kledger.ledger.engine.base import Move
from kledger.ledger.engine.index.index_keys import (
    ENTRY_PREFIX,
    ROW_PREFIX,
    SPACE_END,
    SPACE_PREFIX,
    WATERMARK_KEY,
    EntryLocation,
    decode_entry,
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
"""Waiting groups keep their data in memory; 256 small frames, or 1 MiB of data, make a batch."""
STALLED_WEIGHT_MAX = 16 * WAITING_WEIGHT_MAX
"""When so much waits, the next commit waits for the index (`is_behind`, `catch_up`)."""
BLOCK_ROWS_MIN = 64
"""Every block of RocksDB, 4 KiB, has more rows of entries: a look at each such step misses none."""
UNFLUSHED_BYTES_MAX = 48 * 1024 * 1024
FRAME_WEIGHT = 4096

EntryIds: TypeAlias = tuple[int, int]
_NONE: frozenset[EntryIds] = frozenset()


class LogDurability(Protocol):
    """What the index needs of the log."""

    synced_end: LogEnd

    def sync(self) -> None:
        """Make every group durable that was appended before the call."""
        ...


class LogIndex:
    """The index behind one log. `add` in one thread at a time, everything else in any.

    Only `add`, `get`, `scan` and `locations_nowait` are for an event loop.
    """

    def __init__(self, table: RocksdbTable) -> None:
        value = table.get(WATERMARK_KEY)
        self.watermark = decode_watermark(value) if value is not None else Watermark(1, 0, 0)
        self.space = LogSpace()
        self.log: LogDurability | None = None  # None: all groups that are added are durable
        self._table = table
        self._lock = Lock()  # never held during a sync
        self._sealed: deque[IndexBatch] = deque()  # wait for a sync that is under way
        self._batch = IndexBatch()
        self._write_at_weight = WAITING_WEIGHT_MAX
        self._is_flushing = False
        self.is_behind = False  # so much waits that the next commit has to `catch_up`
        self.has_dead_file = False
        self.is_large = False  # so much is in memory only that a flush should come soon
        for key, value in table.rows(SPACE_PREFIX, SPACE_END):
            file, ledger_id, size = decode_space(key, value)
            self.space.ledgers_in(file)[ledger_id] = size

    def add(self, placed: PlacedGroup) -> None:
        """Make a group visible."""
        group, file = placed.group, placed.end.file
        if group.moves and self.log is None:  # a replay: the places may be among what waits
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
        """Count a group with moves among its entries."""
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
        """Tell whether an entry is still where a move found it."""
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
        """Return where a group that waits puts an entry."""
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
            # What waits now is not in the iterator, whatever is written until it is drained.
            stored = self._table.rows(ROW_PREFIX + start, ROW_PREFIX + end, reverse=reverse)
        rows = ((key[1:], value) for key, value in stored)
        for row in _merge_rows(rows, waiting, reverse=reverse) if waiting else rows:
            found.append(row)
            if len(found) == limit:
                break
        return found

    def _waiting_rows(self, start: bytes, end: bytes) -> dict[bytes, bytes | None]:
        """Return the rows of a range that groups which wait put, None for those they delete."""
        found: dict[bytes, bytes | None] = {}
        for batch in (*self._sealed, self._batch):
            rows = batch.rows().items()
            found.update((key, value) for key, value in rows if start <= key < end)
        return found

    def locations(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[EntryLocation]:
        """Return where the entries of an unbroken run are, as many as fit; one always fits."""
        self._settle()
        return self._locations((ledger_id, first_entry, last_entry), bytes_max, self._is_loaded)

    def locations_nowait(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[EntryLocation]:
        """Do the same, but fewer or nothing where it would take a sync or a read of a disk."""
        if self._is_waiting:
            with self._lock:
                if not self._write_waiting(wait=False):
                    return []
        is_resident = self._table.is_resident
        return self._locations((ledger_id, first_entry, last_entry), bytes_max, is_resident)

    def _locations(
        self, run: tuple[int, int, int], bytes_max: int, is_resident: Callable[[bytes], bool]
    ) -> list[EntryLocation]:
        """Step through rows for as long as `is_resident` says yes to the next block."""
        ledger_id, first_entry, last_entry = run
        found: list[EntryLocation] = []
        size, resident_entry = 0, min(first_entry + BLOCK_ROWS_MIN, last_entry)
        start = entry_key(ENTRY_PREFIX, ledger_id, first_entry)
        last = entry_key(ENTRY_PREFIX, ledger_id, last_entry)
        if not is_resident(start):
            return found
        if resident_entry > first_entry and not is_resident(
            entry_key(ENTRY_PREFIX, ledger_id, resident_entry)
        ):
            return found
        for key, value in self._table.rows(start, last + b"\0"):
            location = decode_entry(key, value)
            size += location.data_length
            if location.entry_id != first_entry + len(found) or (found and size > bytes_max):
                break
            found.append(location)
            if location.entry_id == resident_entry < last_entry:
                resident_entry = min(resident_entry + BLOCK_ROWS_MIN, last_entry)
                if not is_resident(entry_key(ENTRY_PREFIX, ledger_id, resident_entry)):
                    break
        return found

    def _is_loaded(self, key: bytes) -> bool:
        """Load the block of a key, because a disk read of an iterator stops all threads."""
        if not self._table.is_resident(key):
            self._table.load(key)
        return True

    def locations_in(
        self, file: int, ledger_id: int, first_entry: int, *, rows_max: int
    ) -> tuple[list[EntryLocation], int | None]:
        """Return which of the next entries of a ledger are in a file; looks at `rows_max` of them.

        The second value is where to go on, None at the end of the ledger.
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

        What is added meanwhile may go on waiting; it is not below the watermark then.

        Returns:
            The watermark that the flush will make durable, at least.
        """
        self._settle()
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

    def catch_up(self) -> None:
        """Write out what waits, for a writer that is too far ahead; blocks, so not on a loop."""
        self._settle()
        self.is_behind = False

    def load_locations_of(self, moves: Sequence[Move]) -> None:
        """Load the rows that `add` will look at for these moves; blocks, so not on a loop."""
        for move in moves:
            self._is_loaded(entry_key(ENTRY_PREFIX, move.ledger_id, move.entry_id))

    @property
    def _is_waiting(self) -> bool:
        return bool(self._batch.groups or self._sealed)

    def _settle(self) -> None:
        """Write out what waits now, after a sync of the log where that is needed."""
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
            self._write_waiting(wait=True)  # what was added during the sync may go on waiting

    def _write_waiting(self, *, wait: bool) -> bool:
        """Write what waits, as far as it may be written, and tell whether that was all.

        Without `wait` RocksDB may refuse for want of room.
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
        """Tell whether RocksDB could make nothing durable now that the log may lose."""
        log = self.log
        if log is None or batch.end.group <= log.synced_end.group:
            return True
        return not self._is_flushing and not self.is_large


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


def _merge_rows(
    stored: Iterable[tuple[bytes, bytes]], waiting: dict[bytes, bytes | None], *, reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Merge rows of the database with those that wait, which count where both have a key."""
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
