"""ChannelPosition: the position of one element in its channel.

Rule: opaque to applications; positions of one channel are ordered as its elements are, those of
different channels have no order.
Must not know: the content of the element.

======  ====  ==========================================
offset  size  field of `to_bytes`
======  ====  ==========================================
0       1     version, 1
1       4     channel
5       8     Kafka offset of the record, -1 before the first
======  ====  ==========================================
"""

import struct
from dataclasses import dataclass

from kledger.native.errors import IllegalArgument

_LAYOUT = struct.Struct(">BIq")
_VERSION = 1


@dataclass(frozen=True, slots=True)
class ChannelPosition:
    """The position of an element; of a Kafka record, partition and offset."""

    channel: int
    offset: int

    def __str__(self) -> str:
        return f"{self.channel}:{self.offset}"

    def __lt__(self, other: object) -> bool:
        return self._offset_of_same_channel(other) > self.offset

    def __le__(self, other: object) -> bool:
        return self._offset_of_same_channel(other) >= self.offset

    def __gt__(self, other: object) -> bool:
        return self._offset_of_same_channel(other) < self.offset

    def __ge__(self, other: object) -> bool:
        return self._offset_of_same_channel(other) <= self.offset

    def to_bytes(self) -> bytes:
        """Return a form that can be stored; `from_bytes` returns an equal position.

        Raises:
            IllegalArgument: channel or offset is no number, or too large.
        """
        try:
            return _LAYOUT.pack(_VERSION, self.channel, self.offset)
        except struct.error:
            raise IllegalArgument(
                f"channel position {self}: expected whole numbers of 32 and 64 bits"
            ) from None

    @classmethod
    def from_bytes(cls, data: bytes) -> "ChannelPosition":
        """Return the position that `to_bytes` encoded.

        Raises:
            IllegalArgument: the bytes are not an encoded position.
        """
        try:
            version, channel, offset = _LAYOUT.unpack(data)
        except (struct.error, TypeError):
            raise IllegalArgument(
                f"a channel position has {_LAYOUT.size} bytes, got {data!r}"
            ) from None
        if version != _VERSION:
            raise IllegalArgument(f"channel position of version {version}, expected {_VERSION}")
        return cls(channel, offset)

    def _offset_of_same_channel(self, other: object) -> int:
        if not isinstance(other, ChannelPosition):
            raise TypeError(f"cannot compare a channel position with {other!r}")
        if other.channel != self.channel:
            raise IllegalArgument(
                f"positions {self} and {other} are of different channels, which have no order"
            )
        return other.offset
