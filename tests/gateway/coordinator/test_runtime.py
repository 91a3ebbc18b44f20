"""The runtime performs effects in order and brings back what ends later."""

import asyncio
from collections.abc import Sequence

import pytest

from kledger.gateway.coordinator.effects import Cancel, Effect, Persist, Respond, Schedule, TimerKey
from kledger.gateway.coordinator.runtime import CoordinatorRuntime, HostedMachine
from kledger.ledger import LedgerStore, StoreConfig
from kledger.ledger.testing import ManualClock
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from tests.contained import Contained
from tests.gateway.coordinator.shell_words import settle

KEY, OTHER = TimerKey("k"), TimerKey("k", "other")


class Recorder:
    """A machine that notes what happens to it and reacts with effects given beforehand."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.reactions: dict[object, list[Effect]] = {}
        self.fault_in = ""

    def timer_fired(self, key: TimerKey, now_ms: int) -> list[Effect]:
        return self._note(("timer", key, now_ms))

    def persisted(self, revision: int, *, failed: bool, now_ms: int) -> list[Effect]:
        return self._note(("persisted", revision, failed))

    def abandon(self, waiter: int, now_ms: int) -> list[Effect]:
        return self._note(("abandoned", waiter))

    def rows(self, record: object) -> Sequence[tuple[bytes, bytes | None]]:
        return [(b"row", str(record).encode())]

    def _note(self, event: tuple[object, ...]) -> list[Effect]:
        self.events.append(event)
        if event[0] == self.fault_in:
            raise RuntimeError(f"a fault in {self.fault_in}")
        return self.reactions.get(event, [])


class Stage:
    """A runtime with one machine, over a store in memory."""

    def __init__(self, store: LedgerStore, clock: ManualClock, supervisor: Supervisor) -> None:
        self.store = store
        self.clock = clock
        self.supervisor = supervisor
        self.runtime = CoordinatorRuntime(store, clock, Timers(clock, supervisor))
        self.machine = Recorder()
        self.hosted = HostedMachine(self.machine, "g")

    def perform(self, *effects: Effect) -> None:
        self.runtime.perform(self.hosted, effects)

    async def advance(self, ms: int) -> None:
        await settle()
        self.clock.advance(ms)
        await settle()


@pytest.fixture
async def stage() -> object:
    clock, supervisor = ManualClock(), Supervisor()
    async with LedgerStore.open(None, config=StoreConfig(durability="os"), clock=clock) as store:
        made = Stage(store, clock, supervisor)
        yield made
        await supervisor.close()


async def test_timer_fires_once_and_its_effects_are_performed(stage: Stage) -> None:
    stage.machine.reactions["timer", KEY, 10] = [Schedule(OTHER, 5)]

    stage.perform(Schedule(KEY, 10))
    await stage.advance(10)
    await stage.advance(100)

    assert stage.machine.events == [("timer", KEY, 10), ("timer", OTHER, 110)]


async def test_timer_set_again_or_cancelled_does_not_fire_at_its_old_time(stage: Stage) -> None:
    stage.perform(Schedule(KEY, 10), Schedule(OTHER, 10), Schedule(KEY, 20), Cancel(OTHER))
    await stage.advance(10)
    assert stage.machine.events == []

    await stage.advance(10)

    assert stage.machine.events == [("timer", KEY, 20)]


async def test_retired_machine_hears_no_timers(stage: Stage) -> None:
    stage.perform(Schedule(KEY, 10), Cancel(OTHER))

    stage.runtime.retire(stage.hosted)
    await stage.advance(10)

    assert stage.machine.events == []


async def test_record_is_durable_before_the_machine_hears_of_it(stage: Stage) -> None:
    stage.machine.reactions["persisted", 1, False] = [Persist(2, "second")]

    stage.perform(Persist(1, "first"))
    assert stage.machine.events == []
    await settle()

    assert stage.machine.events == [("persisted", 1, False), ("persisted", 2, False)]
    assert stage.store.get_row(b"row") == b"second"


async def test_stopped_store_fails_the_write_at_once(stage: Stage) -> None:
    await stage.store.close()

    stage.perform(Persist(1, "first"))

    assert stage.machine.events == [("persisted", 1, True)]


async def test_answer_that_comes_at_once_needs_no_wait(stage: Stage) -> None:
    waiter = stage.runtime.register("refused")

    assert (
        await stage.runtime.run(stage.hosted, waiter, lambda _: [Respond(waiter, "yes")]) == "yes"
    )
    assert stage.runtime.waiting_count == 0


async def test_answer_of_a_later_event_wakes_the_request(stage: Stage) -> None:
    waiter = stage.runtime.register("refused")
    stage.machine.reactions["timer", KEY, 10] = [Respond(waiter, "late")]
    request = asyncio.ensure_future(
        stage.runtime.run(stage.hosted, waiter, lambda _: [Schedule(KEY, 10)])
    )

    await stage.advance(10)

    assert await request == "late"
    stage.perform(Respond(waiter, "again"))
    assert stage.machine.events == [("timer", KEY, 10)]


async def test_cancelled_request_is_reported_once(stage: Stage) -> None:
    waiter = stage.runtime.register("refused")
    request = asyncio.ensure_future(stage.runtime.run(stage.hosted, waiter, lambda _: []))
    await settle()

    request.cancel()
    await settle()

    assert stage.machine.events == [("abandoned", waiter)]
    assert stage.runtime.waiting_count == 0


async def test_answer_and_cancellation_in_one_turn_count_as_answered(stage: Stage) -> None:
    waiter = stage.runtime.register("refused")
    request = asyncio.ensure_future(stage.runtime.run(stage.hosted, waiter, lambda _: []))
    await settle()

    stage.perform(Respond(waiter, "yes"))
    request.cancel()
    await settle()

    assert stage.machine.events == []


async def test_everyone_who_waits_is_refused_at_the_end(stage: Stage) -> None:
    waiter = stage.runtime.register("refused")
    request = asyncio.ensure_future(stage.runtime.run(stage.hosted, waiter, lambda _: []))
    await settle()

    stage.runtime.refuse_all()

    assert await request == "refused"
    assert stage.machine.events == []


@pytest.mark.parametrize("event", ["a timer", "a write"])
async def test_machine_that_fails_on_an_event_is_given_up_and_others_go_on(
    stage: Stage, event: str, contained: Contained
) -> None:
    """It ended the server, or nobody who waited was ever answered."""
    other, failed = Recorder(), list[HostedMachine]()
    stage.runtime.on_fault = failed.append
    stage.machine.fault_in = "timer" if event == "a timer" else "persisted"
    waiter = stage.runtime.register("refused")
    answer = stage.runtime.run(
        stage.hosted, waiter, lambda _: [Persist(1, "row"), Schedule(KEY, 10), Schedule(OTHER, 20)]
    )
    stage.runtime.perform(HostedMachine(other), [Schedule(KEY, 10), Schedule(OTHER, 20)])
    await stage.store.flush()
    await stage.advance(10)
    await stage.advance(10)
    assert "refused" == await answer
    assert [stage.hosted] == failed
    assert ({}, 2, 0) == (stage.hosted.timers, len(other.events), stage.runtime.waiting_count)
    assert ["a fault here closes group g"] == contained.messages
