"""Index image: opens the index of a stopped store without changing its folder.

Rule: table files are links, as they never change once they exist; everything that RocksDB writes to
is a copy. Groups replayed into the image are lost with it.
Must not know: what the rows mean.
"""

import shutil
import tempfile
from contextlib import suppress
from itertools import islice
from pathlib import Path

from kledger.ledger.engine.errors import StorageError
from kledger.ledger.engine.index.index_keys import (
    ENTRY_END,
    ENTRY_PREFIX,
    EntryLocation,
    decode_entry,
    entry_key,
    ledger_id_in,
    ledger_range,
)
from kledger.ledger.engine.index.log_index import LogIndex
from kledger.ledger.engine.index.rocksdb_table import RocksdbTable
from kledger.ledger.engine.index.space_plan import LogSpace
from kledger.ledger.engine.log.frames import HEADER_SIZE
from kledger.ledger.engine.log.log_scan import LogScan

_LEFT_BEHIND = {"LOCK", "LOG"}
_EVERYTHING = b"", b"\xff"


class IndexImage:
    """A temporary copy of an index; groups may be replayed into `index`."""

    def __init__(self, source: Path | None) -> None:
        """Open it and read every row once; None makes an empty index.

        Raises:
            StorageError: it is damaged; the message has the path of the source.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="kledger-index-")
        target = Path(self._folder.name)
        try:
            _link(source, target)
            self._table = RocksdbTable(target)
            try:
                for _ in self._table.rows(*_EVERYTHING):
                    pass
                self.index = LogIndex(self._table)
            except BaseException:
                self._table.close()
                raise
        except StorageError as error:
            self._folder.cleanup()
            message = str(error).replace(str(target), str(source or target))
            raise type(error)(message) from error
        except BaseException:
            self._folder.cleanup()
            raise

    def replay(self, scan: LogScan) -> None:
        """Index the groups after the watermark."""
        for placed in scan.groups():
            self.index.add(placed)
        self.settle()

    def settle(self) -> None:
        """Make the added groups visible to scans of the table."""
        self.index.begin_flush()
        self.index.end_flush()

    def ledger_ids(self) -> list[int]:
        """Return the ids of all ledgers that have entries."""
        found: list[int] = []
        start = ENTRY_PREFIX
        while row := next(self._table.rows(start, ENTRY_END), None):
            found.append(ledger_id_in(row[0]))
            start = ledger_range(found[-1] + 1)[0]
        return found

    def count_space(self) -> LogSpace:
        """Compute the space rows from the rows of entries."""
        space = LogSpace()
        for key, value in self._table.rows(ENTRY_PREFIX, ENTRY_END):
            ledger_id, location = ledger_id_in(key), decode_entry(key, value)
            ledgers = space.ledgers_in(location.file)
            ledgers[ledger_id] = ledgers.get(ledger_id, 0) + HEADER_SIZE + location.data_length
        return space

    def locations(self, ledger_id: int, first_entry: int, count_max: int) -> list[EntryLocation]:
        """Return the locations of the next existing entries, even with gaps between them."""
        start, end = entry_key(ENTRY_PREFIX, ledger_id, first_entry), ledger_range(ledger_id)[1]
        rows = islice(self._table.rows(start, end), count_max)
        return [decode_entry(key, value) for key, value in rows]

    def close(self) -> None:
        """Remove the image."""
        with suppress(StorageError):
            self.index.close()
        self._folder.cleanup()


def _link(source: Path | None, target: Path) -> None:
    if source is None or not source.is_dir():
        return  # a start creates a new index and replays the whole log
    for path in source.iterdir():
        if path.suffix == ".sst":
            (target / path.name).symlink_to(path.absolute())
        elif path.is_file() and path.name not in _LEFT_BEHIND:
            shutil.copyfile(path, target / path.name)
