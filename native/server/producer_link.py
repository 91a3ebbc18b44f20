"""ServerProducerLink: the server's end of a producer link.

Rule: a batch is appended as soon as `send` runs, unless the store is saturated, its records need a
long check, or earlier batches of the link still wait; so the log keeps the order of sends. The
partition log checks the batch, as it does for every façade.
Must not know: the content of a batch.
"""

import asyncio

from kledger.delivery.errors import PartitionEnded
from kledger.delivery.subscribed_partition import SubscribedPartition
from kledger.ledger import Buffer, LedgerStore
from kledger.named_topics.capacity import TopicCapacity
from kledger.native.broker import OnEnded, SendReceipt
from kledger.native.errors import AlreadyClosed, KledgerError
from kledger.native.server.duplicate_batches import DuplicateBatches
from kledger.native.server.error_map import native_error, translating
from kledger.runtime.blocking import PoolClosed
from kledger.runtime.containment import unit_of
from kledger.runtime.deferred import Deferred
from kledger.runtime.signal import Signal
from kledger.topics import AppendResult, RecordWalk, WalkNeeded, WalkResult, run_walk
from kledger.topics.errors import OutOfOrderSequence


class ServerProducerLink:
    """A `native.broker.ProducerLink`."""

    def __init__(
        self,
        partition: SubscribedPartition,
        store: LedgerStore,
        on_ended: OnEnded,
        capacity: TopicCapacity | None = None,
    ) -> None:
        """Open the link.

        Args:
            partition: where batches are appended.
            store: of the partition.
            on_ended: called when the partition has ended.
            capacity: of its topic, if that is limited.
        """
        self._partition = partition
        self._log = partition.log
        self._store = store
        self._stored = DuplicateBatches(partition.log)
        self._on_ended = on_ended
        self._capacity = capacity
        self._error: KledgerError | None = None
        self._append_lock = asyncio.Lock()  # first come, first served
        self._waiting_count = 0
        listener = self._on_partition_ended
        partition.add_listener(listener, unit_of(listener, "native link"))

    async def send(self, batch: Buffer, *, is_resent: bool = False) -> SendReceipt:
        """Append one batch; see `native.broker.ProducerLink`.

        Raises:
            NotInSequence: it does not follow the last one of its producer.
            InvalidArgument: the batch is damaged, too large, or breaks another rule.
            TopicTerminated: the topic accepts no more batches.
            TopicFull: its capacity is reached.
            AlreadyClosed, TopicNotFound, Unavailable: the link has ended, or the storage has
                failed; or the server cannot tell whether a resent batch is stored.
        """
        batch = _writable(batch)
        if self._waiting_count or self._store.is_saturated or self._capacity is not None:
            appended = await self._append_queued(batch, None, is_resent=is_resent)
        else:
            try:
                appended = self._append(batch, None, is_resent=is_resent)
            except WalkNeeded as needed:
                appended = await self._append_queued(batch, needed.walk, is_resent=is_resent)
        result = await appended
        if result.error is not None:
            # A resent batch may be stored already, although it is refused now.
            if is_resent or isinstance(result.error, OutOfOrderSequence):
                with translating():
                    found = await self._stored.find(batch)
                if found is not None:
                    return found
            raise native_error(result.error) from result.error
        position = result.position
        if position is None:  # it was stored by an earlier send
            with translating():
                position = (await self._log.locate(result.base_offset)).position
        return SendReceipt(position, result.base_offset)

    async def close(self) -> None:
        """Close the link; batches that were sent are appended."""
        self._partition.remove_listener(self._on_partition_ended)
        if self._error is None:
            self._error = AlreadyClosed("the producer was closed")

    def _append(
        self, batch: memoryview, walked: WalkResult | None, *, is_resent: bool
    ) -> Deferred[AppendResult]:
        if self._error is not None:
            raise self._error
        if is_resent:
            self._stored.check_known(batch)
        appended = Deferred[AppendResult]()
        answer = self._log.append_nowait(batch, appended.resolve, walked=walked)
        if answer is not None:
            appended.resolve(answer)
        return appended

    async def _append_queued(
        self, batch: memoryview, walk: RecordWalk | None, *, is_resent: bool
    ) -> Deferred[AppendResult]:
        """Append behind the waiting batches, when the store has room and the records are checked.

        Later batches wait behind this one, so that none overtakes it.
        """
        self._waiting_count += 1
        try:
            async with self._append_lock:
                if self._store.is_saturated:
                    drained = Signal()
                    self._store.on_drained(drained.notify)
                    await drained.wait_beyond(0)
                if self._capacity is not None and not is_resent:
                    with translating(self._partition):
                        await self._capacity.check(len(batch))
                walked = None
                while True:
                    if walk is not None:
                        walked = await self._walk(walk)
                    try:
                        return self._append(batch, walked, is_resent=is_resent)
                    except WalkNeeded as needed:
                        walk = needed.walk
        finally:
            self._waiting_count -= 1

    async def _walk(self, walk: RecordWalk) -> WalkResult:
        try:
            return await run_walk(walk, self._store.compute_pool)
        except PoolClosed:
            raise AlreadyClosed("the server is closing") from None

    def _on_partition_ended(self, ended: PartitionEnded) -> None:
        self._error = native_error(ended)
        self._on_ended(self._error)


def _writable(batch: Buffer) -> memoryview:
    """Return memory that may be written to: the batch's own, or a copy."""
    view = memoryview(batch)
    return memoryview(bytearray(view)) if view.readonly else view
