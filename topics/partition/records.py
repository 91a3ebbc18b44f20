"""Contents of the rows that topics have in the store; their keys are in `topics.keys`.

Rule: every row begins with a version byte; an unknown version is refused. Numbers are big-endian.
Must not know: when rows are written, how they are stored.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error
from uuid import UUID

from kledger.batches.pacing import STEPS_PER_PAUSE, Pause, no_pause
from kledger.topics.errors import UnreadableRow
from kledger.topics.partition.offset_index import Interval, LedgerSummary
from kledger.topics.partition.producer_state import BatchRange, ProducerEntry
from kledger.topics.partition.transaction_state import AbortedTransaction

VERSION = 1
_LOG_START = Struct(">Bq")
_LEDGER_SUMMARY = Struct(">Bqqq")
_INTERVAL = Struct(">Bqqqqq")
CHECKPOINT_VERSION = 2
_CHECKPOINT = Struct(">BqqqI")
_PRODUCER = Struct(">qhqqB")
_ABORTED = Struct(">Bqqq")
_RANGE = Struct(">iiqqq")


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic as it is stored; everything in it is text or a number."""

    name: str
    topic_id: UUID
    partition_count: int
    configs: Mapping[str, str]
    created_ms: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state of a partition up to an entry.

    Attributes:
        next_offset: the offset after that entry.
        ledger_id, entry_id: the entry; both -1 before the first one.
        producers: by producer id.
    """

    next_offset: int
    ledger_id: int
    entry_id: int
    producers: Mapping[int, ProducerEntry]


def encode_topic(record: TopicRecord) -> bytes:
    """Row of a topic: JSON after the version byte, because the names of settings change."""
    fields = {
        "name": record.name,
        "id": record.topic_id.hex,
        "partitions": record.partition_count,
        "configs": dict(record.configs),
        "created_ms": record.created_ms,
    }
    return bytes([VERSION]) + json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()


def decode_topic(row: bytes) -> TopicRecord:
    """Undo `encode_topic`. Raises UnreadableRow."""
    _check_version(row)
    try:
        fields = json.loads(row[1:])
        return TopicRecord(
            str(fields["name"]),
            UUID(hex=fields["id"]),
            int(fields["partitions"]),
            {str(name): str(value) for name, value in fields["configs"].items()},
            int(fields["created_ms"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableRow(f"row of a topic cannot be read: {error!r}") from None


def encode_log_start(offset: int) -> bytes:
    """Row of a log start offset."""
    return _LOG_START.pack(VERSION, offset)


def decode_log_start(row: bytes) -> int:
    """Undo `encode_log_start`. Raises UnreadableRow."""
    return _fields(_LOG_START, row)[0]


def encode_ledger_summary(ledger_summary: LedgerSummary) -> bytes:
    """Row of a closed ledger; its id is in the key."""
    return _LEDGER_SUMMARY.pack(VERSION, *ledger_summary[1:])


def decode_ledger_summary(ledger_id: int, row: bytes) -> LedgerSummary:
    """Undo `encode_ledger_summary`. Raises UnreadableRow."""
    return LedgerSummary(ledger_id, *_fields(_LEDGER_SUMMARY, row))


def encode_interval(interval: Interval) -> bytes:
    """Row of an interval; its first entry is in the key."""
    return _INTERVAL.pack(VERSION, *interval[1:])


def decode_interval(first_entry: int, row: bytes) -> Interval:
    """Undo `encode_interval`. Raises UnreadableRow."""
    return Interval(first_entry, *_fields(_INTERVAL, row))


def encode_checkpoint(checkpoint: Checkpoint, pause: Pause = no_pause) -> bytes:
    """Row of a checkpoint."""
    out = bytearray(
        _CHECKPOINT.pack(
            CHECKPOINT_VERSION,
            checkpoint.next_offset,
            checkpoint.ledger_id,
            checkpoint.entry_id,
            len(checkpoint.producers),
        )
    )
    for index, (producer_id, entry) in enumerate(checkpoint.producers.items(), 1):
        if not index % STEPS_PER_PAUSE:
            pause()
        out += _PRODUCER.pack(
            producer_id,
            entry.epoch,
            entry.active_ms,
            entry.transaction_start,
            len(entry.batches),
        )
        for batch in entry.batches:
            out += _RANGE.pack(*batch)
    return bytes(out)


def decode_checkpoint(row: bytes) -> Checkpoint:
    """Undo `encode_checkpoint`. Raises UnreadableRow."""
    _check_version(row, CHECKPOINT_VERSION)
    try:
        _, next_offset, ledger_id, entry_id, count = _CHECKPOINT.unpack_from(row)
        position = _CHECKPOINT.size
        producers = {}
        for _ in range(count):
            producer_id, epoch, active_ms, transaction_start, range_count = _PRODUCER.unpack_from(
                row, position
            )
            position += _PRODUCER.size
            batches = []
            for _ in range(range_count):
                batches.append(BatchRange(*_RANGE.unpack_from(row, position)))
                position += _RANGE.size
            producers[producer_id] = ProducerEntry(
                epoch, tuple(batches), active_ms, transaction_start
            )
    except struct_error as error:
        raise UnreadableRow(f"checkpoint of {len(row)} bytes: {error}") from None
    return Checkpoint(next_offset, ledger_id, entry_id, producers)


def encode_aborted(aborted: AbortedTransaction) -> bytes:
    """Row of an aborted transaction; the offset of its marker is in the key."""
    return _ABORTED.pack(
        VERSION, aborted.producer_id, aborted.first_offset, aborted.last_stable_offset
    )


def decode_aborted(last_offset: int, row: bytes) -> AbortedTransaction:
    """Undo `encode_aborted`. Raises UnreadableRow."""
    producer_id, first_offset, last_stable_offset = _fields(_ABORTED, row)
    return AbortedTransaction(producer_id, first_offset, last_offset, last_stable_offset)


def _fields(form: Struct, row: bytes) -> tuple[int, ...]:
    _check_version(row)
    if len(row) != form.size:
        raise UnreadableRow(f"row of {len(row)} bytes, expected {form.size}")
    fields: tuple[int, ...] = form.unpack(row)[1:]
    return fields


def _check_version(row: bytes, version: int = VERSION) -> None:
    if not row or row[0] != version:
        got = row[0] if row else "none"
        raise UnreadableRow(f"row version {got}, expected {version}")
