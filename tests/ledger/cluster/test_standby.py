"""A standby over a model database, with a clock that the tests move."""

import asyncio
from collections.abc import Callable

import pytest

from kledger.ledger.cluster.database import (
    AcquiredEpoch,
    Change,
    NoCluster,
    SessionFenced,
    SessionState,
)
from kledger.ledger.cluster.faulty_database import DatabaseFault, FaultyDatabase
from kledger.ledger.cluster.memory_database import MemoryDatabase
from kledger.ledger.cluster.session_state import FENCE_AFTER_MS, POLL_EVERY_MS
from kledger.ledger.cluster.standby import ACQUIRE_EVERY_MS, OwnedSession, Standby
from kledger.runtime.blocking import InlinePool
from kledger.runtime.manual_clock import ManualClock
from tests.ledger.cluster.database_words import broker, owner

TICKS = 20
"""More than a standby needs between two sleeps."""


class Scene:
    """A standby, its clock, and the database that it shares with an owner."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.memory = MemoryDatabase(now_ms=self.clock.monotonic_ms)
        self.memory.create(cluster_id="test-cluster", store="memory://")
        self.fault = DatabaseFault.NONE
        self.standby = self.make(2)

    def make(self, broker_id: int, choose: Callable[[str], DatabaseFault] | None = None) -> Standby:
        return Standby(
            FaultyDatabase(self.memory, choose or (lambda _: self.fault)),
            broker(broker_id),
            clock=self.clock,
            boot_ms=lambda: 7_000 + self.clock.monotonic_ms(),
            pool=InlinePool(),
        )

    async def pass_time(self, ms: int) -> None:
        """Move the clock in the steps of the standby."""
        for _ in range(0, ms, POLL_EVERY_MS):
            await ticks()
            self.clock.advance(POLL_EVERY_MS)
        await ticks()


async def ticks() -> None:
    for _ in range(TICKS):
        await asyncio.sleep(0)


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_first_broker_owns_the_cluster_at_once(scene: Scene) -> None:
    owned = await scene.standby.become_owner()
    assert OwnedSession(owned.session, AcquiredEpoch(1, 0), 7_000) == owned


async def test_standby_waits_for_an_owner_that_lives_and_takes_over_when_it_ends(
    scene: Scene,
) -> None:
    first = owner(scene.memory)
    waiting = asyncio.ensure_future(scene.standby.become_owner())
    for seq in range(1, 10):
        await scene.pass_time(FENCE_AFTER_MS - POLL_EVERY_MS)
        scene.memory.commit(first, seq, Change())
    assert not waiting.done()

    scene.memory.end_session(first)
    await scene.pass_time(POLL_EVERY_MS)
    assert AcquiredEpoch(2, 0) == waiting.result().acquired


async def test_silent_owner_is_replaced(scene: Scene) -> None:
    first = owner(scene.memory)
    waiting = asyncio.ensure_future(scene.standby.become_owner())
    await scene.pass_time(FENCE_AFTER_MS - POLL_EVERY_MS)
    assert not waiting.done()
    await scene.pass_time(2 * POLL_EVERY_MS)
    assert 2 == waiting.result().acquired.epoch
    with pytest.raises(SessionFenced):
        scene.memory.commit(first, 1, Change())


async def test_outage_of_the_database_is_waited_for_and_counts_for_nobody(scene: Scene) -> None:
    first = owner(scene.memory)
    scene.fault = DatabaseFault.AWAY
    waiting = asyncio.ensure_future(scene.standby.become_owner())
    await scene.pass_time(2 * FENCE_AFTER_MS)
    scene.fault = DatabaseFault.NONE
    await scene.pass_time(FENCE_AFTER_MS - POLL_EVERY_MS)
    scene.fault = DatabaseFault.AWAY
    await scene.pass_time(2 * FENCE_AFTER_MS)
    scene.fault = DatabaseFault.NONE
    await scene.pass_time(FENCE_AFTER_MS - POLL_EVERY_MS)
    assert not waiting.done()
    scene.memory.commit(first, 1, Change())
    waiting.cancel()


@pytest.mark.parametrize("fault", [DatabaseFault.ANSWER_LOST, DatabaseFault.LOST])
@pytest.mark.parametrize("method", ["begin_session", "fence", "acquire"])
async def test_call_with_an_unknown_outcome_is_made_again(
    scene: Scene, method: str, fault: DatabaseFault
) -> None:
    faults = [fault]

    def choose(called: str) -> DatabaseFault:
        return faults.pop() if called == method and faults else DatabaseFault.NONE

    owner(scene.memory)
    waiting = asyncio.ensure_future(scene.make(3, choose).become_owner())
    await scene.pass_time(3 * FENCE_AFTER_MS)
    assert [] == faults
    assert 2 == waiting.result().acquired.epoch


async def test_newer_session_of_a_broker_replaces_the_one_that_waits(scene: Scene) -> None:
    owner(scene.memory)
    waiting = asyncio.ensure_future(scene.standby.become_owner())
    await ticks()
    scene.memory.begin_session(broker(2))
    await scene.pass_time(ACQUIRE_EVERY_MS)
    with pytest.raises(SessionFenced):
        waiting.result()


async def test_standby_shows_that_it_lives(scene: Scene) -> None:
    first = owner(scene.memory)
    waiting = asyncio.ensure_future(scene.standby.become_owner())
    for seq in range(1, 20):
        await scene.pass_time(2 * POLL_EVERY_MS)
        scene.memory.commit(first, seq, Change())
        described = scene.memory.describe().sessions[1]
        assert described.silent_ms <= ACQUIRE_EVERY_MS
    waiting.cancel()


async def test_two_standbys_do_not_both_take_over(scene: Scene) -> None:
    owner(scene.memory)
    both = [asyncio.ensure_future(each.become_owner()) for each in (scene.standby, scene.make(3))]
    await scene.pass_time(2 * FENCE_AFTER_MS)
    assert [1] == [each.result().acquired.seq + 1 for each in both if each.done()]
    for each in both:
        each.cancel()


async def test_standby_that_ends_closes_its_session(scene: Scene) -> None:
    await scene.standby.end()
    owner(scene.memory)
    waiting = asyncio.ensure_future(scene.standby.become_owner())
    await ticks()
    waiting.cancel()
    await scene.standby.end()
    assert SessionState.CLOSED == scene.memory.describe().sessions[1].state


async def test_end_does_not_wait_for_a_database_that_is_unavailable(scene: Scene) -> None:
    await scene.standby.become_owner()
    scene.fault = DatabaseFault.AWAY
    await scene.standby.end()
    assert scene.memory.observe() is not None


async def test_database_without_a_cluster_ends_the_wait() -> None:
    scene = Scene()
    scene.memory.restore(MemoryDatabase().snapshot())
    with pytest.raises(NoCluster):
        await scene.standby.become_owner()


async def test_claim_asks_once(scene: Scene) -> None:
    session = owner(scene.memory)
    assert await scene.standby.claim() is None
    scene.memory.end_session(session)
    owned = await scene.make(3).claim()
    assert owned is not None
    assert AcquiredEpoch(2, 0) == owned.acquired


@pytest.mark.parametrize("method", ["begin_session", "acquire"])
async def test_claim_without_an_answer_leaves_nothing_behind(scene: Scene, method: str) -> None:
    """The database may have made the session the owner all the same."""

    def choose(called: str) -> DatabaseFault:
        return DatabaseFault.ANSWER_LOST if called == method else DatabaseFault.NONE

    standby = scene.make(3, choose)
    assert await standby.claim() is None
    await standby.end()
    assert scene.memory.observe() is None
