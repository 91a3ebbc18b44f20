"""Message: one record, as a native consumer sees it.

Rule: a record looks the same whether a native producer or a Kafka producer wrote it; nothing of it
is changed or left out.
Must not know: batches, links.
"""

from kledger.batches.record import Header
from kledger.ledger import Position
from kledger.native.message_id import MessageId

OWN_HEADERS = "kledger."
"""Headers with this prefix belong to the native façade and are not properties."""
PRODUCER_NAME = "kledger.producer-name"
SEQUENCE_ID = "kledger.sequence-id"
EVENT_TIME_BIT = 0x01
NATIVE_BIT = 0x02
"""Record attributes, which Kafka does not use: the timestamp is an event time; the producer was a
native one."""


class Message:
    """A record with its coordinates.

    Attributes:
        topic: the short name of the topic.
        partition: its number in the topic.
        key: None when there is none.
        value: None for a tombstone.
        publish_timestamp: the record's timestamp as Kafka sees it, in ms.
        event_timestamp: set by the producer, in ms; None when it set none.
        redelivery_count: how often the message was delivered before.
        offset: the Kafka offset of the record.
    """

    __slots__ = (
        "_batch_size",
        "_headers",
        "_index",
        "_link",
        "_position",
        "event_timestamp",
        "key",
        "offset",
        "partition",
        "publish_timestamp",
        "redelivery_count",
        "topic",
        "value",
    )

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        position: Position,
        index: int,
        batch_size: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[Header, ...],
        publish_timestamp: int,
        event_timestamp: int | None,
        offset: int,
        redelivery_count: int,
        link: object | None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.key = key
        self.value = value
        self.publish_timestamp = publish_timestamp
        self.event_timestamp = event_timestamp
        self.redelivery_count = redelivery_count
        self.offset = offset
        self._headers = headers
        self._position = position
        self._index = index
        self._batch_size = batch_size
        self._link = link

    def __repr__(self) -> str:
        return f"Message({self.topic!r}, {self.id}, key={self.key!r}, offset={self.offset})"

    @property
    def id(self) -> MessageId:
        """Its coordinates."""
        ledger_id, entry_id = self._position
        return MessageId(
            ledger_id,
            entry_id,
            self._index,
            self.partition,
            self._batch_size,
            self._link,
            self.offset,
        )

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
