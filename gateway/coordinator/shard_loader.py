"""Shard loader: attaches and detaches shards of a coordinator.

Rule: a detached shard is refused at once, and its records are forgotten when nothing of them is
being written any more; only then may it be attached again, here or elsewhere. A shard whose rows
cannot be read stays detached. One move at a time; a move that is cancelled leaves shards detached.
Must not know: what is in a shard, why it moves.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Protocol

from kledger.gateway.coordinator.coordinator_shards_state import CoordinatorShards, Includes
from kledger.ledger import LedgerStore


class ShardRecords(Protocol):
    """The records of a coordinator, and what waits and runs for them."""

    def load_shards(self) -> None:
        """Load the records of all shards, in one scan of each kind."""
        ...

    def read_shards(self, is_included: Includes, /) -> Callable[[], None]:
        """Read stored records; blocks, in a thread.

        Returns:
            A function that lets them hold, and starts what runs for them, on the event loop.

        Raises:
            UnreadableRow, StorageFailed: one cannot be read.
        """
        ...

    def stop_shards(self, is_included: Includes, /) -> None:
        """Answer what waits with NOT_COORDINATOR, and stop every timer."""
        ...

    async def settle_shards(self, is_included: Includes, /) -> None:
        """Wait until nothing of them is being written."""
        ...

    def unload_shards(self, is_included: Includes, /) -> None:
        """Forget them; their rows stay."""
        ...


class ShardLoader:
    """Moves the shards of one coordinator in and out."""

    def __init__(
        self, shards: CoordinatorShards, store: LedgerStore, records: ShardRecords
    ) -> None:
        """Begin with all shards detached."""
        self._shards = shards
        self._store = store
        self._records = records
        self._moving = asyncio.Lock()
        self._stopped: dict[frozenset[int], Includes] = {}
        """Detached shards whose records are not forgotten yet, and what says which they are."""
        self._is_closed = False

    def attach_at_start(self, numbers: Collection[int]) -> None:
        """Attach the shards that the store has.

        Raises:
            UnreadableRow: a record cannot be read.
        """
        self._shards.attach(numbers)
        self._records.load_shards()

    def close(self) -> None:
        """Let no shard be attached any more."""
        self._is_closed = True

    async def attach(self, numbers: Collection[int]) -> None:
        """Load shards and serve them; attached ones among them stay as they are.

        One scan of each kind of row reads all of them, in a thread; one step of the event loop
        replays them, so that a broker that serves others meanwhile attaches a few at a time.

        Raises:
            ValueError: there is no such shard.
            UnreadableRow, LedgerError: a row could not be read; none of them is attached.
        """
        self._shards.check(numbers)
        async with self._moving:
            await self._forget_stopped()
            new = frozenset(numbers).difference(self._shards.attached())
            if not new or self._is_closed:
                return
            self._shards.begin_loading(new)
            is_attached = False
            try:
                is_included = self._shards.including(new)
                begin = await self._store.run_blocking(self._records.read_shards, is_included)
                if not self._is_closed:
                    self._shards.attach(new)
                    begin()
                    is_attached = True
            finally:
                if not is_attached:
                    self._stop(new)

    async def detach(self, numbers: Collection[int]) -> None:
        """Refuse requests for shards from now on; returns when another may attach them.

        What was answered before is durable then. What is being written is answered by its outcome.

        Raises:
            ValueError: there is no such shard.
        """
        self._shards.check(numbers)
        async with self._moving:
            self._stop(frozenset(numbers).intersection(self._shards.attached()))
            await self._forget_stopped()

    def _stop(self, numbers: frozenset[int]) -> None:
        if numbers:
            is_included = self._stopped[numbers] = self._shards.including(numbers)
            self._shards.detach(numbers)
            self._records.stop_shards(is_included)

    async def _forget_stopped(self) -> None:
        for numbers, is_included in list(self._stopped.items()):
            await self._records.settle_shards(is_included)
            self._records.unload_shards(is_included)
            del self._stopped[numbers]
