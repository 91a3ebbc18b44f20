"""Deleted topics: removes in the background what deleted topics have left in the store.

Rule: a deletion is a durable row before anything is removed, and that row is removed last, so the
next start finds what a crash or a failure has left. Partitions of many topics are removed together.
A topic that cannot be removed does not keep others from being removed.
Must not know: topics that exist.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence, Set
from functools import partial
from itertools import count
from uuid import UUID

from kledger.ledger import AlreadyClosed, Fenced, LedgerError, LedgerStore
from kledger.runtime.tasks import Supervisor
from kledger.topics.keys import DELETION_PREFIX, PARTITION_PREFIX, deletion_key
from kledger.topics.partition import records
from kledger.topics.partition.partition_loader import managed_ledger_name
from kledger.topics.partition.records import TopicRecord

logger = logging.getLogger(__name__)

PARTITIONS_TOGETHER_MAX = 256
"""Partitions whose managed ledgers are deleted in one group."""
ROWS_TOGETHER_MAX = 1000


class DeletedTopics:
    """The remains in one store; made by the registry."""

    def __init__(self, store: LedgerStore, supervisor: Supervisor) -> None:
        self._store = store
        self._supervisor = supervisor
        self._remaining: dict[UUID, TopicRecord] = {}
        self._removing = asyncio.Lock()

    def load(self) -> None:
        """Read the deletions that were not completed before the start."""
        self.add(records.decode_topic(row) for _, row in self._store.scan_rows(DELETION_PREFIX))

    def add(self, topics: Iterable[TopicRecord]) -> None:
        """Add topics whose deletion is durable, and start to remove what they have left."""
        self._remaining |= {record.topic_id: record for record in topics}
        if self._remaining and not self._removing.locked() and not self._supervisor.is_closed:
            self._supervisor.spawn(self.remove(), "removal of deleted topics")

    async def remove(self) -> None:
        """Remove all of it; the next call tries again what failed."""
        async with self._removing:
            failed: set[UUID] = set()
            try:
                while some := self._next(failed):
                    if await self._try(some):
                        continue
                    if len(some) > 1:  # one unreadable topic must not stop the others
                        some = [each for each in some if not await self._try([each])]
                    failed |= {each.topic_id for each in some}
            except (AlreadyClosed, Fenced):
                return  # the next start continues

    def _next(self, failed: Set[UUID]) -> list[TopicRecord]:
        """Return the next topics, up to the limit of partitions that are removed together."""
        some: list[TopicRecord] = []
        partitions = 0
        for record in self._remaining.values():
            if record.topic_id in failed:
                continue
            partitions += record.partition_count
            if some and partitions > PARTITIONS_TOGETHER_MAX:
                break
            some.append(record)
        return some

    async def _try(self, some: Sequence[TopicRecord]) -> bool:
        try:
            await self._remove(some)
        except (AlreadyClosed, Fenced):
            raise
        except LedgerError as error:
            if len(some) == 1:
                logger.warning("remains of topic %s stay for now: %s", some[0].name, error)
            return False
        for record in some:
            del self._remaining[record.topic_id]
        return True

    async def _remove(self, some: Sequence[TopicRecord]) -> None:
        names: list[str] = []
        for record in some:
            names += await self._store.run_blocking(self._stored, record)
        for start in range(0, len(names), PARTITIONS_TOGETHER_MAX):
            await self._store.delete_managed_ledgers(names[start : start + PARTITIONS_TOGETHER_MAX])
        keys: list[bytes] = []
        for record in some:
            while len(found := await self._rows_of(record)) >= ROWS_TOGETHER_MAX:
                await self._store.put_rows([(key, None) for key in found])
            keys += found
        keys += [deletion_key(record.topic_id) for record in some]
        for start in range(0, len(keys), ROWS_TOGETHER_MAX):
            chunk = keys[start : start + ROWS_TOGETHER_MAX]
            await self._store.put_rows([(key, None) for key in chunk])

    def _stored(self, record: TopicRecord) -> list[str]:
        """Return the managed ledgers that a topic has.

        Those beyond its partition count are left from an addition that was not completed.
        """
        names: list[str] = []
        for index in count():
            name = managed_ledger_name(record.name, record.topic_id, index)
            if self._store.has_managed_ledger(name):
                names.append(name)
            elif index >= record.partition_count:
                break
        return names

    async def _rows_of(self, record: TopicRecord) -> list[bytes]:
        """Return the keys of the next rows that partitions of a topic have left."""
        start = PARTITION_PREFIX + record.topic_id.bytes
        scan = partial(
            self._store.scan_rows_between, start, start + b"\xff" * 5, limit=ROWS_TOGETHER_MAX
        )
        return [key for key, _ in await self._store.run_blocking(scan)]
