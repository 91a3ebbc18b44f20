"""Partition names: what managed ledgers of partitions are called, and whose a name is.

Rule: a topic that is created again gets other names, as each has the topic's id.
Must not know: topics, stores.
"""

import re
from dataclasses import dataclass
from typing import Final
from uuid import UUID

_NAME: Final = re.compile(r"(?P<topic>.+)-(?P<index>\d+)/(?P<id>[0-9a-f]{32})", re.DOTALL)


def managed_ledger_name(topic: str, topic_id: UUID, index: int) -> str:
    """Return the name of a partition's managed ledger."""
    return f"{topic}-{index}/{topic_id.hex}"


@dataclass(frozen=True, slots=True)
class PartitionName:
    """Which partition of which topic; text is `topic-index`, as Kafka names folders."""

    topic: str
    index: int
    topic_id: UUID

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


def partition_of(managed_ledger: str) -> PartitionName | None:
    """Return the partition whose managed ledger has that name, None for any other one."""
    match = _NAME.fullmatch(managed_ledger)
    if match is None:
        return None
    return PartitionName(match["topic"], int(match["index"]), UUID(hex=match["id"]))
