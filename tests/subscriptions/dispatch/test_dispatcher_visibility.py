"""A dispatcher with a visibility filter: unsettled and hidden entries are not delivered."""

from collections.abc import Sequence

import pytest

from kledger.ledger import CursorState
from kledger.subscriptions.dispatch.dispatcher import Dispatcher
from kledger.subscriptions.model import RecordMask, SubscriptionType
from tests.subscriptions.dispatch.builders import consumer
from tests.subscriptions.dispatch.dispatcher_fixture import Scene
from tests.subscriptions.steps import until_idle
from tests.subscriptions.switchable_filter import SwitchableFilter

EXCLUSIVE, FAILOVER = SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER
SHARED, KEY_SHARED = SubscriptionType.SHARED, SubscriptionType.KEY_SHARED
ALL_TYPES = pytest.mark.parametrize("kind", list(SubscriptionType))
SINGLE_TYPES = pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
SHARING_TYPES = pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])


class Stage:
    """Entries, and a dispatcher whose filter settles them up to one of them."""

    def __init__(
        self,
        scene: Scene,
        kind: SubscriptionType,
        *,
        before: int,
        hidden: Sequence[int] = (),
        **options: int,
    ) -> None:
        self.scene = scene
        self.visibility_filter = SwitchableFilter()
        self.visibility_filter.at = scene.positions[before]
        self.visibility_filter.hidden = {scene.positions[each] for each in hidden}
        self.dispatcher: Dispatcher = scene.dispatcher(kind, self.visibility_filter, **options)

    async def lift(self, before: int | None = None, *, hidden: Sequence[int] = ()) -> None:
        positions = self.scene.positions
        at = {} if before is None else {"at": positions[before]}
        self.visibility_filter.move(**at, hidden=[positions[each] for each in hidden])
        await until_idle()


async def fill(scene: Scene, count: int) -> None:
    for _ in range(count):
        await scene.add()


@ALL_TYPES
async def test_unsettled_entry_is_not_delivered_nor_any_behind_it(
    scene: Scene, kind: SubscriptionType
) -> None:
    await fill(scene, 6)
    stage = Stage(scene, kind, before=2)
    number = scene.join(stage.dispatcher)
    await until_idle()
    assert ["0.0", "1.0"] == scene.shown(number)
    await scene.add()
    stage.dispatcher.add_permits(number, 9)
    await until_idle()
    assert ["0.0", "1.0"] == scene.shown(number), "whatever else happens"
    await stage.lift(4)
    assert ["0.0", "1.0", "2.0", "3.0"] == scene.shown(number)
    await stage.lift()
    assert [f"{each}.0" for each in range(7)] == scene.shown(number)
    assert {0} == {each.redelivery_count for each in scene.got[number]}


@ALL_TYPES
async def test_unsettled_entries_are_read_once(scene: Scene, kind: SubscriptionType) -> None:
    await fill(scene, 4)
    stage = Stage(scene, kind, before=0)
    number = scene.join(stage.dispatcher)
    await until_idle()
    reads = scene.engine.calls["read"]
    for before in (1, 2, 3):
        await stage.lift(before)
    assert ["0.0", "1.0", "2.0"] == scene.shown(number)
    assert reads == scene.engine.calls["read"]


@ALL_TYPES
async def test_hidden_entries_are_acknowledged_and_not_delivered(
    scene: Scene, kind: SubscriptionType
) -> None:
    await fill(scene, 6)
    stage = Stage(scene, kind, before=3, hidden=(0, 2))
    number = scene.join(stage.dispatcher)
    await until_idle()
    assert ["1.0"] == scene.shown(number)
    await stage.lift(hidden=(3, 4))
    assert ["1.0", "5.0"] == scene.shown(number)
    assert 2 == scene.cursor.backlog == stage.dispatcher.unacknowledged
    await scene.acknowledge(stage.dispatcher, 1, 5)
    assert scene.positions[5] == scene.cursor.mark_delete_position


@ALL_TYPES
async def test_reading_continues_after_a_read_of_hidden_entries(
    scene: Scene, kind: SubscriptionType
) -> None:
    await fill(scene, 5)
    stage = Stage(scene, kind, before=3, hidden=(0, 1, 2, 3), read_entries_max=2)
    number = scene.join(stage.dispatcher)
    await until_idle()
    await stage.lift()
    assert ["4.0"] == scene.shown(number)


@ALL_TYPES
async def test_hidden_entries_cost_no_permits(scene: Scene, kind: SubscriptionType) -> None:
    await fill(scene, 5)
    stage = Stage(scene, kind, before=4, hidden=(0, 1, 2))
    number = scene.join(stage.dispatcher, permits=1)
    await until_idle()
    assert ["3.0"] == scene.shown(number)


@ALL_TYPES
async def test_consumer_that_joins_gets_unsettled_entries_once_settled(
    scene: Scene, kind: SubscriptionType
) -> None:
    await fill(scene, 3)
    stage = Stage(scene, kind, before=1)
    first = scene.join(stage.dispatcher)
    await until_idle()
    stage.dispatcher.remove_consumer(first)
    second = scene.join(stage.dispatcher)
    await until_idle()
    assert ["0.0"] == scene.shown(second)
    await stage.lift(hidden=(1,))
    assert ["0.0", "2.0"] == scene.shown(second)
    assert [1, 0] == [each.redelivery_count for each in scene.got[second]]


@ALL_TYPES
async def test_filter_has_no_listener_without_unsettled_entries(
    scene: Scene, kind: SubscriptionType
) -> None:
    await fill(scene, 3)
    stage = Stage(scene, kind, before=1)
    assert {} == stage.visibility_filter.listeners
    number = scene.join(stage.dispatcher)
    await until_idle()
    assert stage.visibility_filter.listeners
    stage.dispatcher.remove_consumer(number)
    assert {} == stage.visibility_filter.listeners
    scene.join(stage.dispatcher)
    await until_idle()
    assert stage.visibility_filter.listeners
    await stage.dispatcher.close()
    assert {} == stage.visibility_filter.listeners


@ALL_TYPES
async def test_unsettled_entries_are_dropped_when_the_position_is_set(
    scene: Scene, kind: SubscriptionType
) -> None:
    """Back to the middle of what is settled, while the rest waits: nothing is lost or early."""
    await fill(scene, 6)
    stage = Stage(scene, kind, before=4)
    number = scene.join(stage.dispatcher)
    await until_idle()
    await scene.acknowledge(stage.dispatcher, 0, 1, 2, 3)
    scene.cursor.revision.start()
    await stage.lift(5, hidden=(4,))

    def edit(state: CursorState) -> None:
        state.reset(*state.reset_target(scene.positions[2], force=False))

    scene.revise(stage.dispatcher, edit)
    await until_idle()
    shown = ["0.0", "1.0", "2.0", "3.0"]
    assert [*shown, "2.0", "3.0"] == scene.shown(number)
    await stage.lift()
    assert [*shown, "2.0", "3.0", "5.0"] == scene.shown(number)


@ALL_TYPES
async def test_reset_into_unsettled_entries_delivers_none_of_them(
    scene: Scene, kind: SubscriptionType
) -> None:
    await fill(scene, 5)
    stage = Stage(scene, kind, before=1)
    number = scene.join(stage.dispatcher)
    await until_idle()
    scene.cursor.revision.start()

    def edit(state: CursorState) -> None:
        state.reset(*state.reset_target(scene.positions[3], force=False))

    scene.revise(stage.dispatcher, edit)
    await stage.lift(3)
    assert ["0.0"] == scene.shown(number)
    await stage.lift(hidden=(3,))
    assert ["0.0", "4.0"] == scene.shown(number)


@ALL_TYPES
async def test_unsettled_entries_that_were_skipped_are_not_delivered(
    scene: Scene, kind: SubscriptionType
) -> None:
    await fill(scene, 5)
    stage = Stage(scene, kind, before=1)
    number = scene.join(stage.dispatcher)
    await until_idle()
    await scene.acknowledge(stage.dispatcher, 2, 3)
    await stage.lift()
    assert ["0.0", "1.0", "4.0"] == scene.shown(number)


@SHARING_TYPES
async def test_redelivery_continues_while_entries_are_unsettled(
    scene: Scene, kind: SubscriptionType
) -> None:
    await fill(scene, 4)
    stage = Stage(scene, kind, before=2)
    number = scene.join(stage.dispatcher)
    await until_idle()
    looks = stage.visibility_filter.looks
    stage.dispatcher.redeliver(number, [RecordMask(scene.positions[1])])
    await until_idle()
    assert ["0.0", "1.0", "1.0"] == scene.shown(number)
    await stage.lift()
    assert ["2.0", "3.0"] == scene.shown(number)[3:]
    stage.dispatcher.redeliver(number, None)
    await until_idle()
    assert ["0.0", "1.0", "2.0", "3.0"] == scene.shown(number)[5:]
    assert stage.visibility_filter.looks <= looks + 6, "redelivered entries were visible before"


@SINGLE_TYPES
async def test_rewind_asks_the_filter_again(scene: Scene, kind: SubscriptionType) -> None:
    await fill(scene, 4)
    stage = Stage(scene, kind, before=2)
    number = scene.join(stage.dispatcher)
    await until_idle()
    stage.dispatcher.redeliver(number, None)
    await until_idle()
    assert ["0.0", "1.0", "0.0", "1.0"] == scene.shown(number)
    await stage.lift(hidden=(2,))
    assert ["3.0"] == scene.shown(number)[4:]


async def test_keys_stay_in_order_behind_unsettled_entries(scene: Scene) -> None:
    """A key of what waits is not overtaken, and what comes goes to the owner of its key."""
    for keys in ((b"a", b"b"), (b"b", b"c"), (b"a", b"b"), (b"c",)):
        await scene.add(*keys)
    stage = Stage(scene, KEY_SHARED, before=1)
    numbers = [scene.join(stage.dispatcher, consumer(name)) for name in ("x", "y")]
    await until_idle()
    assert ["0.0", "0.1"] == sorted(scene.shown(numbers[0]) + scene.shown(numbers[1]))
    await stage.lift(hidden=(2,))
    shown = [scene.shown(number) for number in numbers]
    assert ["0.0", "0.1", "1.0", "1.1", "3.0"] == sorted(shown[0] + shown[1])
    for each in shown:
        assert ("0.1" in each) == ("1.0" in each), "key b has one consumer"
        assert ("1.1" in each) == ("3.0" in each), "so has c"
        assert sorted(each) == each


@SHARING_TYPES
async def test_delayed_records_wait_for_time_and_filter(
    scene: Scene, kind: SubscriptionType
) -> None:
    now_ms = scene.clock.now_ms()
    for due_ms in (now_ms + 500, now_ms + 500, None, now_ms + 500):
        await scene.add(b"a" if due_ms else b"b", due_ms=due_ms)
    stage = Stage(scene, kind, before=1)
    number = scene.join(stage.dispatcher)
    await until_idle()
    assert ([], 1) == (scene.shown(number), stage.dispatcher.delayed)
    scene.clock.advance(1_000)
    await until_idle()
    assert ["0.0"] == scene.shown(number)
    await stage.lift(hidden=(3,))
    assert ["0.0", "1.0", "2.0"] == scene.shown(number), "its time came while it waited"
    assert 0 == stage.dispatcher.delayed


@ALL_TYPES
async def test_filter_that_hides_everything_leaves_no_backlog(
    scene: Scene, kind: SubscriptionType
) -> None:
    await fill(scene, 3)
    stage = Stage(scene, kind, before=0, hidden=(0, 1, 2))
    number = scene.join(stage.dispatcher)
    await until_idle()
    await stage.lift()
    assert ([], 0) == (scene.shown(number), scene.cursor.backlog)
