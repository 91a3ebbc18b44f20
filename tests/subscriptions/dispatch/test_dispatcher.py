"""The dispatcher over a real cursor, whose storage answers when a test says so."""

import logging

import pytest

from kledger.ledger import EARLIEST, CursorState
from kledger.subscriptions.dispatch.dispatcher import RETRY_MAX_MS, RETRY_MIN_MS, state_for
from kledger.subscriptions.dispatch_options import DispatchOptions
from kledger.subscriptions.errors import (
    ConsumerBusy,
    InvalidRequest,
    SubscriptionClosed,
    SubscriptionFenced,
)
from kledger.subscriptions.model import RecordMask, SubscriptionType
from tests.subscriptions.dispatch.builders import consumer
from tests.subscriptions.dispatch.dispatcher_fixture import Scene
from tests.subscriptions.steps import until_idle

EXCLUSIVE, FAILOVER = SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER
SHARED, KEY_SHARED = SubscriptionType.SHARED, SubscriptionType.KEY_SHARED
ALL_TYPES = pytest.mark.parametrize("kind", list(SubscriptionType))
SINGLE_TYPES = pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
SHARING_TYPES = pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])


def to_start(state: CursorState) -> None:
    state.reset(*state.reset_target(EARLIEST, force=False))


# What comes


@ALL_TYPES
async def test_existing_and_later_entries_are_delivered(
    scene: Scene, kind: SubscriptionType
) -> None:
    await scene.add(b"a", b"b")
    dispatcher = scene.dispatcher(kind)
    number = scene.join(dispatcher)
    await until_idle()
    assert ["0.0", "0.1"] == scene.shown(number)
    await scene.add(b"c")
    await until_idle()
    assert ["0.0", "0.1", "1.0"] == scene.shown(number)
    assert 3 == dispatcher.unacknowledged


@ALL_TYPES
async def test_nothing_is_delivered_beyond_the_permits(
    scene: Scene, kind: SubscriptionType
) -> None:
    for _ in range(6):
        await scene.add()
    dispatcher = scene.dispatcher(kind)
    number = scene.join(dispatcher, permits=0)
    await until_idle()
    assert [] == scene.shown(number)
    for count in (2, 1, 3):
        before = len(scene.shown(number))
        dispatcher.add_permits(number, count)
        await until_idle()
        assert before + count == len(scene.shown(number))


@ALL_TYPES
async def test_many_entries_are_delivered_in_one_call(scene: Scene, kind: SubscriptionType) -> None:
    for _ in range(50):
        await scene.add()
    dispatcher = scene.dispatcher(kind)
    calls: list[int] = []
    number = dispatcher.add_consumer(consumer(), lambda each: calls.append(len(each)))
    dispatcher.add_permits(number, 99)
    await until_idle()
    assert [50] == calls


@SINGLE_TYPES
async def test_batch_that_waits_for_permits_is_read_once(
    scene: Scene, kind: SubscriptionType
) -> None:
    for _ in range(4):
        await scene.add(b"a", b"b", b"c")
    dispatcher = scene.dispatcher(kind)
    number = scene.join(dispatcher, permits=4)
    await until_idle()
    reads = scene.engine.calls["read"]
    await scene.acknowledge(dispatcher, 2)
    dispatcher.add_permits(number, 3)
    await until_idle()
    assert ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2", "3.0"] == scene.shown(number)[:7]
    assert reads == scene.engine.calls["read"]


@ALL_TYPES
async def test_first_consumer_after_none_gets_everything_again(
    scene: Scene, kind: SubscriptionType
) -> None:
    for _ in range(3):
        await scene.add()
    dispatcher = scene.dispatcher(kind)
    first = scene.join(dispatcher)
    await until_idle()
    await scene.acknowledge(dispatcher, 1)
    dispatcher.remove_consumer(first)
    dispatcher.remove_consumer(first)
    number = scene.cursor.revision.number
    second = scene.join(dispatcher)
    assert number + 1 == scene.cursor.revision.number
    await until_idle()
    assert ["0.0", "2.0"] == scene.shown(second)
    assert [1, 1] == [each.redelivery_count for each in scene.got[second]]
    assert 2 == dispatcher.redelivered


@SHARING_TYPES
async def test_acknowledged_records_of_a_batch_are_not_redelivered(
    scene: Scene, kind: SubscriptionType
) -> None:
    """The cursor knows acknowledgements that were not yet reported to the dispatcher."""
    position = await scene.add(b"a", b"b", b"c")
    dispatcher = scene.dispatcher(kind)
    number = scene.join(dispatcher)
    await until_idle()
    await scene.cursor.delete_batch_index(position, [0, 2], 3)
    dispatcher.redeliver(number, None)
    await until_idle()
    assert ["0.0", "0.1", "0.2", "0.1"] == scene.shown(number)


@SHARING_TYPES
async def test_only_negatively_acknowledged_records_are_redelivered(
    scene: Scene, kind: SubscriptionType
) -> None:
    for _ in range(3):
        await scene.add(b"a", b"b")
    dispatcher = scene.dispatcher(kind)
    number = scene.join(dispatcher)
    await until_idle()
    dispatcher.redeliver(number, [RecordMask(scene.positions[1], 0b10)])
    await until_idle()
    assert ["1.1"] == scene.shown(number)[6:]
    assert 1 == scene.got[number][-1].redelivery_count


@SINGLE_TYPES
async def test_redelivery_rewinds_to_everything_unacknowledged(
    scene: Scene, kind: SubscriptionType
) -> None:
    for _ in range(3):
        await scene.add()
    dispatcher = scene.dispatcher(kind)
    number = scene.join(dispatcher)
    await until_idle()
    await scene.acknowledge(dispatcher, 0)
    dispatcher.redeliver(number, [RecordMask(scene.positions[2])])
    await until_idle()
    assert ["0.0", "1.0", "2.0", "1.0", "2.0"] == scene.shown(number)


@SHARING_TYPES
async def test_delivery_resumes_below_the_unacknowledged_limit(
    scene: Scene, kind: SubscriptionType
) -> None:
    for _ in range(6):
        await scene.add()
    dispatcher = scene.dispatcher(kind)
    number = scene.join(dispatcher, consumer(unacked_max=2))
    await until_idle()
    assert 2 == len(scene.shown(number))
    await scene.acknowledge(dispatcher, 0)
    await until_idle()
    assert 3 == len(scene.shown(number))
    await scene.acknowledge(dispatcher, 1, 2)
    await until_idle()
    assert 5 == len(scene.shown(number))


# Revisions


@SINGLE_TYPES
async def test_read_in_flight_is_dropped_by_a_redelivery(
    scene: Scene, kind: SubscriptionType
) -> None:
    await scene.add()
    dispatcher = scene.dispatcher(kind)
    number = scene.join(dispatcher)
    await until_idle()
    scene.steps.reads.shut()
    await scene.add()
    await until_idle()
    dispatcher.redeliver(number, None)
    scene.steps.reads.open()
    await until_idle()
    assert ["0.0", "0.0", "1.0"] == scene.shown(number)


@SHARING_TYPES
async def test_replay_in_flight_is_dropped_by_a_reset(scene: Scene, kind: SubscriptionType) -> None:
    """Case 1: what was nacked before the reset is read, and is not wanted any more."""
    for _ in range(3):
        await scene.add()
    dispatcher = scene.dispatcher(kind)
    number = scene.join(dispatcher)
    await until_idle()
    scene.steps.reads.shut()
    dispatcher.redeliver(number, [RecordMask(scene.positions[1])])
    await until_idle()
    scene.cursor.revision.start()
    scene.revise(dispatcher, lambda state: state.mark_delete(scene.positions[1]))
    scene.steps.reads.open()
    await until_idle()
    assert ["0.0", "1.0", "2.0"] == scene.shown(number)


@SINGLE_TYPES
async def test_buffered_entries_are_dropped_by_a_reset(
    scene: Scene, kind: SubscriptionType
) -> None:
    """Half in flight: the read position has moved, the entries wait for permits."""
    for _ in range(4):
        await scene.add(b"a", b"b")
    dispatcher = scene.dispatcher(kind)
    number = scene.join(dispatcher, permits=3)
    await until_idle()
    assert ["0.0", "0.1", "1.0", "1.1"] == scene.shown(number)
    scene.cursor.revision.start()
    dispatcher.add_permits(number, 99)
    await until_idle()
    assert 4 == len(scene.shown(number)), "nothing while it runs"
    scene.revise(dispatcher, to_start)
    await until_idle()
    expected = [f"{entry}.{index}" for entry in range(4) for index in range(2)]
    assert expected == scene.shown(number)[4:]
    assert {0} == {each.redelivery_count for each in scene.got[number]}


@SINGLE_TYPES
async def test_buffered_entries_are_redelivered_after_a_failed_revision(
    scene: Scene, kind: SubscriptionType
) -> None:
    """The revision set and cleared nothing: the cursor must be rewound."""
    for _ in range(4):
        await scene.add(b"a", b"b")
    dispatcher = scene.dispatcher(kind)
    number = scene.join(dispatcher, permits=3)
    await until_idle()
    scene.cursor.revision.start()
    scene.cursor.revision.end(lambda state: None)
    dispatcher.resume()
    dispatcher.add_permits(number, 99)
    await until_idle()
    assert [f"{entry}.{index}" for entry in range(4) for index in range(2)] == (
        scene.shown(number)[4:]
    )


@ALL_TYPES
async def test_sequential_read_in_flight_is_dropped_by_a_reset(
    scene: Scene, kind: SubscriptionType
) -> None:
    """Case 2; and the failure of a read that does not count is none."""
    for _ in range(2):
        await scene.add()
    dispatcher = scene.dispatcher(kind)
    for does_fail in (False, True):
        scene.steps.reads.shut()
        number = scene.join(dispatcher)
        await until_idle()
        scene.cursor.revision.start()
        if does_fail:
            scene.engine.fail_next("read")
        scene.steps.reads.open()
        await until_idle()
        assert [] == scene.shown(number)
        scene.revise(dispatcher, lambda state: state.mark_delete(scene.positions[0]))
        await until_idle()
        assert ["1.0"] == scene.shown(number)
        dispatcher.remove_consumer(number)


@ALL_TYPES
async def test_joining_is_refused_while_a_revision_runs(
    scene: Scene, kind: SubscriptionType
) -> None:
    dispatcher = scene.dispatcher(kind)
    scene.cursor.revision.start()
    with pytest.raises(SubscriptionFenced):
        scene.join(dispatcher)
    assert () == dispatcher.consumer_names


async def test_redelivery_during_a_revision_rewinds_after_it(scene: Scene) -> None:
    for _ in range(2):
        await scene.add()
    dispatcher = scene.dispatcher(EXCLUSIVE)
    number = scene.join(dispatcher)
    await until_idle()
    scene.cursor.revision.start()
    dispatcher.redeliver(number, None)
    await until_idle()
    assert 2 == len(scene.shown(number))
    scene.cursor.revision.end(lambda state: None)
    dispatcher.resume()
    await until_idle()
    assert ["0.0", "1.0"] == scene.shown(number)[2:]


# Failures and ends


@ALL_TYPES
async def test_failed_read_is_retried_with_back_off(
    scene: Scene, kind: SubscriptionType, caplog: pytest.LogCaptureFixture
) -> None:
    await scene.add()
    dispatcher = scene.dispatcher(kind)
    retry_ms = RETRY_MIN_MS
    scene.engine.fail_next("read")
    with caplog.at_level(logging.WARNING):
        number = scene.join(dispatcher)
        for _ in range(12):
            await until_idle()
            scene.engine.fail_next("read")
            scene.clock.advance(retry_ms - 1)
            await until_idle()
            calls = scene.engine.calls["read"]
            scene.clock.advance(1)
            await until_idle()
            assert calls + 1 == scene.engine.calls["read"]
            retry_ms = min(2 * retry_ms, RETRY_MAX_MS)
    assert "cursor s: a read failed" in caplog.text
    assert [] == scene.shown(number)
    scene.clock.advance(retry_ms)
    await until_idle()
    assert ["0.0"] == scene.shown(number)


@SHARING_TYPES
async def test_failed_replay_loses_nothing(scene: Scene, kind: SubscriptionType) -> None:
    for _ in range(3):
        await scene.add()
    dispatcher = scene.dispatcher(kind)
    number = scene.join(dispatcher)
    await until_idle()
    scene.engine.fail_next("read")
    dispatcher.redeliver(number, None)
    await until_idle()
    assert 3 == len(scene.shown(number))
    scene.clock.advance(RETRY_MIN_MS)
    await until_idle()
    assert ["0.0", "1.0", "2.0"] == scene.shown(number)[3:]


@ALL_TYPES
async def test_terminated_ledger_is_read_to_its_end_and_again(
    scene: Scene, kind: SubscriptionType
) -> None:
    await scene.add()
    await scene.ledger.terminate()
    dispatcher = scene.dispatcher(kind)
    number = scene.join(dispatcher)
    await until_idle()
    dispatcher.redeliver(number, None)
    await until_idle()
    assert ["0.0", "0.0"] == scene.shown(number)


@ALL_TYPES
async def test_closed_cursor_ends_the_dispatcher(scene: Scene, kind: SubscriptionType) -> None:
    dispatcher = scene.dispatcher(kind)
    scene.join(dispatcher)
    await until_idle()
    await scene.cursor.close()
    await until_idle()
    assert dispatcher.is_closed
    with pytest.raises(SubscriptionClosed):
        scene.join(dispatcher)
    await dispatcher.close()


@ALL_TYPES
async def test_close_leaves_no_tasks_and_timers(scene: Scene, kind: SubscriptionType) -> None:
    await scene.add(b"a", due_ms=scene.clock.now_ms() + 500)
    dispatcher = scene.dispatcher(kind)
    number = scene.join(dispatcher)
    await until_idle()
    for _ in range(2):
        await dispatcher.close()
    await scene.add()
    await until_idle()
    assert len(scene.shown(number)) == (1 if kind in {EXCLUSIVE, FAILOVER} else 0)
    assert 0 == len(scene.timers)
    assert {"timers"} >= {task.get_name() for task in scene.supervisor._tasks}
    with pytest.raises(SubscriptionClosed):
        scene.join(dispatcher)
    assert scene.cursor.backlog == 2


async def test_reading_stops_with_the_last_consumer(scene: Scene) -> None:
    dispatcher = scene.dispatcher(SHARED)
    number = scene.join(dispatcher)
    await until_idle()
    dispatcher.remove_consumer(number)
    await until_idle()
    await scene.add()
    await until_idle()
    assert scene.cursor.read_position == scene.positions[0]


async def test_calls_of_removed_consumers_are_ignored(scene: Scene) -> None:
    dispatcher = scene.dispatcher(EXCLUSIVE)
    number = scene.join(dispatcher)
    with pytest.raises(ConsumerBusy):
        scene.join(dispatcher)
    with pytest.raises(InvalidRequest):
        dispatcher.add_permits(number, 0)
    assert ("c",) == dispatcher.consumer_names
    dispatcher.remove_consumer(number)
    dispatcher.add_permits(number, 5)
    dispatcher.redeliver(number, None)
    assert not dispatcher.is_active(number)


def test_every_type_has_a_state() -> None:
    assert {"SingleActiveState", "SharedState", "KeySharedState"} == {
        type(state_for(kind, DispatchOptions())).__name__ for kind in SubscriptionType
    }
