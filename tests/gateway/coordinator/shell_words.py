"""A coordinator over a real store in memory, with a clock that tests move.

`settle` runs enough ticks for everything that can happen without time passing. With an engine of
its own (for faults and restarts) the store commits in a thread: `bench.written` then waits until
every submitted write has ended.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.group_messages import JoinResult, RequestingMember
from kledger.gateway.coordinator.groups.group_coordinator import GroupCoordinator
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import LedgerStore, StoreConfig
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.offsets import NO_EXPIRY, CommittedOffset, TopicPartition
from kledger.runtime.entropy import SeededEntropy
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from tests.gateway.coordinator.consumer_words import CatalogOfTest, assignment_of
from tests.gateway.coordinator.group_words import join_command, sync_command

TOPIC_ID = uuid.UUID(int=1)
Result = TypeVar("Result")


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


def at(offset: int, commit_ms: int = 0, expire_ms: int = NO_EXPIRY) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", commit_ms, expire_ms, TOPIC_ID)


class CoordinatorBench:
    """One running coordinator."""

    def __init__(
        self, groups: GroupCoordinator, clock: ManualClock, store: LedgerStore, timers: Timers
    ) -> None:
        self.groups = groups
        self.clock = clock
        self.store = store
        self.timers = timers
        self.tasks: list[asyncio.Future[Any]] = []

    async def start(self, work: Awaitable[Result]) -> asyncio.Future[Result]:
        """Begin a request and let it proceed as far as it can without time."""
        task = asyncio.ensure_future(work)
        self.tasks.append(task)
        await settle()
        return task

    async def written(self) -> None:
        """Wait until every write so far has ended and was processed."""
        await settle()
        await self.store.put_rows([(b"barrier", None)])
        await settle()

    async def advance(self, ms: int) -> None:
        """Move the clock in small steps, as if time really passed."""
        for _ in range(ms // 500):
            self.clock.advance(500)
            await settle()
        self.clock.advance(ms % 500)
        await settle()

    async def join(self, member_id: str = "", **changes: Any) -> JoinResult:
        """Join alone, or as the last one; the initial delay passes meanwhile."""
        task = await self.start(self.groups.join(join_command(member_id, **changes)))
        if not task.done():
            await self.advance(6_000)
        return await task

    async def stable(
        self, group_id: str = "g", assignments: str | None = None, **changes: Any
    ) -> JoinResult:
        """Make a stable group of one member; `0123` assigns those partitions of `t`."""
        joined = await self.join(group_id=group_id, **changes)
        synced = await self.groups.sync(
            sync_command(
                joined.member_id,
                joined.generation,
                group_id=group_id,
                assignments={
                    joined.member_id: assignment_of("t", assignments) if assignments else b"all"
                },
            )
        )
        assert synced.error == ErrorCode.NONE
        return joined

    async def commit(
        self,
        topic_partition: TopicPartition,
        offset: CommittedOffset,
        sender: RequestingMember | None = None,
        group: str = "g",
    ) -> ErrorCode:
        sender = sender or RequestingMember("", -1)
        return await self.groups.offsets.commit(group, sender, [(topic_partition, offset)])


@asynccontextmanager
async def coordinator(
    config: GroupConfig | None = None,
    *,
    engine: FaultyEngine | None = None,
    clock: ManualClock | None = None,
    catalog: CatalogOfTest | None = None,
) -> AsyncIterator[CoordinatorBench]:
    """Run a coordinator; with the engine of an earlier one this is a restart."""
    clock = clock or ManualClock(1_000_000)
    supervisor = Supervisor()
    settings = StoreConfig(durability="os")
    async with LedgerStore.open(None, config=settings, clock=clock, engine=engine) as store:
        timers = Timers(clock, supervisor)
        groups = GroupCoordinator.open(
            store,
            catalog=catalog or CatalogOfTest(),
            config=config or GroupConfig(),
            clock=clock,
            timers=timers,
            entropy=SeededEntropy(1),
        )
        bench = CoordinatorBench(groups, clock, store, timers)
        try:
            yield bench
        finally:
            groups.close()
            for task in bench.tasks:
                task.cancel()
            await asyncio.gather(*bench.tasks, return_exceptions=True)
            await supervisor.close()
