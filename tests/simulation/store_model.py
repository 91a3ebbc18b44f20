"""Store model: the writes of a whole store, and the checks that hold at every moment.

Rule: all writes of `append_nowait` and `append_rows_nowait` are one stream, whose callbacks run in
its order; a crash loses a tail of it, never a write before another that is kept.
Must not know: the order of steps in a run.
"""

from collections import deque
from collections.abc import Sequence

from kledger.ledger import (
    COMPACTION_CURSOR,
    Buffer,
    Fenced,
    LedgerError,
    LedgerInfo,
    LedgerState,
    LedgerStore,
    ManagedLedger,
    ManagedLedgerConfig,
    Position,
    StorageFailed,
)
from kledger.ledger.engine.base import Row
from tests.simulation.clock import SimulatedClock
from tests.simulation.compaction_model import CompactedState
from tests.simulation.disk import Disk
from tests.simulation.entries import Key, batch, plain, serial_of
from tests.simulation.invariants import InvariantBroken, check
from tests.simulation.log_model import (
    HandleModel,
    LogModel,
    Removal,
    Write,
    WriteOutcome,
    check_removal,
)

UNREADABLE = {LedgerState.CLOSED, LedgerState.FENCED, LedgerState.FENCED_FOR_DELETION}


class StoreModel:
    """The expected content of one store, over all lives."""

    def __init__(self, disk: Disk, clock: SimulatedClock, *, sync: bool) -> None:
        self.logs: dict[str, LogModel] = {}
        self.writes: dict[int, Write] = {}
        self.stream: deque[Write] = deque()
        """Writes whose callbacks have not run, in the order of submission."""
        self.unknown: list[Write] = []
        """Writes of the stream whose outcome is unknown, in the order of submission."""
        self.rows: dict[bytes, bytes] = {}
        self.row_choices: dict[bytes, set[bytes | None]] = {}
        """Rows of `put_rows`, with all possible values."""
        self.compacted_states: dict[int, CompactedState] = {}
        """What completions may have stored, by the id of the ledger."""
        self.may_lack_acknowledged = False
        """Whether the power was cut under a durability that gives no guarantee then."""
        self._disk = disk
        self._clock = clock
        self._sync = sync
        self._serial = 0
        self._handles = 0

    # Writes

    def new_write(
        self,
        handle: HandleModel | None,
        size: int,
        rows: Sequence[Row] = (),
        keys: Sequence[Key] = (),
    ) -> Write:
        """Make a write with unique bytes: a batch of records with these keys, if any."""
        self._serial += 1
        data = batch(self._serial, keys) if keys else plain(self._serial, size)
        log = handle.log if handle else None
        write = Write(self._serial, log, handle, self._clock.now_ms(), data, rows, keys=keys)
        self.writes[write.serial] = write
        return write

    def submitted(self, write: Write, position: Position | None = None) -> None:
        """Record that a write of the stream was accepted."""
        handle = write.handle
        if handle is not None and position is not None:
            write.position = position
            check(not handle.is_stale, f"{handle}: a stale handle appended at {position}")
            check(handle.log.ended != {True}, f"{handle}: {position} is after the end")
            if handle.submitted is not None and position <= handle.submitted:
                raise InvariantBroken(f"{handle}: {position} was assigned after {handle.submitted}")
            if handle.log.order and position <= handle.log.order[-1]:
                raise InvariantBroken(
                    f"{handle}: {position} was assigned, {handle.log.order[-1]} exists"
                )
            handle.submitted = position
        self.stream.append(write)

    def completed(self, write: Write, position: Position | None, error: LedgerError | None) -> None:
        """Check the outcome that the callback of a write of the stream got."""
        if not self.stream or self.stream[0] is not write:
            raise InvariantBroken(
                f"{write}: completed out of order or twice, waiting: {self._first_waiting()}"
            )
        self.stream.popleft()
        if position is not None and position != write.position:
            raise InvariantBroken(
                f"{write}: completed at {position}, was assigned {write.position}"
            )
        if error is None:
            self._kept(write)
        elif isinstance(error, StorageFailed):
            write.outcome = WriteOutcome.REFUSED
            self.forget_submitted(write)
        elif isinstance(error, Fenced):
            write.outcome = WriteOutcome.UNKNOWN
            self.unknown.append(write)
        else:
            raise InvariantBroken(f"{write}: failed with {error!r}")

    def forget_submitted(self, write: Write) -> None:
        """Record a failure: ids continue after the last confirmed entry."""
        if write.handle is not None:
            write.handle.submitted = None

    def _kept(self, write: Write) -> None:
        write.outcome = WriteOutcome.KEPT
        apply_rows(self.rows, write.rows)
        handle, position = write.handle, write.position
        if handle is None or position is None:
            return
        check(not handle.is_stale, f"{handle}: a stale handle acknowledged {position}")
        self.check_safe(handle, position)
        lac = handle.ml.last_confirmed_entry
        if lac != position:
            raise InvariantBroken(
                f"{handle}: {position} completed, but the last confirmed entry is {lac}"
            )
        handle.log.keep(position, write.data)
        cached = None
        if handle.ml.state not in UNREADABLE:
            cached = handle.ml.read_cached(position, 1)
        if cached is not None and [(position, write.data)] != [
            (e.position, e.data) for e in cached
        ]:
            raise InvariantBroken(f"{handle}: {position} completed, but cannot be read: {cached}")

    def check_safe(self, handle: HandleModel, position: Position) -> None:
        """Check that a confirmed entry is as durable as configured."""
        if not self._disk.is_safe(*position, sync=self._sync):
            raise InvariantBroken(
                f"{handle}: {position} is confirmed, but not as durable as configured"
            )

    def added(self, write: Write, position: Position) -> None:
        """Record that `add_entry` returned a position."""
        handle = write.handle
        assert handle is not None
        if handle.is_stale and position > handle.lac:
            raise InvariantBroken(f"{handle}: a stale handle added {position}")
        if write.position not in {None, position}:
            raise InvariantBroken(f"{write}: was read at {write.position}, completed at {position}")
        self.check_safe(handle, position)
        self.seen(write, position)

    def seen(self, write: Write, position: Position) -> None:
        """Record the position of a write that is not in the stream."""
        write.position = position
        write.outcome = WriteOutcome.KEPT
        assert write.log is not None
        write.log.keep(position, write.data)

    def recognise(self, log: LogModel, position: Position, data: bytes) -> None:
        """Check an entry that was read: it was written there, or may have been."""
        known = log.data.get(position)
        if known is not None:
            if known != data:
                raise InvariantBroken(
                    f"{log.name} {position}: read {data[:20]!r}, expected {known[:20]!r}"
                )
            return
        write = self.write_of(data)
        if write is None or write.data != data or write.log is not log:
            raise InvariantBroken(
                f"{log.name} {position}: read {data[:20]!r}, which was never written there"
            )
        if write.outcome is WriteOutcome.REFUSED or write.outcome is WriteOutcome.KEPT:
            raise InvariantBroken(
                f"{log.name} {position}: {write} exists, but was {write.outcome.name}"
            )
        if write.position not in {None, position}:
            raise InvariantBroken(f"{log.name} {position}: {write} belongs to {write.position}")
        if write.outcome is WriteOutcome.WAITING and write in self.stream:
            raise InvariantBroken(f"{log.name} {position}: {write} was read, but not acknowledged")
        self.seen(write, position)

    def time_of(self, data: bytes) -> int:
        """Return when an entry was first appended; these times ascend along a log."""
        write = self.write_of(data)
        assert write is not None
        return write.now_ms

    def write_of(self, data: Buffer) -> Write | None:
        """Return the write with these bytes."""
        serial = serial_of(data)
        return None if serial is None else self.writes.get(serial)

    def _first_waiting(self) -> str:
        return str(self.stream[0]) if self.stream else "none"

    # Handles

    def opened(self, log: LogModel, ml: ManagedLedger, config: ManagedLedgerConfig) -> HandleModel:
        """Record the new handle of a managed ledger."""
        if log.handle is not None:
            log.handle.is_stale = True
        self._handles += 1
        handle = HandleModel(self._handles, log, ml, [config], ml.last_confirmed_entry, ml.ledgers)
        log.handle = handle
        ml.add_listener(lambda: self.observe(handle))
        self._check_new_lac(handle)
        log.see_copies(ml.ledgers)
        log.compaction.see(ml.compacted)
        log.compaction.settle()
        return handle

    def _check_new_lac(self, handle: HandleModel) -> None:
        """Check that a new handle sees all acknowledged entries, and none after them."""
        present = handle.log.present()
        if present and handle.lac < present[-1]:
            raise InvariantBroken(
                f"{handle}: {present[-1]} was acknowledged, the new handle has {handle.lac}"
            )

    def observe(self, handle: HandleModel) -> None:
        """Check a handle; cheap enough for every change."""
        ml, log = handle.ml, handle.log
        lac, infos = ml.last_confirmed_entry, ml.ledgers
        if lac < handle.lac:
            raise InvariantBroken(
                f"{handle}: the last confirmed entry moved from {handle.lac} back to {lac}"
            )
        if lac != handle.lac:
            check(not handle.is_stale, f"{handle}: a stale handle confirmed {lac}")
            self.check_safe(handle, lac)
        if infos != handle.infos:
            log.see_copies(infos)
            check(not handle.is_stale, f"{handle}: a stale handle changed its ledgers")
            ids = {info.ledger_id for info in infos}
            removed = [info for info in handle.infos if info.ledger_id not in ids]
            if removed:
                total = ml.total_size + sum(info.size for info in removed)
                check_removal(handle, removed, total, self._clock.now_ms())
                log.note_gone(info.ledger_id for info in removed if info.entries)
                if any(info.ledger_id <= log.gone_upto and info.entries for info in infos):
                    raise InvariantBroken(f"{handle}: a ledger in the middle was removed")
        handle.lac, handle.infos = lac, infos
        if not handle.is_stale:
            log.compaction.see(ml.compacted)

    def observe_all(self) -> None:
        """Check every handle."""
        for log in self.logs.values():
            if log.handle is not None:
                self.observe(log.handle)

    def check_row(self, store: LedgerStore, key: bytes) -> None:
        """Check that a row of the stream exists exactly if its write was acknowledged."""
        found, expected = store.get_row(key), self.rows.get(key)
        if found != expected:
            raise InvariantBroken(f"row {key!r}: found {found!r}, expected {expected!r}")

    # Cursors

    def is_cursor_known(self, name: str, cursor: str) -> bool:
        """Return whether the creation of a durable cursor of that name was reported."""
        if cursor == COMPACTION_CURSOR:
            return self.logs[name].compaction.has_cursor
        model = self.logs[name].cursors.get(cursor)
        return model is not None and model.exists == {True} and not model.is_vague

    def is_taken(self, name: str, info: LedgerInfo) -> bool:
        """Return whether a ledger was removed on request, whatever cursors have acknowledged."""
        return Removal(self.logs[name].raised).covers(info)

    # The end of a handle

    def lose_all(self) -> None:
        """Record the end of the process or of the store: pending callbacks never run."""
        while self.stream:
            write = self.stream.popleft()
            write.outcome = WriteOutcome.UNKNOWN
            self.unknown.append(write)
        for log in self.logs.values():
            if log.handle is not None:
                log.handle.is_stale = True


def apply_rows(state: dict[bytes, bytes], rows: Sequence[Row]) -> None:
    """Put rows, or delete them."""
    for key, value in rows:
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
