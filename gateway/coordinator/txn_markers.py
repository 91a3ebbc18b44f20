"""Txn markers: the end of a transaction, written into the partitions that it touched.

Rule: the markers of all partitions are submitted together and waited for together. A partition that
is gone needs none, nor one where a newer epoch has written: no transaction of an older one is open
there. What the storage refuses is raised when the others are done.
Must not know: transactional ids, what is decided.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from gateway.coordinator.txn_state import Identity
from offsets import Place
from topics import UnknownPartition
from topics.errors import InvalidProducerEpoch

if TYPE_CHECKING:
    from topics import AppendResult, PartitionLog, TopicRegistry

COORDINATOR_EPOCH: Final = 0
"""There is one coordinator, and it never moves."""
NEEDS_NONE: Final = (UnknownPartition, InvalidProducerEpoch)


class TxnMarkers:
    """Writes markers into the partitions of one server."""

    def __init__(self, registry: "TopicRegistry") -> None:
        self._registry = registry

    async def write(self, places: Iterable[Place], identity: Identity, is_commit: bool) -> None:
        """End a producer's transaction in partitions, durably.

        Raises:
            TopicsError: some could not be written; writing all of them again does no harm.
        """
        logs = [log for place in sorted(places) if (log := await self._open(place)) is not None]
        ends = [self._submit(log, identity, is_commit=is_commit) for log in logs]
        for result in await asyncio.gather(*ends):
            if result.error is not None and not isinstance(result.error, NEEDS_NONE):
                raise result.error

    async def write_one(
        self,
        place: Place,
        identity: Identity,
        *,
        is_commit: bool,
        coordinator_epoch: int = COORDINATOR_EPOCH,
    ) -> None:
        """End a producer's transaction in one partition, durably.

        Raises:
            TopicsError: what is in the way; UnknownPartition too.
        """
        log = await self._open(place)
        if log is None:
            raise UnknownPartition(f"there is no partition {place.topic}-{place.partition}")
        result = await self._submit(
            log, identity, is_commit=is_commit, coordinator_epoch=coordinator_epoch
        )
        if result.error is not None:
            raise result.error

    async def _open(self, place: Place) -> "PartitionLog | None":
        topic = self._registry.get(place.topic)
        if topic is None:
            return None
        try:
            return topic.partition(place.partition) or await topic.open_partition(place.partition)
        except UnknownPartition:
            return None

    @staticmethod
    def _submit(
        log: "PartitionLog",
        identity: Identity,
        *,
        is_commit: bool,
        coordinator_epoch: int = COORDINATOR_EPOCH,
    ) -> "asyncio.Future[AppendResult]":
        future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()

        def done(result: "AppendResult") -> None:
            if not future.done():
                future.set_result(result)

        result = log.append_marker_nowait(
            identity.producer_id,
            identity.epoch,
            done,
            is_commit=is_commit,
            coordinator_epoch=coordinator_epoch,
        )
        if result is not None:
            done(result)
        return future
