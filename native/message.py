"""Message: one record, as a native consumer sees it.

Rule: a record looks the same whether a native producer or a Kafka producer wrote it; nothing of it
is changed or left out.
Must not know: batches, links.
"""

from typing import NamedTuple

from kledger.batches.record import Header
from kledger.ledger import Position
from kledger.native.message_id import MessageId
from kledger.subscriptions.model import ALL, Acknowledgement

OWN_HEADERS = "kledger."
"""Headers with this prefix belong to the native façade and are not properties."""
PRODUCER_NAME = "kledger.producer-name"
SEQUENCE_ID = "kledger.sequence-id"
EVENT_TIME_BIT = 0x01
NATIVE_BIT = 0x02
"""Record attributes, which Kafka does not use: the timestamp is an event time; the producer was a
native one."""


class MessageEntry(NamedTuple):
    """An entry as it was delivered; what all its messages have in common.

    Attributes:
        topic: the short name of the topic.
        partition: its number in the topic.
        batch_size: how many records the entry has.
        redelivery_count: how often the messages were delivered before.
        link: the link that delivered it.
    """

    topic: str
    partition: int
    position: Position
    batch_size: int
    redelivery_count: int = 0
    link: object | None = None


class Message:
    """A record with its coordinates.

    Attributes:
        entry: the entry with the record; not for applications.
        index: of the record in its entry; likewise.
        key: None when there is none.
        value: None for a tombstone.
        publish_timestamp: the record's timestamp as Kafka sees it, in ms.
        event_timestamp: set by the producer, in ms; None when it set none.
        offset: the Kafka offset of the record.
    """

    __slots__ = (
        "_headers",
        "entry",
        "event_timestamp",
        "index",
        "key",
        "offset",
        "publish_timestamp",
        "value",
    )

    def __init__(  # noqa: PLR0917 - made for every message received, and faster without names
        self,
        entry: MessageEntry,
        index: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[Header, ...],
        publish_timestamp: int,
        event_timestamp: int | None,
        offset: int,
    ) -> None:
        self.entry = entry
        self.index = index
        self.key = key
        self.value = value
        self._headers = headers
        self.publish_timestamp = publish_timestamp
        self.event_timestamp = event_timestamp
        self.offset = offset

    def __repr__(self) -> str:
        return f"Message({self.topic!r}, {self.id}, key={self.key!r}, offset={self.offset})"

    @property
    def topic(self) -> str:
        """The short name of its topic."""
        return self.entry.topic

    @property
    def partition(self) -> int:
        """The number of its partition in the topic."""
        return self.entry.partition

    @property
    def redelivery_count(self) -> int:
        """How often the message was delivered before."""
        return self.entry.redelivery_count

    @property
    def id(self) -> MessageId:
        """Its coordinates."""
        _, partition, (ledger_id, entry_id), batch_size, _, link = self.entry
        return MessageId(ledger_id, entry_id, self.index, partition, batch_size, link, self.offset)

    def acknowledgement(self) -> Acknowledgement:
        """Return the acknowledgement of this record alone; only for `Consumer`."""
        entry = self.entry
        records = ALL if entry.batch_size == 1 else 1 << self.index
        return Acknowledgement(entry.position, records, entry.batch_size)

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        """All headers as they were written; invalid UTF-8 in a name becomes surrogate escapes."""
        return list(self._headers)

    @property
    def properties(self) -> dict[str, str]:
        """The headers with a UTF-8 value; of several with one name, the last."""
        found = {}
        for name, value in self._headers:
            if value is not None and not name.startswith(OWN_HEADERS):
                try:
                    found[name] = value.decode()
                except UnicodeDecodeError:
                    continue
        return found

    @property
    def producer_name(self) -> str | None:
        """The name of its producer; None when it had no name."""
        return self._own_header(PRODUCER_NAME)

    @property
    def sequence_id(self) -> int | None:
        """The sequence id that its producer set; None when it set none."""
        text = self._own_header(SEQUENCE_ID)
        return int(text) if text is not None and text.lstrip("-").isdecimal() else None

    def _own_header(self, wanted: str) -> str | None:
        for name, value in self._headers:
            if name == wanted and value is not None:
                return value.decode("utf-8", "replace")
        return None
