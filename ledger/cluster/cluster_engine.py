"""Engine without a disk: entries in an object store, their order and the rows in a database.

Rule: a group exists, and is durable, when the database has answered its commit; its entries are
stored before. Only the session that owns the cluster commits. After it was fenced, every change
raises SyncFailed; reads return committed data, which may not be the newest.
Must not know: how a session becomes the owner, what entries and rows mean.

| what               | where it is                                                              |
|--------------------|--------------------------------------------------------------------------|
| entries of a group | one object (`object_format`), or inline in the row of the group          |
| rows               | rows of the database, with a copy in `LocalRows`                         |
| where entries are  | `WalIndex` in memory; stored as rows now and then, with the footers of   |
|                    | later groups it is made again when another session becomes the owner     |

Decision: docs/decisions/0045-cluster-engine.md.
"""

import logging
from collections.abc import Callable
from threading import Event, Thread
from uuid import UUID

from kledger.ledger.cluster.block_reader import BlockReader
from kledger.ledger.cluster.commit_stream import CommitStream
from kledger.ledger.cluster.database import INLINE_BYTES_MAX, ClusterDatabase
from kledger.ledger.cluster.group_encoder import WalGroupEncoder
from kledger.ledger.cluster.group_log import STORE_ROWS, EncodedGroup, GroupLog
from kledger.ledger.cluster.local_rows import LocalRows
from kledger.ledger.cluster.object_format import blocks_of
from kledger.ledger.cluster.object_writer import ObjectWriter
from kledger.ledger.cluster.session_state import is_current
from kledger.ledger.cluster.takeover import Takeover
from kledger.ledger.cluster.upkeep import Upkeep
from kledger.ledger.cluster.wal_cache import WalCache
from kledger.ledger.cluster.wal_gc_plan import GarbageLimits
from kledger.ledger.cluster.wal_index import WalIndex
from kledger.ledger.cluster.wal_objects import WalObjects
from kledger.ledger.cluster.wal_plan import WalLimits
from kledger.ledger.engine.base import Buffer, CommitGroup
from kledger.ledger.engine.errors import StorageError, SyncFailed

logger = logging.getLogger(__name__)

UPKEEP_S = 0.5
"""Time between two rounds of the upkeep."""
HEARTBEAT_S = 0.25
"""Time between two looks whether a heartbeat is due."""


class ClusterEngine:
    """A `StorageEngine` for the session that owns a cluster."""

    needs_thread = True
    is_behind = False

    def __init__(
        self,
        database: ClusterDatabase,
        stream: CommitStream,
        objects: WalObjects,
        *,
        incarnation: UUID,
        now_ms: Callable[[], int],
        limits: WalLimits | None = None,
        garbage: GarbageLimits | None = None,
        cache: WalCache | None = None,
        on_failed: Callable[[str], None] | None = None,
    ) -> None:
        """Load everything that earlier owners have committed; blocks.

        Args:
            database: of the cluster; not closed with the engine.
            stream: of the session that owns it.
            objects: of the cluster's object store; not closed with the engine.
            incarnation: of the cluster.
            now_ms: time that goes on while the machine sleeps, the same as that of `stream`.
            limits: of the writing of groups.
            garbage: when groups are written again.
            cache: of bytes of objects.
            on_failed: called once, in some thread, when the engine has ended; it must not block.

        Raises:
            StorageError: something could not be loaded.
            IndexCorrupt, LogCorrupt: something is damaged; nothing was changed.
        """
        limits = limits or WalLimits()
        if limits.inline_group_bytes_max * 2 > INLINE_BYTES_MAX:
            raise ValueError(f"inline_group_bytes_max: expected at most {INLINE_BYTES_MAX // 2}, "
                             f"got {limits.inline_group_bytes_max}")  # fmt: skip
        self._now_ms = now_ms
        self._objects = objects
        self._rows = LocalRows()
        takeover = Takeover(database, objects, incarnation, stream, now_ms=now_ms)
        try:
            takeover.load_rows(self._rows)
            index = takeover.load_index()
        except BaseException:
            self._rows.close()
            raise
        self._log = GroupLog(
            stream,
            index,
            self._rows,
            cache or WalCache(),
            now_ms=now_ms,
            on_failed=on_failed or _ignore_failure,
        )
        self.writer = ObjectWriter(objects, limits, now_ms=now_ms)
        self.encoder = WalGroupEncoder(
            self.writer, limits, incarnation=incarnation, epoch=stream.epoch, now_ms=now_ms
        )
        self.reader = BlockReader(self._log, objects)
        self.upkeep = Upkeep(
            self._log, objects, self.writer, self.encoder, garbage or GarbageLimits(), now_ms=now_ms
        )
        self._ending = Event()
        self._threads: list[Thread] = []
        self._is_closed = False

    # For the program

    def start_upkeep(self) -> None:
        """Begin heartbeats and upkeep, in two threads: one may wait for the object store."""
        for name, step, pause_s in (
            ("cluster heartbeat", self.upkeep.heartbeat, HEARTBEAT_S),
            ("cluster upkeep", self.upkeep.step, UPKEEP_S),
        ):
            thread = Thread(target=self._repeat, args=(step, pause_s), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def is_current(self) -> bool:
        """Whether no other session can have become the owner meanwhile.

        An answer that says what is newest is true only if it was found while this holds.
        """
        if self._log.failure is not None:
            return False
        return is_current(answered_at_ms=self._log.stream.answered_at_ms, now_ms=self._now_ms())

    def ask_index(self, question: Callable[[WalIndex], int]) -> int:
        """Return a figure of the index for metrics, under its lock."""
        return self._log.ask(question)

    @property
    def cache_bytes(self) -> int:
        """Bytes of objects in memory."""
        return self._log.cache.size

    @property
    def failure(self) -> str | None:
        """Why the engine has ended; None: it has not."""
        return self._log.failure

    @property
    def epoch(self) -> int:
        """The epoch of the owner: Kafka's leader epoch."""
        return self._log.stream.epoch

    # StorageEngine

    def commit_delay_ms(self, size: int) -> int:
        """Return the time until the PUT of a group may begin; 0 for one that goes inline."""
        return self.encoder.delay_ms(size)

    def commit(self, group: CommitGroup, *, sync: bool) -> None:
        """Store a group and commit it, always for good; see `StorageEngine`."""
        self._refuse_when_closed()
        self._log.refuse_after_failure()
        self._log.commit(group, self._encoded(group))

    def index(self, group: CommitGroup) -> None:
        """Make the oldest committed group visible."""
        self._refuse_when_closed()
        self._log.apply(group)

    def read(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[Buffer]:
        """Return entries; see `StorageEngine`. Some objects are read at most, then it ends."""
        self._refuse_when_closed()
        return self.reader.read(ledger_id, first_entry, last_entry, bytes_max)

    def read_resident(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[Buffer] | None:
        """Return entries that are inline or in memory; see `StorageEngine`."""
        self._refuse_when_closed()
        return self.reader.read_resident(ledger_id, first_entry, last_entry, bytes_max)

    def last_entry(self, ledger_id: int) -> int:
        """Return the newest entry id of a ledger."""
        self._refuse_when_closed()
        return self._log.last_entry(ledger_id)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a row."""
        self._refuse_when_closed()
        return self._rows.get(STORE_ROWS + key)

    def scan(
        self, start: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        """Return rows; see `StorageEngine`."""
        self._refuse_when_closed()
        found = self._rows.scan(STORE_ROWS + start, STORE_ROWS + end, reverse=reverse, limit=limit)
        return [(key[len(STORE_ROWS) :], value) for key, value in found]

    def checkpoint_due(self) -> bool:
        """Return False: the upkeep stores the index."""
        return False

    def checkpoint(self) -> None:
        """Do nothing: everything committed is durable."""
        self._refuse_when_closed()
        self._log.refuse_after_failure()

    def next_moves(self, *, dead_share_max: float, bytes_max: int) -> CommitGroup | None:
        """Return None: the upkeep writes again what is worth it."""
        return None

    def release_waiting(self) -> None:
        """Do nothing: a commit in flight must not be cut off."""

    def close(self) -> None:
        """Store the index, so that the next owner reads no footers; end the upkeep. Repeatable."""
        if self._is_closed:
            return
        self._ending.set()
        if not self.is_current():
            self._log.stream.stop()  # the database is unavailable, and nobody waits for it any more
        for thread in self._threads:
            thread.join()
        try:
            if self._log.failure is None:
                self.upkeep.store_index()
        except StorageError as error:
            logger.warning("closing without a stored index, the next start reads more: %s", error)
        self._is_closed = True
        self.writer.stop()
        self._rows.close()
        self._log.cache.clear()  # objects in reference cycles would keep it for long

    # Inside

    def _encoded(self, group: CommitGroup) -> EncodedGroup | None:
        """Store the entries and drops of a group; None if it has none.

        The engine makes no moves, so those of a group are of another one: nothing is moved.
        """
        entries = group.entries
        if group.moves:
            moved = {(move.ledger_id, move.entry_id) for move in group.moves}
            entries = [each for each in entries if each[:2] not in moved]
        if not (entries or group.drops):
            return None
        inline_bytes = self._log.ask(lambda index: index.inline_bytes)
        return self.encoder.encode(blocks_of(entries), group.drops, inline_bytes=inline_bytes)

    def _repeat(self, step: Callable[[], None], pause_s: float) -> None:
        while not self._ending.wait(pause_s):
            try:
                step()
            except SyncFailed:
                return  # `on_failed` was called
            except Exception:
                logger.exception("a round of the upkeep failed")

    def _refuse_when_closed(self) -> None:
        if self._is_closed:
            raise StorageError("the engine is closed")


def _ignore_failure(reason: str) -> None:
    """Stand for `on_failed`; the store on top finds out at its next commit."""
