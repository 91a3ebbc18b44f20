"""Takeover: what a new owner loads before it serves: rows, the index, and groups after it.

Rule: the session that loads owns the cluster already, so no other one commits. A group whose footer
cannot be read ends the takeover: skipping it would lose acknowledged records.
Must not know: sessions, how groups come about.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import islice
from uuid import UUID

from kledger.ledger.cluster.commit_stream import CommitStream, StreamStopped
from kledger.ledger.cluster.database import (
    Change,
    ClusterDatabase,
    DatabaseError,
    GroupId,
    StoredGroup,
    WalGroup,
)
from kledger.ledger.cluster.group_log import INDEX_ROWS, STORE_ROWS
from kledger.ledger.cluster.local_rows import LocalRows
from kledger.ledger.cluster.object_format import ObjectDamaged, ObjectName, decode_footer
from kledger.ledger.cluster.wal_index import IndexRowDamaged, WalIndex
from kledger.ledger.cluster.wal_objects import ObjectStoreFailed, WalObjects
from kledger.ledger.engine.base import Buffer
from kledger.ledger.engine.errors import IndexCorrupt, LogCorrupt, StorageError, SyncFailed

HEARTBEAT_MS = 1000
FOOTERS_AT_ONCE = 32
MISSING_MS = 10_000
STEP_MS = 250


class Takeover:
    """Loads one cluster; used once, in any thread."""

    def __init__(
        self,
        database: ClusterDatabase,
        objects: WalObjects,
        incarnation: UUID,
        stream: CommitStream,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        """Args: stream: of the owner, which shows meanwhile that it lives; now_ms: its clock."""
        self.footers = 0
        """How many were read from objects."""
        self._database = database
        self._objects = objects
        self._incarnation = incarnation
        self._stream = stream
        self._now_ms = now_ms

    def load_rows(self, rows: LocalRows) -> None:
        """Load the rows of the store.

        Raises:
            StorageError: the database or the temporary folder has failed.
        """
        try:
            for page in self._database.rows(STORE_ROWS, _after(STORE_ROWS)):
                rows.apply(page)
                self._commit_heartbeat()
        except DatabaseError as error:
            raise StorageError(f"the rows cannot be loaded: {error}") from error

    def load_index(self) -> WalIndex:
        """Load the stored index, and add the groups after it.

        Raises:
            StorageError: the database or the object store has failed; the next try may succeed.
            IndexCorrupt, LogCorrupt: a row or a footer cannot be read.
        """
        index = WalIndex()
        try:
            ids = self._load_files(index)
            for page in self._database.rows(INDEX_ROWS, _after(INDEX_ROWS)):
                for key, value in page:
                    index.load_row(key[len(INDEX_ROWS) :], value)
                self._commit_heartbeat()
        except DatabaseError as error:
            raise StorageError(f"the index cannot be loaded: {error}") from error
        except IndexRowDamaged as error:
            raise IndexCorrupt(str(error)) from error
        newer = [each for each in ids if each.group_id > index.stored_upto]
        for stored, data in self._footers(newer):
            name_shown = stored.wal.object_key or "an inline group"
            try:
                name = self._name_of(stored.wal)
                footer = decode_footer(data, name_shown, name, stored.wal.footer_at)
            except ObjectDamaged as error:
                raise LogCorrupt(error.name, error.position, error.reason) from error
            index.add(stored.group_id, footer)
            self._commit_heartbeat()
        return index

    def _load_files(self, index: WalIndex) -> list[StoredGroup]:
        stored: list[StoredGroup] = []
        now_ms = self._now_ms()
        for page in self._database.groups():
            stored += page
            for group_id, wal in page:
                index.add_file(group_id, wal, now_ms)
            self._commit_heartbeat()
        return stored

    def _commit_heartbeat(self) -> None:
        """Commit an empty change once a second: no standby may fence this owner while it loads."""
        if self._now_ms() - self._stream.answered_at_ms >= HEARTBEAT_MS:
            try:
                self._stream.commit(Change())
            except (DatabaseError, StreamStopped) as error:
                raise SyncFailed(f"the cluster was lost while it was loaded: {error}") from error

    def _name_of(self, wal: WalGroup) -> ObjectName:
        """Return what a group was written for. Raises ObjectDamaged: its key is not ours."""
        if wal.object_key is None:
            name = ObjectName.of_header(wal.inline or b"", "an inline group")
        else:
            name = ObjectName.of_key(wal.object_key)
        return name._replace(incarnation=self._incarnation)

    def _footers(self, groups: list[StoredGroup]) -> Iterator[tuple[StoredGroup, Buffer]]:
        """Read footers, in order, some at once."""
        left = iter(groups)
        under_way = deque((each, self._begin(each.wal)) for each in islice(left, FOOTERS_AT_ONCE))
        while under_way:
            stored, request = under_way.popleft()
            yield stored, self._result(stored, request)
            under_way += ((each, self._begin(each.wal)) for each in islice(left, 1))

    def _begin(self, wal: WalGroup) -> "Future[Buffer]":
        length = wal.size - wal.footer_at
        if wal.inline is not None:
            done: Future[Buffer] = Future()
            done.set_result(memoryview(wal.inline)[wal.footer_at :])
            return done
        assert wal.object_key is not None, "a group is inline or an object"
        self.footers += 1
        return self._objects.begin_get(wal.object_key, wal.at + wal.footer_at, length)

    def _result(self, stored: StoredGroup, request: "Future[Buffer]") -> Buffer:
        """Wait for a footer; a store that lacks it or fails is asked again for some time."""
        waited_ms = 0
        while True:
            try:
                return request.result()
            except ObjectStoreFailed as error:
                if waited_ms >= MISSING_MS:
                    group_id: GroupId = stored.group_id
                    raise StorageError(f"{group_id} cannot be read: {error}") from error
            self._objects.wait((), STEP_MS)
            waited_ms += STEP_MS
            request = self._begin(stored.wal)


def _after(prefix: bytes) -> bytes:
    return bytes([prefix[0] + 1])
