"""Keys of the rows that topics have in the store.

Rule: fixed widths and big-endian numbers, so that rows of one partition, and within it of one
ledger, are adjacent and in their natural order; ids are never negative. First byte: the kind.
Must not know: what the rows hold (records.py).

=====================  =========================================================
key                    row
=====================  =========================================================
T name                 a topic
N name                 a namespace, unless it is public/default without settings
D topic id             a topic whose partitions are still being deleted
C topic id name        durable cursors of a topic that several brokers lead
P id index C           checkpoint of the partition's producers
P id index L           log start offset that was set
P id index R           offset before which DeleteRecords has removed the records
P id index S ledger    summary of a closed ledger
P id index X ledger e  one interval of a ledger, beginning at entry e
P id index A offset    an aborted transaction, by the offset of its marker
P id index M           which manifest of the partition is in the tier
P id index O ledger    smallest timestamp of a ledger that was offloaded
=====================  =========================================================
"""

from struct import Struct
from uuid import UUID

from kledger.ledger.row_format import TEXT_REST, UUID16, RowKey

TOPIC_KEYS = RowKey("topic", b"T", name=TEXT_REST)
NAMESPACE_KEYS = RowKey("namespace", b"N", name=TEXT_REST)
DELETION_KEYS = RowKey("deleted topic", b"D", topic_id=UUID16)
CURSOR_KEYS = RowKey("cursors", b"C", topic_id=UUID16, name=TEXT_REST)
PARTITION_PREFIX = b"P"
_INDEX = Struct(">I")
_ID = Struct(">Q")


class PartitionKeys:
    """Keys of one partition."""

    __slots__ = (
        "aborted",
        "checkpoint",
        "deleted_before",
        "first_timestamps",
        "intervals",
        "ledger_summaries",
        "log_start",
        "manifest",
        "prefix",
    )

    def __init__(self, topic_id: UUID, index: int) -> None:
        self.prefix = PARTITION_PREFIX + topic_id.bytes + _INDEX.pack(index)
        self.checkpoint = self.prefix + b"C"
        self.log_start = self.prefix + b"L"
        self.deleted_before = self.prefix + b"R"
        self.ledger_summaries = self.prefix + b"S"
        self.intervals = self.prefix + b"X"
        self.aborted = self.prefix + b"A"
        self.manifest = self.prefix + b"M"
        self.first_timestamps = self.prefix + b"O"

    def ledger_summary(self, ledger_id: int) -> bytes:
        """Row of a closed ledger."""
        return self.ledger_summaries + _ID.pack(ledger_id)

    def ledger_intervals(self, ledger_id: int) -> bytes:
        """What the rows of all intervals of a ledger begin with."""
        return self.intervals + _ID.pack(ledger_id)

    def interval(self, ledger_id: int, entry_id: int) -> bytes:
        """Row of one interval."""
        return self.intervals + _ID.pack(ledger_id) + _ID.pack(entry_id)

    def first_timestamp(self, ledger_id: int) -> bytes:
        """Row of the smallest timestamp of a ledger."""
        return self.first_timestamps + _ID.pack(ledger_id)

    def aborted_at(self, last_offset: int) -> bytes:
        """Row of the aborted transaction whose marker has that offset."""
        return self.aborted + _ID.pack(last_offset)


def ids_after(key: bytes, prefix: bytes) -> tuple[int, ...]:
    """The numbers that follow the prefix in a span's or an interval's key."""
    rest = key[len(prefix) :]
    return tuple(_ID.unpack_from(rest, start)[0] for start in range(0, len(rest), _ID.size))
