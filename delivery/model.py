"""Records and positions of one partition, in the terms of both façades.

Rule: plain values.
Must not know: logs, subscriptions.
"""

from typing import NamedTuple, TypeAlias

from kledger.ledger import Position

EARLIEST = "earliest"
LATEST = "latest"


class RecordPosition(NamedTuple):
    """One record of a partition: the entry, and which of its records (-1: the whole entry)."""

    position: Position
    batch_index: int = -1


class RecordLocation(NamedTuple):
    """Where one record is, by position and by offset.

    Attributes:
        record_position: entry id -1 when there is no record.
        batch_size: how many records its entry has; 0 when there is no record.
        offset: the Kafka offset; -1 when there is no record.
    """

    record_position: RecordPosition
    batch_size: int
    offset: int


NO_RECORD = RecordLocation(RecordPosition(Position(-1, -1)), 0, -1)

SeekTarget: TypeAlias = RecordPosition | int | str
"""Where to go: a record, a time in ms (the first record of that time or later), or EARLIEST or
LATEST."""
