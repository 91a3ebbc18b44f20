"""MessageId: the coordinates of one record of a topic.

Rule: the id that `send` returns equals the one that a consumer sees. The batch size, the link and
the offset help to acknowledge the record and are not part of its identity.
Must not know: the content of the record.

======  ====  ==========================================
offset  size  field of `to_bytes`
======  ====  ==========================================
0       1     version, 1
1       8     ledger id
9       8     entry id
17      4     batch index, -1 for the whole entry
21      4     partition
25      4     batch size, 0 when it is not known
======  ====  ==========================================
"""

import struct
from dataclasses import dataclass, field

from kledger.ledger import Position
from kledger.native.broker import RecordLocation, RecordPosition
from kledger.native.errors import InvalidArgument
from kledger.subscriptions.model import ALL, Acknowledgement

_LAYOUT = struct.Struct(">Bqqiii")
_VERSION = 1


@dataclass(unsafe_hash=True, slots=True, order=True)
class MessageId:
    """Coordinates of a record; ids of one partition are ordered as the records are.

    No field is ever assigned; every message gets an id, and to make a frozen one costs four times
    as much.

    Attributes:
        batch_index: index of the record in its entry; -1: the whole entry.
        batch_size: the number of records in the entry; 0: unknown.
        link: the link that delivered the record; None: the id is not of a delivered message.
        offset: the Kafka offset of the record; None: unknown.
    """

    ledger_id: int
    entry_id: int
    batch_index: int = -1
    partition: int = 0
    batch_size: int = field(default=0, compare=False, repr=False)
    link: object | None = field(default=None, compare=False, repr=False)
    offset: int | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}:{self.batch_index}:{self.partition}"

    @property
    def position(self) -> Position:
        """The entry."""
        return Position(self.ledger_id, self.entry_id)

    @property
    def record_position(self) -> RecordPosition:
        """The record in its partition."""
        return RecordPosition(self.position, self.batch_index)

    def to_bytes(self) -> bytes:
        """Return a form that can be stored; `from_bytes` returns an equal id.

        Raises:
            InvalidArgument: one of its fields is not a number, or too large.
        """
        try:
            return _LAYOUT.pack(
                _VERSION,
                self.ledger_id,
                self.entry_id,
                self.batch_index,
                self.partition,
                self.batch_size,
            )
        except struct.error:
            raise InvalidArgument(
                f"message id {self}: expected whole numbers of 64, 64, 32 and 32 bits"
            ) from None

    def check(self) -> None:
        """Raise InvalidArgument if a field is not a number, or too large."""
        self.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> "MessageId":
        """Return the id that `to_bytes` encoded.

        Raises:
            InvalidArgument: the bytes are not an encoded id.
        """
        try:
            version, *numbers = _LAYOUT.unpack(data)
        except (struct.error, TypeError):
            raise InvalidArgument(f"a message id has {_LAYOUT.size} bytes, got {data!r}") from None
        if version != _VERSION:
            raise InvalidArgument(f"message id of version {version}, expected {_VERSION}")
        return cls(*numbers)

    @classmethod
    def at(cls, record: RecordLocation, partition: int) -> "MessageId":
        """Return the id of a record that the server has located."""
        (ledger_id, entry_id), batch_index = record.record_position
        offset = None if record.offset < 0 else record.offset
        return cls(ledger_id, entry_id, batch_index, partition, record.batch_size, None, offset)

    def acknowledgement(self) -> Acknowledgement:
        """Return the acknowledgement of this record alone.

        Raises:
            InvalidArgument: it is one record of an entry of unknown size.
        """
        return Acknowledgement(self.position, self._mask(upto=False), self.batch_size)

    def acknowledgement_upto(self) -> Acknowledgement:
        """Return the acknowledgement of this record and the earlier ones of its entry.

        Raises:
            InvalidArgument: it is one record of an entry of unknown size.
        """
        return Acknowledgement(self.position, self._mask(upto=True), self.batch_size)

    def _mask(self, *, upto: bool) -> int:
        index, size = self.batch_index, self.batch_size
        if index < 0 or size == 1:
            return ALL
        if not index < size:
            raise InvalidArgument(
                f"message id {self}: its batch is unknown; take the id of a message, of send(), "
                "or one that to_bytes() has kept"
            )
        if not upto:
            return 1 << index
        return ALL if index == size - 1 else (2 << index) - 1
