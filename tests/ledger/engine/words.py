"""Words for engine tests: groups that say what is in them, and what an engine holds."""

from pathlib import Path

from kledger.ledger.engine.base import CommitGroup, StorageEngine
from kledger.ledger.engine.log.entry_log import PlacedGroup
from kledger.ledger.engine.log_rocksdb import LogRocksdbEngine


def payload(number: int, size: int = 40) -> bytes:
    """Return data that no other entry has."""
    return (b"%08d-" % number * (size // 9 + 1))[:size]


def group_of(number: int, *, ledger_id: int = 7, size: int = 40) -> CommitGroup:
    """Return the group that adds entry `number` and a row that counts the entries."""
    return CommitGroup(
        entries=[(ledger_id, number, payload(number, size))],
        rows=[(b"count", b"%d" % (number + 1))],
    )


def store(engine: StorageEngine, *groups: CommitGroup, sync: bool = True) -> None:
    """Commit and index groups."""
    for group in groups:
        engine.commit(group, sync=sync)
        engine.index(group)


def entry_count(engine: StorageEngine, *, ledger_id: int = 7, size: int = 40) -> int:
    """Return how many groups of `group_of` an engine holds, having checked every byte of them."""
    count = engine.last_entry(ledger_id) + 1
    found = engine.read(ledger_id, 0, count - 1, 1 << 30) if count else []
    assert [payload(number, size) for number in range(count)] == found
    assert engine.get(b"count") == (b"%d" % count if count else None)
    return count


def log_file(folder: Path, number: int = 1) -> Path:
    """Return the path of a log file in a data folder."""
    return folder / "log" / f"{number:08d}.log"


def reopened_count(folder: Path, *, size: int = 40) -> int:
    """Open a folder as a restart does and return `entry_count`."""
    engine = LogRocksdbEngine(folder)
    try:
        return entry_count(engine, size=size)
    finally:
        engine.close()


def all_groups(engine: LogRocksdbEngine, *groups: CommitGroup, sync: bool) -> list[PlacedGroup]:
    """Store groups; return them with their positions."""
    placed = []
    for group in groups:
        start = engine._log.end
        engine.commit(group, sync=sync)
        engine.index(group)
        end = engine._log.end
        placed.append(PlacedGroup(group, start.position if start.file == end.file else 0, end, 0))
    return placed
