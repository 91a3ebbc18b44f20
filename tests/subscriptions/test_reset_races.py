"""The races of PIP-269 among consumers, reads and resets: every interleaving.

Each race is a few scripts, one for each participant, and every way to mix their steps is played
on a partition of its own, over a real subscription and dispatcher and a storage that answers when
its step says so. "Half in flight" is among them: a repeated read has been answered and waits on its
way to the dispatcher; a sequential one has moved the read position, and some of what it read waits
in the dispatcher for permits.

The rule: the consumers that are connected in the end get all records that are unacknowledged since
the position was set for the last time, and nothing else, once, each key in order; acknowledgements
of consumers from before do not count.

Each race is also played without what protects it, and must break the rule then.
"""

from collections.abc import AsyncIterator, Callable

import pytest

from kledger.ledger import CursorStateRevisionController, Entry
from kledger.subscriptions import subscription as subscription_module
from kledger.subscriptions.dispatch.dispatch_state import DeliveriesByConsumer
from kledger.subscriptions.dispatch.dispatcher import DispatchBuffer, Dispatcher
from kledger.subscriptions.dispatch.shared_state import SharedState
from kledger.subscriptions.model import ALL, SubscriptionType
from kledger.subscriptions.subscription import Subscription
from tests.contained import Contained
from tests.interleavings import Order, Script, Step, interleavings
from tests.subscriptions.race_scene import (
    BACK,
    FORWARD,
    SETTINGS,
    MakeScripts,
    Member,
    Race,
    Reading,
    Replaying,
    Resetting,
    Scene,
    Setting,
    Stage,
)

EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED = SubscriptionType


def reading_against(kind: type[Reading], setting: Setting) -> MakeScripts:
    return lambda scene, first: [kind(scene, first).script(), Resetting(scene, setting).script()]


def with_another(kind: type[Reading], setting: Setting) -> MakeScripts:
    read_and_reset = reading_against(kind, setting)
    return lambda scene, first: [*read_and_reset(scene, first), [scene.member("second").come]]


def reconnecting(member: Member) -> Step:
    async def reconnect() -> None:
        await member.go()
        await member.come()

    return reconnect


def coming_and_going(scene: Scene, first: Member) -> list[Script]:
    """Case 3: a reset, and consumers that connect again meanwhile."""
    come = scene.member("second").come
    return [Resetting(scene, BACK).script(), [first.go, first.come], [come]]


def with_a_second_reset(scene: Scene, first: Member) -> list[Script]:
    come = scene.member("second").come
    resets = [Resetting(scene, setting).script() for setting in (BACK, FORWARD)]
    return [*resets, [reconnecting(first)], [come]]


def with_a_read(kind: type[Reading]) -> MakeScripts:
    def make(scene: Scene, first: Member) -> list[Script]:
        scene.member("second").wants_in = True
        read = kind(scene, first).script()
        return [Resetting(scene, BACK).script(), [reconnecting(first)], read]

    return make


def with_both(scene: Scene, first: Member) -> list[Script]:
    """A second reset and a read in flight; disconnected consumers join again at once."""
    scene.member("second").wants_in = True
    resets = [Resetting(scene, setting).script() for setting in (BACK, FORWARD)]
    return [*resets, Reading(scene, first).script()]


def all_leave(scene: Scene, first: Member) -> list[Script]:
    """Case 7: the last one leaves over a read in flight, and three others come."""
    come = [scene.member(name).come for name in ("c1", "c2", "c3")]

    async def leave() -> None:
        await first.go()
        scene.begun()

    return [Reading(scene, first).script(), [leave, *come]]


RACES: dict[str, Race] = {}
for _name, _setting in SETTINGS.items():
    RACES[f"case 1: a replay and {_name}"] = Race(
        SHARED, 2, reading_against(Replaying, _setting), (3, 2), has_reconnects=True
    )
    RACES[f"case 2: a sequential read and {_name}"] = Race(
        EXCLUSIVE, 2, reading_against(Reading, _setting), (3, 2), has_reconnects=True
    )
RACES["case 1: with another consumer"] = Race(
    SHARED, 2, with_another(Replaying, BACK), (3, 2, 1), has_reconnects=True
)
RACES["case 2: with another consumer"] = Race(
    FAILOVER, 2, with_another(Reading, BACK), (3, 2, 1), has_reconnects=True
)
RACES["case 3: consumers come and go"] = Race(KEY_SHARED, 4, coming_and_going, (2, 2, 1))
RACES["case 3: with a second reset"] = Race(KEY_SHARED, 4, with_a_second_reset, (2, 2, 1, 1))
for _kind in (Reading, Replaying):
    RACES[f"case 3: with a read in flight ({_kind.__name__})"] = Race(
        KEY_SHARED, 2, with_a_read(_kind), (2, 1, 3), has_reconnects=True
    )
RACES["case 3: with both"] = Race(KEY_SHARED, 2, with_both, (2, 2, 3), has_reconnects=True)
RACES["case 7: all leave and others come over a read"] = Race(KEY_SHARED, 2, all_leave, (3, 4))


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    await made.open()
    yield made
    made.steps.open()
    await made.fixture.close()


def test_every_interleaving_is_played() -> None:
    counts = {len(set(interleavings(race.lengths))) for race in RACES.values()}
    assert {10, 30, 35, 60, 180, 210} == counts


@pytest.mark.parametrize("name", RACES)
async def test_the_rule_is_kept_in_every_interleaving(stage: Stage, name: str) -> None:
    assert [] == [order async for order in stage.broken_orders(RACES[name])]


# Without what protects


class CarelessDispatcher(Dispatcher):
    """Forgets nothing when the position is set."""

    def clear(self) -> None:
        return


def offer_whatever_was_read(
    self: SharedState, out: DeliveriesByConsumer, entry: Entry, full: int, records: int
) -> None:
    """Deliver what was read again, whether or not it is still queued."""
    self._queue.remove(entry.position, ALL)
    consumer = self._next()
    if consumer is not None:
        self._give(out, consumer, entry, full=full, records=records)


@pytest.fixture
def without_controller(monkeypatch: pytest.MonkeyPatch, contained: Contained) -> None:
    """Nothing is ever outdated, nothing is refused: as before PIP-269.

    Neither does the dispatcher forget, which alone would hide most of it.
    """
    controller = CursorStateRevisionController
    monkeypatch.setattr(controller, "is_outdated", lambda self, number: False)
    monkeypatch.setattr(controller, "is_running", property(lambda self: False))
    monkeypatch.setattr(subscription_module, "Dispatcher", CarelessDispatcher)
    monkeypatch.setattr(DispatchBuffer, "clear", lambda self: None)  # when consumers join and leave
    monkeypatch.setattr(SharedState, "_offer_again", offer_whatever_was_read)


class Unlocked:
    """A lock that excludes nothing."""

    async def __aenter__(self) -> None:
        return

    async def __aexit__(self, *_: object) -> None:
        return


@pytest.fixture
def without_fence(monkeypatch: pytest.MonkeyPatch, contained: Contained) -> None:
    """Consumers join, and positions are set, while a position is being set."""
    controller = CursorStateRevisionController
    monkeypatch.setattr(controller, "is_outdated", lambda self, number: False)
    monkeypatch.setattr(controller, "is_running", property(lambda self: False))
    monkeypatch.setattr(Subscription, "_check_not_fenced", Subscription._check_open)
    unlocked = property(lambda self: Unlocked(), lambda self, lock: None)
    monkeypatch.setattr(Subscription, "_lock", unlocked, raising=False)


def is_in_flight(order: Order) -> bool:
    """The read has begun, and not been answered, when the position is set."""
    return order[:2] == (0, 1)


def is_half_in_flight(order: Order) -> bool:
    """The read was answered, and not everything delivered, when the position is set."""
    return order[:3] == (0, 0, 1)


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("case 1: a replay and back", [is_in_flight, is_half_in_flight]),
        ("case 1: a replay and forward", [is_in_flight, is_half_in_flight]),
        ("case 1: a replay and rewind", [is_half_in_flight]),
        ("case 1: a replay and skip", [is_in_flight, is_half_in_flight]),
        ("case 1: a replay and clear", [is_in_flight, is_half_in_flight]),
        # What is acknowledged after that is left out by the cursor anyway.
        ("case 2: a sequential read and back", [is_in_flight, is_half_in_flight]),
        ("case 2: a sequential read and rewind", [is_in_flight, is_half_in_flight]),
        ("case 2: a sequential read and skip", [is_in_flight, is_half_in_flight]),
    ],
)
@pytest.mark.usefixtures("without_controller")
async def test_without_revisions_reads_break_the_rule(
    stage: Stage, name: str, kinds: list[Callable[[Order], bool]]
) -> None:
    broken = [order async for order in stage.broken_orders(RACES[name])]
    for kind in kinds:
        assert any(kind(order) for order in broken), broken


@pytest.mark.usefixtures("without_controller")
async def test_without_revisions_joining_during_a_read_breaks_the_rule(
    stage: Stage,
) -> None:
    name = "case 7: all leave and others come over a read"
    broken = [order async for order in stage.broken_orders(RACES[name])]
    # The read began with the first consumer, which left, and was answered when others had joined.
    assert (0, 1, 1, 1, 1, 0, 0) in broken


@pytest.mark.parametrize("name", [name for name in RACES if name.startswith("case 3")])
@pytest.mark.usefixtures("without_fence")
async def test_without_the_fence_joining_and_leaving_break_the_rule(
    stage: Stage, name: str
) -> None:
    async for order in stage.broken_orders(RACES[name]):
        assert order
        return
    raise AssertionError("nothing is broken without it")
