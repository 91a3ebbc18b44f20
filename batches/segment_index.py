"""The two indexes beside a segment of Apache Kafka's log, as bytes.

Rule: entries are added as Apache Kafka adds them while it appends: one pair whenever more than
`interval_bytes` have been written since the last one, before the next batch; the largest time of
all is added at the end. Kafka's tools and brokers accept them.
Must not know: files, topics.

Offset index, entry of 8 bytes        Time index, entry of 12 bytes
| offset | size | field            |  | offset | size | field                               |
|--------|------|------------------|  |--------|------|-------------------------------------|
| 0      | 4    | offset - base    |  | 0      | 8    | largest time up to this batch       |
| 4      | 4    | byte in the file |  | 8      | 4    | offset - base, of that time's batch |

In both the offset is the last one of a batch. Source: Kafka's LogSegment.append, OffsetIndex and
TimeIndex.
"""

from struct import Struct

from kledger.batches.header import BatchHeader

INTERVAL_BYTES = 4096
RELATIVE_OFFSET_MAX = (1 << 31) - 1
POSITION_MAX = (1 << 31) - 1
_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_NO_TIMESTAMP = -1


class SegmentIndex:
    """The indexes of the segment that is being written.

    Attributes:
        base_offset: the segment's first offset, which names its files.
        size: bytes of the batches added.
        offsets, times: the contents of the two files; `times` is complete after `end`.
    """

    def __init__(self, base_offset: int, interval_bytes: int = INTERVAL_BYTES) -> None:
        self.base_offset = base_offset
        self.size = 0
        self.offsets = bytearray()
        self.times = bytearray()
        self._interval_bytes = interval_bytes
        self._bytes_since = 0
        self._largest = (_NO_TIMESTAMP, base_offset)
        self._last_time = _NO_TIMESTAMP

    def has_room(self, header: BatchHeader, size_max: int) -> bool:
        """Whether the segment has room for a batch; it always has for the first one."""
        if not self.size:
            return True
        is_near = header.last_offset - self.base_offset <= RELATIVE_OFFSET_MAX
        return is_near and self.size + header.size <= min(size_max, POSITION_MAX)

    def add(self, header: BatchHeader) -> None:
        """Add the next batch of the segment."""
        if header.max_timestamp > self._largest[0]:
            self._largest = header.max_timestamp, header.last_offset
        if self._bytes_since > self._interval_bytes:
            relative = header.last_offset - self.base_offset
            self.offsets += _OFFSET_ENTRY.pack(relative, self.size)
            self._add_time()
            self._bytes_since = 0
        self.size += header.size
        self._bytes_since += header.size

    def end(self) -> None:
        """Finish the time index."""
        self._add_time()

    def _add_time(self) -> None:
        timestamp, offset = self._largest
        if timestamp > self._last_time:
            self.times += _TIME_ENTRY.pack(timestamp, offset - self.base_offset)
            self._last_time = timestamp
