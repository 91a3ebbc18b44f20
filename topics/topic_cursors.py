"""Topic cursors: the names of durable cursors of topics whose partitions several brokers lead.

Rule: a name is registered before the first cursor of it is made, with the number of partitions that
the topic has then, and removed before the first one is deleted. A partition that is added later,
by whichever broker, begins with a cursor of each name: its leader makes those that are missing
when it opens the partition, as long as that has no record. So no broker waits for another one, and
a crash between two of these steps needs no repair.
Must not know: subscriptions, how partitions are opened. A server that is alone has none of this:
see `PartitionAddition`.
"""

from collections.abc import Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final
from uuid import UUID

from kledger.ledger import LedgerError, TableStore
from kledger.ledger.record_table import RecordChange, RecordTable
from kledger.topics.errors import TooManyCursors
from kledger.topics.partition.records import CURSOR_ROWS, CursorKey
from kledger.topics.partition.results import from_ledger_error

CURSORS_OF_TOPIC_MAX: Final = 10_000
"""Registered names of one topic."""
_NONE: Final[Mapping[str, int]] = {}


class TopicCursors:
    """The registered cursors of all topics."""

    def __init__(self, tables: TableStore) -> None:
        """Args: tables: that the brokers share; `load` reads them."""
        self._records = RecordTable(tables, CURSOR_ROWS, self._replayed)
        self._counts: dict[UUID, dict[str, int]] = {}
        """By topic and name, how many partitions the topic had."""
        self._tables = tables

    def load(self) -> None:
        """Read all of them. Raises UnreadableRow."""
        self._records.load()

    def change_lock(self) -> AbstractAsyncContextManager[None]:
        """Return the lock under which `register` and `remove` are called."""
        return self._tables.change_lock()

    def has(self, topic_id: UUID, name: str) -> bool:
        """Whether a name is registered; plain."""
        return name in self._counts.get(topic_id, _NONE)

    def first_cursors(self, topic_id: UUID, index: int) -> Collection[str]:
        """Return the names that a partition begins with; plain."""
        counts = self._counts.get(topic_id, _NONE)
        return [name for name, count in counts.items() if index >= count]

    async def register(self, topic: str, topic_id: UUID, name: str, partition_count: int) -> None:
        """Register a name, unless it is.

        Raises:
            TooManyCursors: the topic has as many as it can have.
            TopicStorageFailed: it is not registered.
        """
        if self.has(topic_id, name):
            return
        if len(self._counts.get(topic_id, _NONE)) >= CURSORS_OF_TOPIC_MAX:
            raise TooManyCursors(
                f"durable cursors of {topic}: expected at most {CURSORS_OF_TOPIC_MAX}, got {name!r}"
            )
        await self._submit(CursorKey(topic_id, name), partition_count)

    async def remove(self, topic_id: UUID, name: str) -> None:
        """Remove a name, if it is registered. Raises TopicStorageFailed: it may be."""
        if self.has(topic_id, name):
            await self._submit(CursorKey(topic_id, name), None)

    def removals(self, topic_id: UUID) -> list[RecordChange]:
        """Return the changes that remove all names of a topic, to be written with its end."""
        names = self._counts.get(topic_id, _NONE)
        return [self._records.change(CursorKey(topic_id, name), None) for name in names]

    async def _submit(self, key: CursorKey, partition_count: int | None) -> None:
        error = await self._records.submit(key, partition_count)
        if isinstance(error, LedgerError):
            raise from_ledger_error(error) from error
        if error is not None:
            raise error

    def _replayed(self, key: CursorKey) -> None:
        count = self._records.get(key)
        if count is not None:
            self._counts.setdefault(key.topic_id, {})[key.name] = count
            return
        counts = self._counts.get(key.topic_id, {})
        counts.pop(key.name, None)
        if not counts:
            self._counts.pop(key.topic_id, None)
