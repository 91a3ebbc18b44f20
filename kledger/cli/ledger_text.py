"""The output of `kledger ledger`, as fields and as lines of plain text.

Rule: a line has no line break, whatever bytes it shows; numbers stay numbers until printed.
Must not know: arguments, files.
"""

from datetime import UTC, datetime
from typing import Any

from kledger.batches.errors import BatchError
from kledger.batches.header import BatchHeader, read_header
from kledger.batches.record import Record
from kledger.cli.plain_text import part, quoted, shown
from kledger.ledger import Entry, Position
from kledger.ledger.inspection import LedgerRecord, StoppedStore, StoredManagedLedger
from kledger.topics.inspection import StoredTopics
from kledger.topics.partition_name import PartitionName, partition_of

_NEWEST_MS = 253_402_300_799_999
"""The end of the year 9999, the last that `datetime` can express."""


def listed(
    store: StoppedStore, topics: StoredTopics, stored: StoredManagedLedger
) -> dict[str, Any]:
    """Return the fields of one managed ledger in a list."""
    partition = partition_of(stored.name)
    start, end = _offsets(store, topics, stored, partition)
    return {
        "name": stored.name,
        "partition": str(partition) if partition is not None else None,
        "topic": partition.topic if partition is not None else None,
        "topic_id": str(partition.topic_id) if partition is not None else None,
        "topic_exists": topics.has(partition) if partition is not None else None,
        "state": str(stored.state),
        "ledger_count": len(stored.ledgers),
        "entries": stored.entries,
        "bytes": stored.size,
        "first_position": _text(stored.first_position),
        "last_position": _text(stored.last_position),
        "log_start_offset": start,
        "log_end_offset": end,
        "property_count": len(stored.properties),
    }


def details(
    store: StoppedStore, topics: StoredTopics, stored: StoredManagedLedger
) -> dict[str, Any]:
    """Return the fields of one managed ledger with its ledgers."""
    return {
        **listed(store, topics, stored),
        "terminated_at": _text(stored.terminated_at),
        "properties": stored.properties,
        "ledgers": [_ledger(store, record) for record in stored.ledgers],
    }


def _ledger(store: StoppedStore, record: LedgerRecord) -> dict[str, Any]:
    return {
        "ledger_id": record.ledger_id,
        "entries": record.entries,
        "bytes": record.size,
        "closed_ms": record.closed_ms or None,
        "closed": _moment(record.closed_ms) if record.closed_ms else "open",
        "newest_ms": record.max_timestamp_ms if record.max_timestamp_ms >= 0 else None,
        "newest": _moment(record.max_timestamp_ms),
        "log_files": store.log_files(record.ledger_id),
    }


def _offsets(
    store: StoppedStore,
    topics: StoredTopics,
    stored: StoredManagedLedger,
    partition: PartitionName | None,
) -> tuple[int | None, int | None]:
    """Return log start and log end of a partition, None where the batch cannot be read."""
    if partition is None:
        return None, None
    first = next(store.entries(stored), None)
    first_header = _header(first if isinstance(first, Entry) else None)
    last_header = _header(store.last_entry(stored))
    end = last_header.last_offset + 1 if last_header is not None else None
    start = topics.log_start(partition)
    if first_header is not None:
        start = max(start, first_header.base_offset)
    if end is None:
        end = None if stored.entries else start
    return start if end is None else min(start, end), end


def _header(entry: Entry | None) -> BatchHeader | None:
    try:
        return read_header(entry.buffer) if entry is not None else None
    except BatchError:
        return None


def entry_line(entry: Entry) -> str:
    """Return the line of an entry that is no record batch."""
    return f"{entry.position} data[{entry.size}]={shown(entry.buffer)}"


def record_line(position: Position, header: BatchHeader, record: Record) -> str:
    """Return the line of a record."""
    parts = [
        f"{position} offset={record.offset} timestamp={record.timestamp}",
        part("key", record.key),
        part("value", record.value),
    ]
    parts += [part(f"header:{quoted(name)}", value) for name, value in record.headers]
    if header.is_control:
        parts.append("control")
    return " ".join(parts)


def _text(position: Position | None) -> str | None:
    return str(position) if position is not None else None


def _moment(ms: int) -> str | None:
    if not 0 <= ms <= _NEWEST_MS:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
