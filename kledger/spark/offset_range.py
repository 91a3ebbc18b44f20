"""Partitions and ranges of offsets: what a split of a read is made of.

Rule: ranges are half open. Must not know: brokers, Spark.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

EARLIEST: Final = -2
LATEST: Final = -1
"""What Kafka uses in place of an offset or a time for the start and the end of a log."""


class KafkaPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets: TypeAlias = dict[KafkaPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of a partition, from `start` up to, but not with, `end`."""

    where: KafkaPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets there are; some may have no record."""
        return self.end - self.start
