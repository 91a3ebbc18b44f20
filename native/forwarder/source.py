"""CursorSource and LinkSource: a forwarder reads a local cursor or consumes from a server.

Rule: both keep the position in the source's log; entries that were read before a rewind, or before
a client set the position, are outdated.
Must not know: the target.
"""

from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from kledger.batches.header import read_record_count
from kledger.ledger import AlreadyMarkDeleted, Cursor, LedgerError
from kledger.native.broker import Broker, ConsumerLink, ConsumerRequest
from kledger.native.errors import ConsumerBusy, KledgerError, SubscriptionFenced, Unavailable
from kledger.native.forwarder.forwarder_state import SourceEntry
from kledger.runtime.signal import Signal
from kledger.subscriptions.model import ALL, Acknowledgement, Delivery

QUEUE_RECORDS_MAX = 2_000
"""Records that may be in flight or in the queue."""
QUEUE_RECORDS_FIRST = 100
"""The same while their size is unknown."""
QUEUE_BYTES_MAX = 16 << 20
"""Bytes that may be in flight or in the queue, estimated from the last read."""


class CursorSource:
    """A cursor of a managed ledger whose entries are batches."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor

    def is_outdated(self, number: int) -> bool:
        """Return whether the cursor was reset after this revision."""
        return self._cursor.revision.is_outdated(number)

    async def rewind(self) -> int:
        """Continue behind the mark-delete position; return the revision. Raises ResetInProgress."""
        await self._cursor.rewind()
        return self._cursor.revision.number

    async def read_or_wait(self, count: int, bytes_max: int) -> list[SourceEntry]:
        """Return the next entries."""
        entries = await self._cursor.read_or_wait(count, max_bytes=bytes_max)
        return [
            self._unacknowledged_part(
                SourceEntry(each.position, each.data, ALL, read_record_count(each.data))
            )
            for each in entries
        ]

    async def mark_delete(self, entry: SourceEntry, number: int) -> None:
        """Acknowledge everything up to an entry."""
        with suppress(AlreadyMarkDeleted):
            await self._cursor.mark_delete(entry.position, revision=number)

    async def close(self) -> None:
        """Close the cursor."""
        with suppress(LedgerError):  # acknowledgements are durable already
            await self._cursor.close()

    def _unacknowledged_part(self, entry: SourceEntry) -> SourceEntry:
        indexes = self._cursor.batch_indexes(entry.position)
        if indexes is None:
            return entry
        return entry._replace(records=sum(1 << index for index in indexes))


class LinkSource:
    """The only consumer of a subscription; to rewind, it joins again.

    If a link ends because the subscription was reset, its entries are outdated; if it ends for
    another reason, reading fails.
    """

    def __init__(
        self, broker: Broker, request: ConsumerRequest, *, records_max: int = QUEUE_RECORDS_MAX
    ) -> None:
        self._broker = broker
        self._request = request
        self._records_max = records_max
        self._permits = 0  # granted, and their records not read
        self._number = 0
        self._link: ConsumerLink | None = None
        self._is_joined = False
        self._failure: KledgerError | None = None
        self._queue: deque[SourceEntry] = deque()
        self._signal = Signal()

    def is_outdated(self, number: int) -> bool:
        """Return whether the subscription was reset after this revision."""
        return number != self._number

    async def rewind(self) -> int:
        """Join the subscription again, which redelivers all unacknowledged records in order.

        Raises:
            ConsumerBusy: it has another consumer. Raised only by the first call: later, the server
                may not have noticed yet that the last link was lost.
        """
        self._forget()
        await self._leave()
        number = self._number

        def deliver(deliveries: Sequence[Delivery]) -> None:
            if number == self._number:
                self._queue += map(_entry_of, deliveries)
                self._signal.notify()

        def on_ended(error: KledgerError | None) -> None:
            if number == self._number:
                self._on_link_ended(error)

        try:
            link = await self._broker.open_consumer(
                self._request, deliver=deliver, on_ended=on_ended
            )
        except ConsumerBusy as error:
            if not self._is_joined:
                raise
            raise Unavailable(str(error)) from error
        self._is_joined = True
        self._link = link
        self._permits = 0
        self._permit(QUEUE_RECORDS_FIRST)
        return number

    async def read_or_wait(self, count: int, bytes_max: int) -> list[SourceEntry]:
        """Return at least one delivered entry; none if the subscription was reset."""
        number = self._number
        while not self._queue:
            version = self._signal.version
            if self._failure is not None:
                raise self._failure
            await self._signal.wait_beyond(version)
            if number != self._number:
                return []
        entries = [self._queue.popleft()]
        bytes_left = bytes_max - len(entries[0].data)
        while self._queue and len(entries) < count and len(self._queue[0].data) <= bytes_left:
            entries.append(self._queue.popleft())
            bytes_left -= len(entries[-1].data)
        records = sum(map(_record_count, entries))
        size = sum(len(entry.data) for entry in entries)
        self._permits -= records
        self._permit(QUEUE_BYTES_MAX * records // max(size, 1))
        return entries

    async def mark_delete(self, entry: SourceEntry, number: int) -> None:
        """Acknowledge everything up to an entry."""
        if self.is_outdated(number):
            return
        if self._link is None or self._failure is not None:
            raise self._failure or Unavailable("the consumer has no link")
        await self._link.acknowledge_upto(Acknowledgement(entry.position, ALL, entry.batch_size))

    async def close(self) -> None:
        """Leave the subscription, and keep it."""
        self._forget()
        await self._leave()

    def _permit(self, count: int) -> None:
        """Permit `count` records to be in flight, within the limits."""
        count = max(1, min(count, self._records_max)) - self._permits
        if count > 0 and self._link is not None:
            self._permits += count
            self._link.add_permits(count)

    def _forget(self) -> None:
        self._number += 1
        self._failure = None
        self._queue.clear()

    def _on_link_ended(self, error: KledgerError | None) -> None:
        if error is None or isinstance(error, SubscriptionFenced):
            self._forget()
        else:
            self._failure = error
        self._signal.notify()

    async def _leave(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            with suppress(KledgerError):  # it may have ended already
                await link.close()


def _entry_of(delivery: Delivery) -> SourceEntry:
    size = read_record_count(delivery.data)
    return SourceEntry(delivery.position, delivery.data, delivery.records, size)


def _record_count(entry: SourceEntry) -> int:
    every_record = (1 << entry.batch_size) - 1
    return (entry.records & every_record).bit_count()
