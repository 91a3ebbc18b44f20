"""Contents of the rows that topics have in the store; their keys are in `topics.keys`.

Rule: every row begins with a version byte; a version that this code does not know is an
UnreadableRow.
Must not know: when rows are written, where they are kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from kledger.batches.pacing import STEPS_PER_PAUSE, Pause, no_pause
from kledger.ledger.record_table import RecordRows
from kledger.ledger.row_format import (
    I16,
    I32,
    I64,
    U8,
    RowFormat,
    RowLayout,
    array,
    converted,
    json_rest,
    mapping,
)
from kledger.topics.keys import CURSOR_KEYS, DELETION_KEYS, NAMESPACE_KEYS, TOPIC_KEYS
from kledger.topics.partition.leader_epoch_state import EpochStart
from kledger.topics.partition.offset_index import Interval, LedgerSummary
from kledger.topics.partition.producer_state import BatchRange, ProducerEntry
from kledger.topics.partition.transaction_state import AbortedTransaction

VERSION = 1
PLAIN_CHECKPOINT_VERSION = 2
"""Without epochs; written as long as no leader and no coordinator has another epoch than 0."""
CHECKPOINT_VERSION = 3


class TopicRecord(NamedTuple):
    """A topic as it is stored; everything in it is text or a number.

    Attributes:
        leaders: the broker of each partition; empty: of a server that is alone.
        has_one_leader: one broker leads all partitions, also those that are added.
    """

    name: str
    topic_id: UUID
    partition_count: int
    configs: Mapping[str, str]
    created_ms: int
    leaders: tuple[int, ...] = ()
    has_one_leader: bool = False


class NamespaceRecord(NamedTuple):
    """A namespace as it is stored.

    Attributes:
        configs: settings of its topics that do not have their own, by the names of topic settings.
    """

    name: str
    configs: Mapping[str, str]
    created_ms: int


class CursorKey(NamedTuple):
    """A durable cursor of a topic, in whichever partitions."""

    topic_id: UUID
    name: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state of a partition up to an entry.

    Attributes:
        next_offset: the offset after that entry.
        ledger_id, entry_id: the entry; both -1 before the first one.
        producers: by producer id.
        epochs: the leader epochs of the offsets from the log start on.
        coordinator_epochs: of the coordinators that have ended the last transaction of a producer,
            by producer id; without those that are 0.
    """

    next_offset: int
    ledger_id: int
    entry_id: int
    producers: Mapping[int, ProducerEntry]
    epochs: tuple[EpochStart, ...] = ()
    coordinator_epochs: Mapping[int, int] = field(default_factory=dict)


def _topic_fields(record: TopicRecord) -> dict[str, Any]:
    return {
        "name": record.name,
        "id": record.topic_id.hex,
        "partitions": record.partition_count,
        "configs": dict(record.configs),
        "created_ms": record.created_ms,
        **({"leaders": record.leaders} if record.leaders else {}),
        **({"one_leader": True} if record.has_one_leader else {}),
    }


def _topic_record(fields: Any) -> TopicRecord:
    return TopicRecord(
        str(fields["name"]),
        UUID(bytes=bytes.fromhex(fields["id"])),
        int(fields["partitions"]),
        {str(name): str(value) for name, value in fields["configs"].items()},
        int(fields["created_ms"]),
        tuple(map(int, fields.get("leaders", ()))),
        bool(fields.get("one_leader", False)),
    )


def _namespace_fields(record: NamespaceRecord) -> dict[str, Any]:
    return {
        "name": record.name,
        "configs": dict(record.configs),
        "created_ms": record.created_ms,
    }


def _namespace_record(fields: Any) -> NamespaceRecord:
    return NamespaceRecord(
        str(fields["name"]),
        {str(name): str(value) for name, value in fields["configs"].items()},
        int(fields["created_ms"]),
    )


# The names of settings change from release to release, so what has some is JSON behind the version.
_JSON = json_rest(separators=(",", ":"), sort_keys=True)
_TOPIC_LAYOUTS = {VERSION: converted(_JSON, _topic_fields, _topic_record)}
_TOPICS = RowFormat[TopicRecord]("topic", _TOPIC_LAYOUTS)
_DELETED_TOPICS = RowFormat[TopicRecord]("deleted topic", _TOPIC_LAYOUTS)
_NAMESPACES = RowFormat[NamespaceRecord](
    "namespace", {VERSION: converted(_JSON, _namespace_fields, _namespace_record)}
)
_CURSORS = RowFormat[int]("cursors", {VERSION: I32})
_FIRST_TIMESTAMPS = RowFormat[int]("first timestamp", {VERSION: I64})
_MANIFESTS = RowFormat[int]("manifest", {VERSION: I64})
_LOG_STARTS = RowFormat[int]("log start", {VERSION: I64})
_LEDGER_SUMMARIES = RowFormat[LedgerSummary](
    "ledger summary",
    {VERSION: RowLayout(LedgerSummary, first_offset=I64, next_offset=I64, max_timestamp=I64)},
    given=("ledger_id",),
)
_INTERVALS = RowFormat[Interval](
    "interval",
    {
        VERSION: RowLayout(
            Interval,
            end_entry=I64,
            first_offset=I64,
            next_offset=I64,
            max_timestamp=I64,
            max_timestamp_so_far=I64,
        )
    },
    given=("first_entry",),
)
_RANGE = RowLayout(
    BatchRange,
    first_sequence=I32,
    last_sequence=I32,
    base_offset=I64,
    next_offset=I64,
    log_append_time_ms=I64,
)
_PRODUCER = RowLayout(
    ProducerEntry,
    epoch=I16,
    active_ms=I64,
    transaction_start=I64,
    batches=array(_RANGE, count=U8),
)
_CHECKPOINT_FIELDS = {
    "next_offset": I64,
    "ledger_id": I64,
    "entry_id": I64,
    "producers": mapping(I64, _PRODUCER, paced=STEPS_PER_PAUSE),
}
_PLAIN_CHECKPOINT = {PLAIN_CHECKPOINT_VERSION: RowLayout(Checkpoint, **_CHECKPOINT_FIELDS)}
_PLAIN_CHECKPOINTS = RowFormat[Checkpoint]("checkpoint", _PLAIN_CHECKPOINT)
_CHECKPOINTS = RowFormat[Checkpoint](
    "checkpoint",
    {
        **_PLAIN_CHECKPOINT,
        CHECKPOINT_VERSION: RowLayout(
            Checkpoint,
            **_CHECKPOINT_FIELDS,
            epochs=array(RowLayout(EpochStart, epoch=I32, start_offset=I64)),
            coordinator_epochs=mapping(I64, I32),
        ),
    },
)
_ABORTED = RowFormat[AbortedTransaction](
    "aborted transaction",
    {
        VERSION: RowLayout(
            AbortedTransaction, producer_id=I64, first_offset=I64, last_stable_offset=I64
        )
    },
    given=("last_offset",),
)


def encode_topic(record: TopicRecord) -> bytes:
    """Return the row of a topic."""
    return _TOPICS.encode(record)


def decode_topic(row: bytes, name: str | None = None) -> TopicRecord:
    """Return the topic in a row; `name` is for an error. Raises UnreadableRow."""
    return _TOPICS.decode(row, which=name)


def _decode_topic_row(key: bytes, row: bytes) -> tuple[str, TopicRecord]:
    (name,) = TOPIC_KEYS.decode(key)
    return name, decode_topic(row, name)


def _decode_deleted_topic_row(key: bytes, row: bytes) -> tuple[UUID, TopicRecord]:
    (topic_id,) = DELETION_KEYS.decode(key)
    return topic_id, _DELETED_TOPICS.decode(row, which=str(topic_id))


def _decode_namespace_row(key: bytes, row: bytes) -> tuple[str, NamespaceRecord]:
    (name,) = NAMESPACE_KEYS.decode(key)
    return name, _NAMESPACES.decode(row, which=name)


def _decode_cursor_row(key: bytes, row: bytes) -> tuple[CursorKey, int]:
    found = CursorKey(*CURSOR_KEYS.decode(key))
    return found, _CURSORS.decode(row, which=found.name)


CURSOR_ROWS = RecordRows[CursorKey, int](
    prefix=CURSOR_KEYS.prefix,
    encode_key=lambda key: CURSOR_KEYS.encode(*key),
    encode=_CURSORS.encode,
    decode=_decode_cursor_row,
)
"""How many partitions a topic had when a cursor was registered."""
NAMESPACE_ROWS = RecordRows[str, NamespaceRecord](
    prefix=NAMESPACE_KEYS.prefix,
    encode_key=NAMESPACE_KEYS.encode,
    encode=_NAMESPACES.encode,
    decode=_decode_namespace_row,
)
"""Namespaces, by name."""
TOPIC_ROWS = RecordRows[str, TopicRecord](
    prefix=TOPIC_KEYS.prefix,
    encode_key=TOPIC_KEYS.encode,
    encode=encode_topic,
    decode=_decode_topic_row,
)
"""Topics that exist, by name."""
DELETED_TOPIC_ROWS = RecordRows[UUID, TopicRecord](
    prefix=DELETION_KEYS.prefix,
    encode_key=DELETION_KEYS.encode,
    encode=encode_topic,
    decode=_decode_deleted_topic_row,
)
"""Topics of which something is left in the store, by id."""


def encode_log_start(offset: int) -> bytes:
    """Return the row of a log start offset, or of the offset that DeleteRecords has set."""
    return _LOG_STARTS.encode(offset)


def decode_log_start(row: bytes, partition: str | None = None) -> int:
    """Return the offset in a row; `partition` is for an error. Raises UnreadableRow."""
    return _LOG_STARTS.decode(row, which=partition)


def encode_first_timestamp(timestamp: int) -> bytes:
    """Return the row of the smallest timestamp of a ledger."""
    return _FIRST_TIMESTAMPS.encode(timestamp)


def decode_first_timestamp(ledger_id: int, row: bytes) -> int:
    """Return the timestamp in a row of `encode_first_timestamp`. Raises UnreadableRow."""
    return _FIRST_TIMESTAMPS.decode(row, which=ledger_id)


def encode_manifest(fingerprint: int) -> bytes:
    """Return the row that says which manifest is in the tier."""
    return _MANIFESTS.encode(fingerprint)


def decode_manifest(row: bytes, partition: str | None = None) -> int:
    """Return the fingerprint in a row; `partition` is for an error. Raises UnreadableRow."""
    return _MANIFESTS.decode(row, which=partition)


def encode_ledger_summary(ledger_summary: LedgerSummary) -> bytes:
    """Return the row of a closed ledger; its id is in the key."""
    return _LEDGER_SUMMARIES.encode(ledger_summary)


def decode_ledger_summary(ledger_id: int, row: bytes) -> LedgerSummary:
    """Return the summary in a row of `encode_ledger_summary`. Raises UnreadableRow."""
    return _LEDGER_SUMMARIES.decode(row, ledger_id)


def encode_interval(interval: Interval) -> bytes:
    """Return the row of an interval; its first entry is in the key."""
    return _INTERVALS.encode(interval)


def decode_interval(first_entry: int, row: bytes) -> Interval:
    """Return the interval in a row of `encode_interval`. Raises UnreadableRow."""
    return _INTERVALS.decode(row, first_entry)


def encode_checkpoint(checkpoint: Checkpoint, pause: Pause = no_pause) -> bytes:
    """Return the row of a checkpoint."""
    has_epochs = checkpoint.epochs or checkpoint.coordinator_epochs
    checkpoints = _CHECKPOINTS if has_epochs else _PLAIN_CHECKPOINTS
    return checkpoints.encode(checkpoint, pause=pause)


def decode_checkpoint(row: bytes, partition: str | None = None) -> Checkpoint:
    """Return the checkpoint in a row; `partition` is for an error. Raises UnreadableRow."""
    return _CHECKPOINTS.decode(row, which=partition)


def encode_aborted(aborted: AbortedTransaction) -> bytes:
    """Return the row of an aborted transaction; the offset of its marker is in the key."""
    return _ABORTED.encode(aborted)


def decode_aborted(last_offset: int, row: bytes) -> AbortedTransaction:
    """Return the transaction in a row of `encode_aborted`. Raises UnreadableRow."""
    return _ABORTED.decode(row, last_offset)
