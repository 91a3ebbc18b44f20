"""StickyPartitioner: chooses the partition of a message.

Rule: a key maps to one partition of a topic, the same that Kafka's default partitioner chooses, so
that both façades agree. Messages without a key go to one partition until its batch has left, and
then to the next one.
Must not know: producers.
"""

_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the hash of a key as a 32-bit number; that of Austin Appleby's MurmurHash2."""
    size = len(data)
    result = _SEED ^ size
    whole = size & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        result = result * _MULTIPLIER & _MASK ^ word
    if whole < size:
        result = (result ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    result = (result ^ result >> 13) * _MULTIPLIER & _MASK
    return result ^ result >> 15


def partition_of_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a key. Source: Kafka's BuiltInPartitioner.partitionForKey."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartitioner:
    """The partitioner of one producer."""

    def __init__(self, partition_count: int, *, first: int = 0) -> None:
        """Args: first: the first partition for messages without a key."""
        self._count = partition_count
        self._current = first % partition_count

    def choose(self, key: bytes | None) -> int:
        """Return the partition of the next message."""
        return self._current if key is None else partition_of_key(key, self._count)

    def note_batch_taken(self, partition: int) -> None:
        """Advance to the next partition if this was the current one."""
        if partition == self._current:
            self._current = (partition + 1) % self._count

    def set_partition_count(self, partition_count: int) -> None:
        """Use the new partitions of the topic."""
        assert partition_count >= self._count, f"{partition_count} of {self._count} are left"
        self._count = partition_count
