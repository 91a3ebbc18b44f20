"""Dispatchers and time: failover that waits, and delayed records."""

import pytest

from kledger.subscriptions.model import SubscriptionType
from tests.subscriptions.dispatch.builders import consumer
from tests.subscriptions.dispatch.dispatcher_fixture import Scene
from tests.subscriptions.steps import until_idle

FAILOVER, SHARED, KEY_SHARED = list(SubscriptionType)[1:]
SHARING_TYPES = pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])


async def test_failover_waits_before_the_next_consumer_begins(scene: Scene) -> None:
    for _ in range(2):
        await scene.add()
    dispatcher = scene.dispatcher(FAILOVER, failover_delay_ms=1_000)
    first, second = scene.join(dispatcher), scene.join(dispatcher, consumer("second"))
    await until_idle()
    assert (["0.0", "1.0"], []) == (scene.shown(first), scene.shown(second))
    dispatcher.remove_consumer(first)
    assert dispatcher.is_active(second)
    scene.clock.advance(999)
    await until_idle()
    await scene.acknowledge(dispatcher, 0)
    assert [] == scene.shown(second)
    scene.clock.advance(1)
    await until_idle()
    assert ["1.0"] == scene.shown(second)


async def test_failover_timer_is_cancelled_without_consumers(scene: Scene) -> None:
    await scene.add()
    dispatcher = scene.dispatcher(FAILOVER)
    numbers = [scene.join(dispatcher) for _ in range(2)]
    for number in numbers:
        dispatcher.remove_consumer(number)
    third = scene.join(dispatcher)
    await until_idle()
    assert ["0.0"] == scene.shown(third)
    revision = scene.cursor.revision.number
    scene.clock.advance(5_000)
    await until_idle()
    assert revision == scene.cursor.revision.number


@SHARING_TYPES
async def test_delayed_records_are_delivered_when_due(scene: Scene, kind: SubscriptionType) -> None:
    now_ms = scene.clock.now_ms()
    for delay_ms in (700, 300, 320):
        await scene.add(b"a", due_ms=now_ms + delay_ms)
    await scene.add(b"a")
    dispatcher = scene.dispatcher(kind, delayed_tick_ms=100)
    number = scene.join(dispatcher)
    await until_idle()
    assert (["3.0"], 3) == (scene.shown(number), dispatcher.delayed)
    for advance_ms, expected in ((299, ["3.0"]), (1, ["3.0", "1.0"]), (99, ["3.0", "1.0"])):
        scene.clock.advance(advance_ms)
        await until_idle()
        assert expected == scene.shown(number)
    scene.clock.advance(1)
    await until_idle()
    assert ["3.0", "1.0", "2.0"] == scene.shown(number), "no sooner than a tick later"
    scene.clock.advance(300)
    await until_idle()
    assert (["3.0", "1.0", "2.0", "0.0"], 0) == (scene.shown(number), dispatcher.delayed)


@SHARING_TYPES
async def test_round_that_was_too_early_does_not_cost_a_tick(
    scene: Scene, kind: SubscriptionType
) -> None:
    """Of two clocks that are rounded down, the wall's may be a millisecond behind."""
    await scene.add(b"a", due_ms=scene.clock.now_ms() + 300)
    number = scene.join(scene.dispatcher(kind, delayed_tick_ms=100))
    await until_idle()
    scene.clock.jump_wall(-1)
    scene.clock.advance(300)
    await until_idle()
    assert [] == scene.shown(number)
    scene.clock.advance(1)
    await until_idle()
    assert ["0.0"] == scene.shown(number)


async def test_delayed_record_that_is_due_sooner_is_delivered_first(scene: Scene) -> None:
    now_ms = scene.clock.now_ms()
    await scene.add(b"a", due_ms=now_ms + 5_000)
    dispatcher = scene.dispatcher(SHARED)
    number = scene.join(dispatcher)
    await until_idle()
    await scene.add(b"a", due_ms=now_ms + 200)
    await until_idle()
    scene.clock.advance(200)
    await until_idle()
    assert ["1.0"] == scene.shown(number)


async def test_delayed_records_are_found_again_after_all_consumers_left(scene: Scene) -> None:
    await scene.add(b"a", due_ms=scene.clock.now_ms() + 500)
    dispatcher = scene.dispatcher(SHARED)
    dispatcher.remove_consumer(scene.join(dispatcher))
    number = scene.join(dispatcher)
    await until_idle()
    assert 1 == dispatcher.delayed
    scene.clock.advance(500)
    await until_idle()
    assert ["0.0"] == scene.shown(number)
