"""Folder import: everything that a data folder has, copied into a cluster that has nothing.

Rule: entries first, then all rows in one commit, so the import is atomic. An interrupted import
continues where it ended. Ids stay the same, and with them every position, offset and cursor. Copies
in a tier are not moved; the rows name them.
Must not know: topics, how the cluster stores anything.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from kledger.ledger.cluster.database import ClusterDatabase, SessionBroker
from kledger.ledger.cluster.owned_cluster import OwnedCluster
from kledger.ledger.cluster.standby import OwnedSession
from kledger.ledger.engine.base import CommitGroup, Row, StorageEngine
from kledger.ledger.engine.data_folder import LOG
from kledger.ledger.engine.errors import EntryMissing, StorageError
from kledger.ledger.engine.log_rocksdb import LogRocksdbEngine
from kledger.ledger.errors import Corrupt, InvalidArgument, from_engine
from kledger.ledger.metadata import keys
from kledger.ledger.metadata.records import decode_managed_ledger
from kledger.runtime.clock import boot_ms

logger = logging.getLogger(__name__)

IMPORTER: Final = -1
"""The broker id of the session that imports; no broker has it."""
GROUP_BYTES = 8 << 20
"""Entries of one object."""
ROWS_BYTES_MAX = 256 << 20
"""All rows are one commit, and in memory."""
ROWS_PER_SCAN = 2_000
_AFTER_ALL_KEYS = b"\xff"


class ImportProgress(NamedTuple):
    """What was imported, so far or in all; `size` in bytes of entries."""

    ledgers: int
    entries: int
    size: int
    rows: int = 0


class FolderImport:
    """One import; `run` blocks."""

    def __init__(self, source: StorageEngine, target: StorageEngine) -> None:
        """Args: source: the engine of the folder; target: that of the cluster's owner."""
        self._source = source
        self._target = target
        self._done = ImportProgress(0, 0, 0)

    def run(self, report: Callable[[ImportProgress], None]) -> ImportProgress:
        """Copy everything.

        Args:
            report: called after each group.

        Returns:
            What the folder has.

        Raises:
            InvalidArgument: the cluster has data already, or the folder has too many rows.
            Corrupt: an entry or a row of the folder cannot be read; the cluster has nothing of it.
            StorageError: one of the two has failed; the import may be run again.
        """
        self._check_empty()
        rows = [*self._rows()]
        self._commit(CommitGroup(rows=[row for row in rows if row[0] == keys.ID_COUNTER]))
        for ledger_id in self._ledger_ids():
            self._copy(ledger_id, report)
        self._commit(CommitGroup(rows=rows))
        self._done = self._done._replace(rows=len(rows))
        return self._done

    def _check_empty(self) -> None:
        """Refuse a cluster with rows; ids that are reserved are what a cut off import left."""
        found = self._target.scan(b"", _AFTER_ALL_KEYS, limit=2)
        if [key for key, _ in found if key != keys.ID_COUNTER]:
            raise InvalidArgument(
                "a folder is imported into a cluster without data; this one has some"
            )

    def _rows(self) -> Iterator[Row]:
        start, size = b"", 0
        while page := self._source.scan(start, _AFTER_ALL_KEYS, limit=ROWS_PER_SCAN):
            yield from page
            start = page[-1][0] + b"\0"
            size += sum(len(key) + len(value) for key, value in page)
            if size > ROWS_BYTES_MAX:
                raise InvalidArgument(
                    f"the folder has more than {ROWS_BYTES_MAX >> 20} MiB of rows"
                )

    def _ledger_ids(self) -> list[int]:
        """Return all ledgers that rows name, compacted ones too."""
        found: set[int] = set()
        for _, row in self._source.scan(*keys.managed_ledger_range()):
            head = decode_managed_ledger(row)
            found.update(head.ids_beside_list)
            of_head = self._source.scan(*keys.ledger_range(head.managed_ledger_id))
            found.update(keys.ledger_id_in(key) for key, _ in of_head)
        return sorted(found)

    def _copy(self, ledger_id: int, report: Callable[[ImportProgress], None]) -> None:
        """Copy the entries of a ledger that the cluster lacks; none if only a tier has them."""
        end = self._source.last_entry(ledger_id) + 1
        first = self._target.last_entry(ledger_id) + 1
        while first < end:
            try:
                entries = self._source.read(ledger_id, first, end - 1, GROUP_BYTES)
            except EntryMissing as error:
                raise Corrupt(f"{error}; its ledger has {end} entries") from error
            numbered = [(ledger_id, first + number, data) for number, data in enumerate(entries)]
            self._commit(CommitGroup(entries=numbered))
            first += len(entries)
            size = sum(map(len, entries))
            done = self._done
            self._done = ImportProgress(done.ledgers, done.entries + len(entries), done.size + size)
            report(self._done)
        self._done = self._done._replace(ledgers=self._done.ledgers + (end > 0))

    def _commit(self, group: CommitGroup) -> None:
        self._target.commit(group, sync=True)
        self._target.index(group)


def import_data_folder(
    database: ClusterDatabase,
    folder: Path,
    *,
    options: Mapping[str, object],
    report: Callable[[ImportProgress], None],
) -> ImportProgress:
    """Own a cluster for as long as a data folder is copied into it; blocks.

    Args:
        database: of the cluster.
        folder: of a server that does not run.
        options: of the cluster's object store.
        report: called after each group.

    Raises:
        DatabaseError: the database failed.
        LedgerError: as `FolderImport.run`, or the folder or the object store cannot be used, or a
            broker owns the cluster.
    """
    if not (folder / LOG).is_dir():
        raise InvalidArgument(f"{folder}: expected the data folder of a server, found none")
    cluster = database.describe()
    if cluster.nodes > 1:
        raise InvalidArgument(
            f"a folder is imported into a cluster with one node; this one has {cluster.nodes}"
        )
    session = database.begin_session(SessionBroker(IMPORTER))
    try:
        acquired_at_ms = boot_ms()
        acquired = database.acquire(session)
        if acquired is None:
            raise InvalidArgument("a broker owns the cluster: stop all brokers before an import")
        owned = OwnedCluster(
            database,
            cluster,
            OwnedSession(session, acquired, acquired_at_ms),
            options=options,
            on_failed=lambda reason: logger.error("the import ends: %s", reason),
        )
        with ExitStack() as closing:
            source = LogRocksdbEngine(folder)
            closing.callback(source.close)
            owned.open()
            closing.callback(owned.close)
            return FolderImport(source, owned.engine).run(report)
    except StorageError as error:
        raise from_engine(error) from error
    finally:
        database.end_session(session)
