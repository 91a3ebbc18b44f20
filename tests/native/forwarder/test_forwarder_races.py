"""The races of PIP-269 in which a topic is forwarded: cases 4, 5 and 6, every interleaving.

As in the races of cursors, each actor has a script of steps, and every interleaving is played on a
cursor and a forwarder of its own, over a storage that answers when its step says so. The moment
between a read that has moved the cursor and the return of its entries is a step of its own.

The rule: after a reset, the unacknowledged entries from the new position on are sent once, in
order; without a reset, every entry is sent once, in order, whatever fails. Each race is also played
with the guard of the rule switched off, and must break the rule then.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import pytest

from kledger.ledger import (
    EARLIEST,
    Cursor,
    CursorState,
    CursorStateRevisionController,
    LedgerStore,
    ManagedLedgerConfig,
    Position,
    StoreConfig,
)
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.native.errors import Unavailable
from kledger.native.forwarder.forwarder import Forwarder
from kledger.native.forwarder.forwarder_state import (
    Effect,
    Failure,
    ForwarderState,
    ForwardLimits,
    Phase,
)
from tests.interleavings import Order, Script, interleavings
from tests.native.forwarder.builders import (
    HeldSource,
    ListTarget,
    Preparing,
    add_batches,
    call_of,
)
from tests.subscriptions.steps import NeverIdle, Steps, until_idle

PAIRS = ManagedLedgerConfig(max_entries_per_ledger=2)
LIMITS = ForwardLimits(read_entries_max=3)
LAST = 5
ROUNDS_MAX = 12


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


class Scene:
    """A forwarder that has read entries 0 to 2; the next read waits at the gate.

    `values` is what was sent since the last seek; all of it without one.
    """

    def __init__(self, steps: Steps, cursor: Cursor, positions: list[Position]) -> None:
        self.steps = steps
        self.cursor = cursor
        self.positions = positions
        self.clock = ManualClock()
        self.source = HeldSource(cursor)
        self.target = ListTarget()
        self.preparing = Preparing()
        self.forwarder = Forwarder(
            "orders-0", self.source, self.target,
            clock=self.clock, prepare=self.preparing, limits=LIMITS,
        )  # fmt: skip
        self.sent_before = 0
        self.calls_before = 0
        self.slow: dict[bytes, asyncio.Future[None]] = {}

    @property
    def values(self) -> list[bytes]:
        return self.target.values[self.sent_before :]

    @property
    def is_stale(self) -> bool:
        """Whether a batch was sent that was prepared before the reset."""
        sent = self.target.batches[self.sent_before :]
        return any(call_of(batch) < self.calls_before for batch in sent)

    @property
    def is_idle(self) -> bool:
        state = self.forwarder.state
        is_running = state.phase is Phase.RUNNING and not self.source.is_outdated(state.number)
        return is_running and not state.in_flight and not self.cursor.state.has_unread

    def set_from_outside(self) -> None:
        self.sent_before = len(self.target.batches)
        self.calls_before = len(self.preparing.calls)

    async def first_read(self) -> None:
        beginning = self.source.beginning
        beginning.close()
        await until_idle()
        beginning.let_one()
        await self.settle()
        assert 3 == len(self.preparing.calls)
        assert beginning.waiting

    async def settle(self) -> None:
        """Run the consequences of a step that are not held; backoffs elapse."""
        await until_idle()
        if self.forwarder.state.phase is Phase.WAITING:
            self.clock.advance(LIMITS.backoff_min_ms)
        await until_idle()

    async def drain(self) -> bool:
        """Release everything until nothing is left; False if that never happens."""
        self.steps.open()
        self.source.beginning.open()
        self.source.handing.open()
        self.target.answering.open()
        for _ in range(ROUNDS_MAX):
            await self.settle()
            if self.is_idle:
                return True
        return False


class Reading:
    """The next read: it begins, the storage answers, it returns."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    async def begin(self) -> None:
        self.scene.source.handing.close()
        self.scene.steps.reads.shut()
        self.scene.source.beginning.let_one()

    async def answer(self) -> None:
        self.scene.steps.reads.open()

    async def hand_over(self) -> None:
        self.scene.source.handing.open()

    def script(self) -> Script:
        return [self.begin, self.answer, self.hand_over]


class Setting:
    """A client resets the subscription in two steps: it is fenced, then set."""

    def __init__(self, scene: Scene, first_unacknowledged: int) -> None:
        self.scene = scene
        self.mark_delete_position = scene.positions[first_unacknowledged - 1]

    def edit(self, state: CursorState) -> None:
        state.mark_delete_position = self.mark_delete_position
        state.rewind()

    async def begin(self) -> None:
        assert -1 != self.scene.cursor.revision.start()
        self.scene.set_from_outside()

    async def end(self) -> None:
        assert -1 != self.scene.cursor.revision.end(self.edit)

    def script(self) -> Script:
        return [self.begin, self.end]


class Resetting:
    """`Cursor.reset` in two steps: it is being written, and it is durable."""

    def __init__(self, scene: Scene, first_unacknowledged: int) -> None:
        self.scene = scene
        self.position = scene.positions[first_unacknowledged]
        self.work: asyncio.Future[None] | None = None

    async def begin(self) -> None:
        self.scene.steps.writes.shut()
        self.work = asyncio.ensure_future(self.scene.cursor.reset(self.position))
        await until_idle()
        self.scene.set_from_outside()

    async def end(self) -> None:
        assert self.work is not None
        assert not self.work.done()
        self.scene.steps.writes.open()
        await self.work

    def script(self) -> Script:
        return [self.begin, self.end]


def act(do: Callable[[], object]) -> Script:
    """Return a script of one step."""

    async def step() -> None:
        do()

    return [step]


class Race(NamedTuple):
    """The actors of a race.

    Attributes:
        prepare: sets the scene before the forwarder begins.
        scripts: of the actors, once the forwarder has read three entries.
        lengths: the number of steps of each script.
        table: the order of the proposal's table, in which the rule was broken.
        first: the first entry that is sent after the reset; 0: there is no reset.
    """

    prepare: Callable[[Scene], None]
    scripts: Callable[[Scene], list[Script]]
    lengths: tuple[int, ...]
    table: Order
    first: int = 0


def nothing(scene: Scene) -> None:
    """Everything that was read is sent at once."""


def prepared_slowly(*values: bytes) -> Callable[[Scene], None]:
    def prepare(scene: Scene) -> None:
        scene.slow = {value: scene.preparing.hold(value) for value in values}

    return prepare


def answers_late(scene: Scene) -> None:
    scene.target.answering.close()


def refuses_1(scene: Scene) -> None:
    scene.target.answering.close()
    scene.target.refused[b"1"] = Unavailable("no room")


def finish(scene: Scene, value: bytes) -> Script:
    return act(lambda: scene.slow[value].set_result(None))


def fail(scene: Scene, value: bytes) -> Script:
    return act(lambda: scene.slow[value].set_exception(OSError("no schema")))


def answer(scene: Scene) -> Script:
    return act(scene.target.answering.let_one)


RACES: dict[str, Race] = {
    "case 4: a read and a place set back": Race(
        nothing,
        lambda s: [Reading(s).script(), Setting(s, 1).script()],
        (3, 2),
        (0, 1, 1, 0, 0),
        first=1,
    ),
    "case 4: a read and a reset": Race(
        nothing,
        lambda s: [Reading(s).script(), Resetting(s, 1).script()],
        (3, 2),
        (0, 1, 1, 0, 0),
        first=1,
    ),
    "case 4: a read and a rewind of our own": Race(
        prepared_slowly(b"1"),
        lambda s: [Reading(s).script(), fail(s, b"1")],
        (3, 1),
        (0, 1, 0, 0),
    ),
    "case 4: sends under way and a reset": Race(
        answers_late,
        lambda s: [answer(s), answer(s), Resetting(s, 1).script()],
        (1, 1, 2),
        (2, 2, 0, 1),
        first=1,
    ),
    "case 5: the first is prepared when more has come": Race(
        prepared_slowly(b"0", b"2"),
        lambda s: [Reading(s).script(), finish(s, b"0"), finish(s, b"2")],
        (3, 1, 1),
        (0, 0, 0, 1, 2),
    ),
    "case 5: what was prepared for an older revision comes late": Race(
        prepared_slowly(b"1"),
        lambda s: [Reading(s).script(), finish(s, b"1"), Setting(s, 1).script()],
        (3, 1, 2),
        (0, 0, 0, 2, 2, 1),
        first=1,
    ),
    "case 6: one of three cannot be prepared": Race(
        prepared_slowly(b"0", b"1", b"2"),
        lambda s: [Reading(s).script(), finish(s, b"0"), fail(s, b"1"), finish(s, b"2")],
        (3, 1, 1, 1),
        (1, 2, 3, 0, 0, 0),
    ),
    "case 6: one of three is refused, the next is under way": Race(
        refuses_1,
        lambda s: [Reading(s).script(), answer(s), answer(s), answer(s)],
        (3, 1, 1, 1),
        (1, 2, 3, 0, 0, 0),
    ),
}


class Stage:
    """Plays interleavings one after the other; each gets a managed ledger of its own."""

    def __init__(self, store: LedgerStore, steps: Steps) -> None:
        self.store = store
        self.steps = steps
        self.count = 0

    async def scene(self) -> Scene:
        self.count += 1
        ml = await self.store.open_managed_ledger(f"orders-{self.count}", config=PAIRS)
        positions = await add_batches(ml, numbers(0, LAST))
        return Scene(self.steps, await ml.open_cursor("c", initial=EARLIEST), positions)

    async def keeps_the_rule(self, race: Race, order: Order) -> bool:
        scene = await self.scene()
        race.prepare(scene)
        running = asyncio.ensure_future(scene.forwarder.run())
        try:
            is_drained = await self.play(scene, race, order)
        except NeverIdle:
            is_drained = False
        if not is_drained:
            running.cancel()
            await asyncio.wait([running])
            return False
        scene.forwarder.close()
        await running
        is_acknowledged = scene.positions[-1] == scene.cursor.mark_delete_position
        is_sent = numbers(race.first, LAST) == scene.values and not scene.is_stale
        return is_acknowledged and is_sent

    async def play(self, scene: Scene, race: Race, order: Order) -> bool:
        await scene.first_read()
        scripts = [iter(script) for script in race.scripts(scene)]
        for script in order:
            await next(scripts[script])()
            await scene.settle()
        return await scene.drain()

    async def broken_orders(self, race: Race) -> list[Order]:
        orders = list(interleavings(race.lengths))
        return [each for each in orders if not await self.keeps_the_rule(race, each)]


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    steps = Steps()
    config = StoreConfig(cache_bytes=0)
    engine, clock = FaultyEngine(None), ManualClock()
    async with LedgerStore.open(
        None, engine=engine, clock=clock, config=config, threads=steps.threads()
    ) as store:
        yield Stage(store, steps)


@pytest.mark.parametrize("name", RACES)
async def test_the_rule_is_kept_in_every_interleaving(stage: Stage, name: str) -> None:
    race = RACES[name]
    scene = await stage.scene()
    race.prepare(scene)
    assert race.lengths == tuple(map(len, race.scripts(scene)))
    assert [] == await stage.broken_orders(race)


def without_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is ever outdated, nothing is refused, and no read ends before a rewind."""

    def is_running(state: ForwarderState, number: int) -> bool:
        return state.phase is Phase.RUNNING

    async def go_on(forwarder: Forwarder) -> None:
        """Keep the running read; only one that waits for entries is woken."""
        source = forwarder._source
        assert isinstance(source, HeldSource)
        source.cursor.cancel_pending_read()

    controller = CursorStateRevisionController
    monkeypatch.setattr(controller, "is_outdated", lambda self, number: False)
    monkeypatch.setattr(controller, "is_running", property(lambda self: False))
    monkeypatch.setattr(Forwarder, "_stop_reading", go_on)
    monkeypatch.setattr(ForwarderState, "_is_running", is_running)


def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is prepared is sent, whatever is before it, as a replicator does that drops the batch
    for which it loads a schema, and comes back to it later."""
    without_controller(monkeypatch)
    send = ForwarderState._send

    def send_prepared(state: ForwarderState, effects: list[Effect], maximum: int) -> None:
        waiting = state._waiting
        in_order = sorted(waiting.items(), key=lambda each: not each[1].is_prepared)
        state._waiting = dict(in_order)
        send(state, effects, maximum)

    monkeypatch.setattr(ForwarderState, "_send", send_prepared)


def without_rewind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed batch is dropped with its read, and the next batch is read."""
    without_controller(monkeypatch)

    def drop(state: ForwarderState, position: Position | None, failure: Failure) -> None:
        state._drop_unsent()
        state._sent.clear()

    monkeypatch.setattr(ForwarderState, "_fail", drop)


SWITCHED_OFF = {"case 4": without_controller, "case 5": without_waiting, "case 6": without_rewind}


@pytest.mark.slow
@pytest.mark.parametrize("name", RACES)
async def test_switched_off_the_rule_is_broken(
    stage: Stage, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    SWITCHED_OFF[name[:6]](monkeypatch)
    assert RACES[name].table in await stage.broken_orders(RACES[name])
