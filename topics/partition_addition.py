"""Partition addition: the cursors of new partitions, made before the partitions are visible.

Rule: every durable cursor of an old partition is made at the beginning of every new one before
records can be appended to it, so a subscription to the whole topic misses none. What an addition
that was not completed has left is deleted first. For a server that is alone; brokers that share
topics have `TopicCursors`.
Must not know: the subscriptions of cursors, how the topic gets its new count.
"""

import logging
from contextlib import suppress

from kledger.ledger import LedgerError, LedgerStore, OffloadPolicies
from kledger.topics.errors import TopicsError
from kledger.topics.partition.partition_checkpointer import ledger_config
from kledger.topics.partition.records import TopicRecord
from kledger.topics.partition.results import from_ledger_error
from kledger.topics.topic import Topic

logger = logging.getLogger(__name__)


class PartitionAddition:
    """One addition to one topic.

    `prepare`, then the caller stores the new count and calls `follow` when it holds, then `settle`.
    """

    def __init__(self, topic: Topic, store: LedgerStore, record: TopicRecord) -> None:
        """Args: record: of the topic with its new partitions."""
        self._topic = topic
        self._store = store
        self._old = range(topic.partition_count)
        self._new = range(topic.partition_count, record.partition_count)
        self._prepared: set[str] = set()
        self._current: set[str] = set()

    async def prepare(self) -> None:
        """Make the new partitions' cursors, durably.

        Raises:
            TopicsError: a cursor cannot be made; nothing has changed.
        """
        stored = set(self._store.managed_ledger_names())
        for index in self._old:
            if self._topic.ledger_name(index) in stored:  # else it has no cursors
                await self._topic.open_partition(index)
        self._prepared = self._names()
        try:
            for index in self._new:
                name = self._topic.ledger_name(index)
                if name in stored:
                    await self._store.delete_managed_ledger(name)
                if self._prepared:
                    await self._make(name)
        except LedgerError as error:
            await self.undo()
            raise from_ledger_error(error) from error

    async def undo(self) -> None:
        """Delete what was made; the next addition, or deleting the topic, deletes the rest."""
        if self._prepared:
            for index in reversed(self._new):
                with suppress(LedgerError):
                    await self._store.delete_managed_ledger(self._topic.ledger_name(index))

    def follow(self) -> None:
        """Note the cursors of the old partitions, in the step in which the new are visible."""
        self._current = self._names()

    async def settle(self) -> None:
        """Make and delete cursors as on the old partitions between `prepare` and `follow`."""
        missing, deleted = self._current - self._prepared, self._prepared - self._current
        if not missing and not deleted:
            return
        for index in self._new:
            try:
                ledger = (await self._topic.open_partition(index)).managed_ledger
                await ledger.change_cursors(added=missing, removed=deleted - self._names())
            except (LedgerError, TopicsError) as error:
                logger.warning("cursors of new partition %s-%d: %s", self._topic.name, index, error)

    async def _make(self, name: str) -> None:
        config = ledger_config(self._topic.config, OffloadPolicies())
        ledger = await self._store.open_managed_ledger(name, config=config)
        await ledger.change_cursors(added=self._prepared)
        await ledger.close()

    def _names(self) -> set[str]:
        """Return the names of the durable cursors of the old partitions; plain."""
        opened = (self._topic.partition(index) for index in self._old)
        return {
            name for log in opened if log is not None for name in log.managed_ledger.cursor_names
        }
