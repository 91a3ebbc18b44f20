"""Cluster offsets: the lowest committed offsets of all brokers; some retention waits for groups.

Rule: each broker publishes in a shared table the lowest offsets that its groups have committed, for
every topic whose retention waits for groups, at most once in `PUBLISH_MS`. A partition's leader
takes the minimum over all brokers. A broker that has published nothing yet counts as offset 0, so
nothing is removed before it has; while a broker is down, its last published offsets count.
Must not know: members, what retention removes.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import UUID

from kledger.ledger import AlreadyClosed, LedgerError
from kledger.ledger.record_table import RecordRows, RecordTable, submit_together
from kledger.ledger.row_format import I32, I64, U32, UUID16, RowFormat, RowKey, mapping
from kledger.runtime.containment import NamedUnit

if TYPE_CHECKING:
    from kledger.gateway.cluster_brokers import ClusterBrokers
    from kledger.gateway.coordinator.groups.group_offsets import GroupOffsets
    from kledger.ledger import TableStore
    from kledger.runtime.clock import Clock
    from kledger.topics import TopicRegistry

logger = logging.getLogger(__name__)

PUBLISH_MS: Final = 30_000
"""So long a commit may be unknown to other brokers; one more write for each broker in that time."""
_PUBLISHING = NamedUnit("background work", "publishing offsets of groups, until its next time")
LowestOffsets: TypeAlias = Mapping[int, int]
"""By partition; one of which no group has committed is missing."""

_KEYS = RowKey("lowest offsets", b"gateway/lowest_offsets\x01", topic_id=UUID16, broker_id=I32)
_ROWS = RowFormat[LowestOffsets]("lowest offsets", {1: mapping(U32, I64)})


def _decode(key: bytes, row: bytes) -> tuple[tuple[UUID, int], LowestOffsets]:
    topic_id, broker_id = _KEYS.decode(key)
    return (topic_id, broker_id), _ROWS.decode(row, which=topic_id)


def _encode_key(key: tuple[UUID, int]) -> bytes:
    return _KEYS.encode(*key)


class ClusterOffsets:
    """The lowest committed offsets, as one broker of a cluster knows them."""

    def __init__(
        self,
        tables: "TableStore",
        registry: "TopicRegistry",
        offsets: "GroupOffsets",
        brokers: "ClusterBrokers",
    ) -> None:
        """Load what was published.

        Raises:
            UnreadableRow: a row cannot be read.
        """
        self._tables = tables
        self._registry = registry
        self._offsets = offsets
        self._brokers = brokers
        self._published = RecordTable(
            tables,
            RecordRows[tuple[UUID, int], LowestOffsets](
                prefix=_KEYS.prefix, encode_key=_encode_key, encode=_ROWS.encode, decode=_decode
            ),
        )
        self._published.load()

    def lowest_committed(self, topic: str, topic_id: UUID, partition: int) -> int | None:
        """Return the lowest offset that a group of any broker has committed; None: none has."""
        found = [self._offsets.lowest_committed(topic, topic_id, partition)]
        for broker_id in self._brokers.coordinator_ids - {self._brokers.broker_id}:
            published = self._published.get((topic_id, broker_id))
            found.append(0 if published is None else published.get(partition))
        return min((each for each in found if each is not None), default=None)

    async def publish(self) -> None:
        """Publish what has changed; what is not written now is with the next call.

        A broker that is still loading its groups publishes nothing.
        """
        if not self._offsets.is_complete:
            return
        lowest = await self._offsets.lowest_by_topic(
            {topic.id for topic in self._registry.all() if topic.config.waits_for_groups}
        )
        mine = self._brokers.broker_id
        changed: dict[UUID, LowestOffsets | None] = {
            topic_id: offsets
            for topic_id, offsets in lowest.items()
            if offsets != self._published.get((topic_id, mine))
        }
        changed |= {
            topic_id: None
            for topic_id, broker_id in self._published.durable
            if broker_id == mine and topic_id not in lowest
        }
        if not changed:
            return
        try:
            async with self._tables.change_lock():
                changes = [self._published.change((each, mine), changed[each]) for each in changed]
                error = await submit_together(changes)
        except AlreadyClosed:
            return  # the server stops
        except LedgerError as caught:
            error = caught
        if error is not None:
            logger.warning("lowest committed offsets were not published: %s", error)

    async def publish_at_intervals(self, clock: "Clock") -> None:
        """Publish for ever."""
        while True:
            with self._tables.containment.guarding(_PUBLISHING):
                await self.publish()
            await clock.sleep(PUBLISH_MS)
