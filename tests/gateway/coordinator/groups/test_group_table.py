"""The table of groups: loading, waiting requests, writes and their answers."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kledger.gateway.coordinator.classic.classic_group_record import (
    ClassicGroupRecord,
    encode_classic_group,
    encode_group_key,
)
from kledger.gateway.coordinator.classic.classic_group_state import ClassicGroup
from kledger.gateway.coordinator.coordinator_shards_state import CoordinatorShards
from kledger.gateway.coordinator.effects import Cancel, Effect, Persist, Respond, Schedule, TimerKey
from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.groups.group_offsets import GroupOffsets
from kledger.gateway.coordinator.groups.group_table import GroupTable, HostedGroup
from kledger.ledger import LedgerStore, StoreConfig
from kledger.ledger.record_table import submit_together
from kledger.ledger.testing import ManualClock
from kledger.offsets import OffsetStore, TopicPartition
from kledger.runtime.deferred import Deferred
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from tests.gateway.coordinator.group_words import GroupWorld
from tests.gateway.coordinator.shell_words import at, settle

KEY, OTHER = TimerKey("session", "k"), TimerKey("session", "other")
REFUSED = "refused: COORDINATOR_NOT_AVAILABLE"
EMPTY = ClassicGroupRecord(
    group_id="g", generation=5, protocol_type="consumer", protocol_name=None, leader=None
)


class Stage:
    """A table with one group, over a store in memory."""

    def __init__(self, store: LedgerStore, clock: ManualClock, supervisor: Supervisor) -> None:
        self.store = store
        self.clock = clock
        self.timers = Timers(clock, supervisor)
        self.shards = CoordinatorShards(4)
        self.shards.attach(range(4))
        config = GroupConfig(groups_max=2)
        self.groups = GroupTable(store, self.shards, config, clock, self.timers)
        self.hosted: HostedGroup = self.groups.ensure("g")

    def perform(self, *effects: Effect) -> None:
        """Let the group decide on these effects."""
        self.groups.decide(self.hosted, lambda _: (None, effects), None)

    def ask(self, *effects: Effect) -> Deferred[object]:
        """Begin a request with these effects; its waiter is the next number, from 1 on."""
        waiter = self.groups.register(lambda error: f"refused: {error.name}")
        return self.groups.run(self.hosted, waiter, lambda _: effects)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    clock, supervisor = ManualClock(50_000), Supervisor()
    async with LedgerStore.open(None, config=StoreConfig(durability="os"), clock=clock) as store:
        yield Stage(store, clock, supervisor)
        await supervisor.close()


async def test_groups_are_loaded_from_records_and_from_offsets(stage: Stage) -> None:
    world = GroupWorld()
    world.stable("a")
    assert world.durable is not None
    await stage.store.put_rows(
        [
            (encode_group_key("stable"), encode_classic_group(world.durable)),
            (encode_group_key("empty"), encode_classic_group(EMPTY)),
        ]
    )
    offsets = OffsetStore(stage.store)
    for group in ("tools", "empty"):
        assert await offsets.commit(group, {TopicPartition("t", 0): at(1)}) is None
    config = GroupConfig()
    loaded = GroupTable(stage.store, stage.shards, config, stage.clock, stage.timers)
    loaded.load()
    GroupOffsets(
        table=loaded, store=stage.store, config=config, clock=stage.clock, timers=stage.timers
    ).load()
    assert len(stage.timers) == 1, "one session"
    states = {hosted.group_id: hosted.group.state.value for hosted in loaded}
    assert {"stable": "Stable", "empty": "Empty", "tools": "Empty"} == states
    empty = loaded.get("empty")
    assert empty is not None
    assert isinstance(empty.group, ClassicGroup)
    assert 5 == empty.group.generation
    loaded.close()


def test_ensure_makes_a_group_once(stage: Stage) -> None:
    assert not stage.groups.is_full
    hosted = stage.groups.ensure("h")
    assert stage.groups.ensure("h") is hosted is stage.groups.get("h")
    assert (True, 2) == (stage.groups.is_full, len(stage.groups))


async def test_timer_set_again_or_cancelled_does_not_fire_at_its_old_time(stage: Stage) -> None:
    stage.perform(Schedule(KEY, 10), Schedule(OTHER, 10), Schedule(KEY, 20), Cancel(OTHER))
    assert {KEY} == stage.hosted.timers.keys()
    await settle()
    stage.clock.advance(10)
    await settle()
    assert {KEY} == stage.hosted.timers.keys()
    stage.clock.advance(10)
    await settle()
    assert {} == stage.hosted.timers


async def test_answer_that_comes_at_once_needs_no_wait(stage: Stage) -> None:
    assert (True, "yes") == (
        stage.ask(Respond(1, "yes")).is_resolved,
        await stage.ask(Respond(2, "yes")),
    )
    assert 0 == stage.groups.waiting_count


async def test_answer_of_a_later_event_wakes_the_request(stage: Stage) -> None:
    answer = stage.ask()
    stage.perform(Respond(1, "late"), Respond(1, "again"))
    assert "late" == await answer


async def test_answer_and_cancellation_in_one_tick_count_as_answered(stage: Stage) -> None:
    request = asyncio.ensure_future(_awaiting(stage.ask()))
    await settle()
    stage.perform(Respond(1, "yes"))
    request.cancel()
    await settle()
    assert 0 == stage.groups.waiting_count


async def _awaiting(answer: Deferred[object]) -> object:
    return await answer


async def test_waiting_members_are_refused_at_the_end(stage: Stage) -> None:
    answers = [stage.ask(), stage.ask(Persist(EMPTY, ((2, "stored"),)))]
    stage.perform(Schedule(KEY, 10))
    stage.groups.close()
    assert [REFUSED] * 2 == [await each for each in answers]
    assert {} == stage.hosted.timers


async def test_answers_wait_for_the_last_write_of_their_group(stage: Stage) -> None:
    first = stage.ask(Persist(EMPTY, ((1, "first"),)))
    second = stage.ask(Persist(EMPTY, ((2, "second"),)))
    unchanged = stage.ask(Persist(None, ((3, "unchanged"),)))
    assert not any(each.is_resolved for each in (first, second, unchanged))
    assert stage.groups.is_writing("g")
    await stage.store.flush()
    await settle()
    assert ["first", "second", "unchanged"] == [
        each.result() for each in (first, second, unchanged)
    ]
    assert "later" == stage.ask(Persist(None, ((4, "later"),))).result()
    assert not stage.groups.is_writing("g")


async def test_record_carries_the_time_at_which_it_was_written(stage: Stage) -> None:
    assert stage.groups.empty_since_ms("g") is None
    stage.perform(Persist(EMPTY))
    assert 50_000 == stage.groups.empty_since_ms("g")
    world = GroupWorld()
    world.stable("a")
    stage.perform(Persist(world.durable))
    assert stage.groups.empty_since_ms("g") is None


async def test_stopped_store_refuses_at_once(stage: Stage) -> None:
    await stage.store.close()
    assert REFUSED == stage.ask(Persist(EMPTY, ((1, "stored"),))).result()
    assert stage.groups.empty_since_ms("g") is None


async def test_group_that_is_not_empty_outlives_its_deletion(stage: Stage) -> None:
    stage.perform(Persist(EMPTY))
    await submit_together([stage.groups.deletion("g")])
    assert stage.groups.get("g") is None
    world = GroupWorld()
    world.stable("a")
    again = stage.hosted = stage.groups.ensure("g")
    stage.perform(Persist(world.durable))
    await submit_together([stage.groups.deletion("g")])
    assert stage.groups.get("g") is again
