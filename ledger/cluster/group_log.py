"""Group log: the committed groups of an owner, in order, and the index and rows that they make.

Rule: a group is first committed in the database, then applied, in the order of commits. Two threads
commit: the committer's, which calls for the application of its groups, and the engine's upkeep,
whose groups are applied as soon as all earlier ones are. After a commit that found the session
closed, or whose outcome stays unknown, nothing is committed any more.
Must not know: objects, how groups are encoded.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock, RLock
from typing import TypeVar

from kledger.ledger.cluster.commit_stream import CommitStream, StreamStopped
from kledger.ledger.cluster.database import Change, DatabaseError, GroupId, WalGroup
from kledger.ledger.cluster.local_rows import LocalRows
from kledger.ledger.cluster.object_format import ObjectFooter
from kledger.ledger.cluster.wal_cache import WalCache
from kledger.ledger.cluster.wal_index import BlockLocation, WalIndex
from kledger.ledger.engine.base import Buffer, CommitGroup, Row
from kledger.ledger.engine.errors import SyncFailed

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

STORE_ROWS = b"r"
"""What the keys of a store's rows begin with in the database."""
INDEX_ROWS = b"i"
"""The same of the rows of the index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedGroup:
    """The entries and drops of a group as they are stored.

    Attributes:
        wal: where they are.
        footer: what they change in the index.
        data: all bytes, for the cache.
    """

    wal: WalGroup
    footer: ObjectFooter
    data: Buffer


@dataclass(frozen=True, slots=True)
class _CommittedGroup:
    """A group that is to be applied; `group` is None if it is the engine's own."""

    group: CommitGroup | None
    group_id: GroupId
    encoded: EncodedGroup | None


class GroupLog:
    """The log of one owner; every method may be called in any thread."""

    def __init__(
        self,
        stream: CommitStream,
        index: WalIndex,
        rows: LocalRows,
        cache: WalCache,
        *,
        now_ms: Callable[[], int],
        on_failed: Callable[[str], None],
    ) -> None:
        """Continue after a takeover.

        Args:
            stream: of the session that owns the cluster.
            index: with all groups in it.
            rows: all rows of the store, with `STORE_ROWS`.
            cache: gets the bytes of new groups.
            now_ms: a monotonic clock.
            on_failed: called once, in the thread that finds that the log has ended.
        """
        self.failure: str | None = None
        """Why nothing can be committed any more."""
        self.stream = stream
        self.rows = rows
        self.cache = cache
        self._index = index
        self._now_ms = now_ms
        self._on_failed = on_failed
        self._committing = Lock()
        self._applying = RLock()
        self._committed: deque[_CommittedGroup] = deque()

    # Changes

    def commit(self, group: CommitGroup, encoded: EncodedGroup | None) -> None:
        """Commit a group of the committer.

        Raises:
            SyncFailed: the log has ended; whether the group is there is unknown.
        """
        rows = [(STORE_ROWS + key, value) for key, value in group.rows]
        self._commit(group, encoded, Change(group=encoded.wal if encoded else None, rows=rows))

    def commit_own(
        self,
        encoded: EncodedGroup | None = None,
        *,
        rows: Sequence[Row] = (),
        forgotten: Sequence[GroupId] = (),
    ) -> None:
        """Commit a change of the engine itself; empty, it shows that the owner lives.

        Args:
            encoded: entries that are somewhere else now.
            rows: of the index.
            forgotten: groups that are not needed any more.

        Raises:
            SyncFailed: as `commit`.
        """
        stored = [(INDEX_ROWS + key, value) for key, value in rows]
        wal = encoded.wal if encoded else None
        change = Change(group=wal, rows=stored, forgotten=forgotten)
        self._commit(None, encoded, change)
        with self._applying:
            self._apply_own()

    def _commit(
        self, group: CommitGroup | None, encoded: EncodedGroup | None, change: Change
    ) -> None:
        with self._committing:
            self.refuse_after_failure()
            try:
                group_id = self.stream.commit(change)
            except (DatabaseError, StreamStopped) as error:
                self._fail(str(error))
                raise SyncFailed(str(error)) from error
            if group is not None or encoded is not None:
                self._committed.append(_CommittedGroup(group, group_id, encoded))

    def apply(self, group: CommitGroup) -> None:
        """Make the oldest group of the committer visible."""
        with self._applying:
            self._apply_own()
            oldest = self._committed.popleft()
            assert oldest.group is group, "groups are indexed in the order of their commits"
            self._apply(oldest)
            self._apply_own()

    def _apply_own(self) -> None:
        while self._committed and self._committed[0].group is None:
            self._apply(self._committed.popleft())

    def _apply(self, committed: _CommittedGroup) -> None:
        group, group_id, encoded = committed.group, committed.group_id, committed.encoded
        if encoded is not None:
            file = self._index.add_file(group_id, encoded.wal, self._now_ms())
            self._index.add(group_id, encoded.footer)
            if encoded.wal.object_key is not None:
                self.cache.put_group(file, encoded.data)
        if group is not None and group.rows:
            self.rows.apply((STORE_ROWS + key, value) for key, value in group.rows)

    def fail(self, reason: str) -> None:
        """End the log."""
        with self._committing:
            self._fail(reason)

    def _fail(self, reason: str) -> None:
        if self.failure is None:
            self.failure = reason
            logger.error("this process does not own the cluster any more: %s", reason)
            self._on_failed(reason)

    def refuse_after_failure(self) -> None:
        """Raises SyncFailed: the log has ended."""
        if self.failure is not None:
            raise SyncFailed(self.failure)

    # Questions

    def locations(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[BlockLocation]:
        """Return where entries are; see `WalIndex.locations`."""
        with self._applying:
            return self._index.locations(ledger_id, first_entry, last_entry, bytes_max)

    def group_at(self, file: int) -> WalGroup | None:
        """Return where a group is; None if it is forgotten."""
        with self._applying:
            use = self._index.files.get(file)
        return None if use is None else use.group

    def last_entry(self, ledger_id: int) -> int:
        """Return the newest entry of a ledger, -1 if there is none."""
        with self._applying:
            return self._index.last_entry(ledger_id)

    def ask(self, question: Callable[[WalIndex], Result]) -> Result:
        """Return the answer to a question to the index, which changes meanwhile by it alone."""
        with self._applying:
            return question(self._index)
