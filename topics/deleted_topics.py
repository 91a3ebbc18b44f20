"""Deleted topics: removes in the background what deleted topics have left in the store.

Rule: a deletion is a durable record before anything is removed, and that record is deleted last, so
the next start finds what a crash or a failure has left. Partitions of many topics are removed
together. A topic that cannot be removed does not keep others from being removed.
Must not know: topics that exist.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence, Set
from functools import partial
from itertools import count
from uuid import UUID

from kledger.ledger import (
    AlreadyClosed,
    Fenced,
    LedgerError,
    LedgerStore,
    Row,
    RowsDone,
    TierUnavailable,
)
from kledger.ledger.record_table import RecordChange, RecordTable, submit_together
from kledger.runtime.tasks import Supervisor
from kledger.topics.keys import PARTITION_PREFIX, PartitionKeys
from kledger.topics.partition import manifest, records
from kledger.topics.partition.partition_tier import Tier, tier_folder
from kledger.topics.partition.records import TopicRecord
from kledger.topics.partition_name import managed_ledger_name

logger = logging.getLogger(__name__)

PARTITIONS_TOGETHER_MAX = 256
"""Partitions whose managed ledgers are deleted in one group."""
ROWS_TOGETHER_MAX = 1000


class DeletedTopics:
    """The remains in one store; made by the registry."""

    def __init__(self, store: LedgerStore, supervisor: Supervisor, tier: Tier | None) -> None:
        self._store = store
        self._tier = tier
        self._supervisor = supervisor
        self._remaining = RecordTable(store, records.DELETED_TOPIC_ROWS, self._replayed)
        self._settle: dict[UUID, Callable[[], Awaitable[None]]] = {}
        self._is_starting = False
        self._removing = asyncio.Lock()

    def load(self) -> None:
        """Read the deletions that were not completed before the start, and complete them.

        Raises:
            UnreadableRow: one of them cannot be read.
        """
        self._remaining.load()

    def deletion(self, record: TopicRecord) -> RecordChange:
        """Return the record of a deletion; when it is durable, the removal starts."""
        return self._remaining.change(record.topic_id, record)

    def begin_all(self, records: Iterable[TopicRecord]) -> None:
        """Begin to remove what topics that other brokers may have deleted have left here.

        If that is not stored, the next start finds what they have left.
        """
        for record in records:
            if self._remaining.head(record.topic_id) is None:
                self._remaining.submit(record.topic_id, record)

    def settle_first(self, topic_id: UUID, settle: Callable[[], Awaitable[None]]) -> None:
        """Await `settle` before what a topic has left is removed: then nothing adds to it."""
        self._settle[topic_id] = settle

    def _replayed(self, topic_id: UUID) -> None:
        if self._is_starting or self._removing.locked() or self._remaining.get(topic_id) is None:
            return
        if not self._supervisor.is_closed:
            self._is_starting = True
            self._supervisor.spawn(self.remove(), "removal of deleted topics")

    async def remove(self) -> None:
        """Remove all of it; the next call tries again what failed."""
        self._is_starting = False
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
        for record in self._remaining.durable.values():
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
        return True

    async def _remove(self, some: Sequence[TopicRecord]) -> None:
        names: list[str] = []
        for record in some:
            if (settle := self._settle.get(record.topic_id)) is not None:
                await settle()
            names += await self._store.run_blocking(self._stored, record)
        for start in range(0, len(names), PARTITIONS_TOGETHER_MAX):
            await self._store.delete_managed_ledgers(names[start : start + PARTITIONS_TOGETHER_MAX])
        for record in some:
            await self._delete_manifests(record)
        keys: list[bytes] = []
        for record in some:
            while len(found := await self._rows_of(record)) >= ROWS_TOGETHER_MAX:
                await self._store.put_rows([(key, None) for key in found])
            keys += found
        while len(keys) + len(some) > ROWS_TOGETHER_MAX:
            await self._store.put_rows([(key, None) for key in keys[:ROWS_TOGETHER_MAX]])
            del keys[:ROWS_TOGETHER_MAX]
        await self._forget(some, [(key, None) for key in keys])

    async def _delete_manifests(self, record: TopicRecord) -> None:
        """Delete what the tier has of a topic beside copies of ledgers, which the store deletes.

        Raises:
            TierUnavailable: it is tried again with the next removal.
        """
        for index in await self._store.run_blocking(self._with_manifest, record):
            if self._tier is None:
                raise TierUnavailable(
                    f"manifest of {record.name}-{index}: expected offload.url, got none"
                )
            folder = self._tier.below(tier_folder(record.name, record.topic_id, index))
            await self._store.call_tier(
                partial(folder.delete_whole, manifest.NAME),
                f"deleting the manifest of {record.name}-{index}",
            )
            await self._store.put_rows([(PartitionKeys(record.topic_id, index).manifest, None)])

    def _with_manifest(self, record: TopicRecord) -> list[int]:
        """Return the partitions that have a manifest; for a thread."""
        return [
            index
            for index in range(record.partition_count)
            if self._store.get_row(PartitionKeys(record.topic_id, index).manifest) is not None
        ]

    async def _forget(self, some: Sequence[TopicRecord], last: Sequence[Row]) -> None:
        """Delete the records of deletions, and in the same group the last rows of their topics."""

        def append(rows: Sequence[Row], done: RowsDone, /) -> None:
            self._store.append_rows_nowait([*last, *rows], done)

        error = await submit_together(
            [self._remaining.change(record.topic_id, None) for record in some], append
        )
        if error is not None:
            raise error
        for record in some:
            self._settle.pop(record.topic_id, None)

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
