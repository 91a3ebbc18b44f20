"""The races of PIP-269 between reads and a cursor whose positions are set: every interleaving.

Each race is a few scripts, one for each who takes part; a script is a list of steps, and every way
to mix the steps of all scripts is played on a cursor of its own, over a storage that
answers when its step says so. Delivery is a step of its own, so "half in flight", where the read
has moved the read position and its entries are not sent yet, is among them.

The rule: after the beginning of a revision, exactly the unacknowledged entries are delivered, in
order. Each race is also played with the controller switched off, and must break the rule then.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from kledger.ledger import (
    EARLIEST,
    Cursor,
    CursorState,
    CursorStateRevisionController,
    Entry,
    LedgerStore,
    ManagedLedgerConfig,
    Position,
    ResetInProgress,
    StoreConfig,
)
from kledger.ledger.testing import FaultyEngine, Hold
from tests.interleavings import Order, Script, interleavings
from tests.ledger.words import add_all, numbers

PAIRS = ManagedLedgerConfig(max_entries_per_ledger=2)


class Scene:
    """A cursor over six entries, of which three were read, and what dispatches and sets positions.

    `delivered` is what was sent since the revision began. The dispatcher has a queue of entries to
    read again, which is cleared when the revision begins.
    """

    def __init__(self, engine: FaultyEngine, cursor: Cursor, positions: list[Position]) -> None:
        self.engine = engine
        self.cursor = cursor
        self.positions = positions
        self.delivered: list[bytes] = []
        self.redelivery = positions[:2]
        self.has_begun = False

    def deliver(self, entries: list[Entry], number: int) -> None:
        if not self.cursor.revision.is_outdated(number):
            self.delivered += [entry.data for entry in entries]

    def begun(self) -> None:
        self.has_begun = True
        self.delivered.clear()
        self.redelivery.clear()

    async def drain(self) -> None:
        """Continue as a dispatcher would, until nothing is left."""
        while entries := await self.cursor.read(2):
            self.deliver(entries, self.cursor.revision.number)


class Reading:
    """A read in three steps: it begins, the storage answers, what it read is delivered."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.number = -1
        self.hold: Hold | None = None
        self.work: asyncio.Future[list[Entry]] | None = None
        self.entries: list[Entry] = []

    def start(self) -> Awaitable[list[Entry]]:
        return self.scene.cursor.read(2)

    async def begin(self) -> None:
        self.number = self.scene.cursor.revision.number
        if self.scene.cursor.revision.is_running:
            with pytest.raises(ResetInProgress):
                await self.start()
            return
        self.hold = self.scene.engine.hold_next("read")
        self.work = asyncio.ensure_future(self.start())
        await self.hold.reached()

    async def answer(self) -> None:
        if self.work is not None and self.hold is not None:
            self.hold.release()
            self.entries = await self.work

    async def deliver(self) -> None:
        self.scene.deliver(self.entries, self.number)

    def script(self) -> Script:
        return [self.begin, self.answer, self.deliver]


class Replaying(Reading):
    """A read of what shall be redelivered."""

    async def start_replay(self) -> list[Entry]:
        entries, _ = await self.scene.cursor.replay(self.scene.redelivery)
        return entries

    def start(self) -> Awaitable[list[Entry]]:
        return self.start_replay()

    async def begin(self) -> None:
        if self.scene.redelivery:
            await super().begin()


class Setting:
    """A revision in three steps: it starts, its caller cleans up, it ends."""

    def __init__(self, scene: Scene, editor: Callable[[CursorState], None]) -> None:
        self.scene = scene
        self.editor = editor

    async def begin(self) -> None:
        assert -1 != self.scene.cursor.revision.start()

    async def clean_up(self) -> None:
        self.scene.begun()

    async def end(self) -> None:
        assert -1 != self.scene.cursor.revision.end(self.editor)

    def script(self) -> Script:
        return [self.begin, self.clean_up, self.end]


class Resetting:
    """`Cursor.reset` in two steps: it is being written, and it is durable."""

    def __init__(self, scene: Scene, target: Position) -> None:
        self.scene = scene
        self.target = target
        self.hold: Hold | None = None
        self.work: asyncio.Future[None] | None = None

    async def begin(self) -> None:
        self.hold = self.scene.engine.hold_next("sync")
        self.work = asyncio.ensure_future(self.scene.cursor.reset(self.target))
        await self.hold.reached()
        self.scene.begun()

    async def end(self) -> None:
        assert self.hold is not None
        assert self.work is not None
        self.hold.release()
        await self.work

    def script(self) -> Script:
        return [self.begin, self.end]


MakeScripts: TypeAlias = Callable[[Scene], list[Script]]


def set_back(state: CursorState) -> None:
    state.rewind()


def set_forward(state: CursorState) -> None:
    state.mark_delete_position = state.nth_unacknowledged(5)


def sequential(editor: Callable[[CursorState], None]) -> MakeScripts:
    return lambda scene: [Reading(scene).script(), Setting(scene, editor).script()]


def replayed(editor: Callable[[CursorState], None]) -> MakeScripts:
    return lambda scene: [Replaying(scene).script(), Setting(scene, editor).script()]


def reset_against(kind: type[Reading]) -> MakeScripts:
    return lambda scene: [kind(scene).script(), Resetting(scene, scene.positions[1]).script()]


def both(scene: Scene) -> list[Script]:
    """A sequential read and one of what shall be redelivered, at once."""
    return [
        Reading(scene).script(),
        Replaying(scene).script(),
        Resetting(scene, scene.positions[4]).script(),
    ]


RACES: dict[str, tuple[MakeScripts, tuple[int, ...], int]] = {
    "case 1: a replay and a rewind": (replayed(set_back), (3, 3), 0),
    "case 1: a replay and a position set forward": (replayed(set_forward), (3, 3), 5),
    "case 1: a replay and a reset": (reset_against(Replaying), (3, 2), 1),
    "case 2: a sequential read and a rewind": (sequential(set_back), (3, 3), 0),
    "case 2: a sequential read and a position set forward": (sequential(set_forward), (3, 3), 5),
    "case 2: a sequential read and a reset": (reset_against(Reading), (3, 2), 1),
    "cases 1 and 2: both reads and a reset": (both, (3, 3, 2), 4),
}
"""What takes part, how many steps each has, and the first unacknowledged entry afterwards."""


class Stage:
    """Plays interleavings one after the other; each gets a managed ledger of its own."""

    def __init__(self, store: LedgerStore, engine: FaultyEngine) -> None:
        self.store = store
        self.engine = engine
        self.count = 0

    async def scene(self) -> Scene:
        self.count += 1
        # Reads in one ledger may share what the storage answers; here each has its own.
        ml = await self.store.open_managed_ledger(f"orders-{self.count}", config=PAIRS)
        positions = await add_all(ml, numbers(0, 5))
        cursor = await ml.open_cursor("c", initial=EARLIEST)
        await cursor.read(3)
        return Scene(self.engine, cursor, positions)

    async def keeps_the_rule(self, make: MakeScripts, order: Order, first: int) -> bool:
        scene = await self.scene()
        scripts = [iter(script) for script in make(scene)]
        for script in order:
            await next(scripts[script])()
        assert scene.has_begun
        await scene.drain()
        return scene.delivered == numbers(first, 5)


@pytest.fixture
async def stage(engine: FaultyEngine) -> Stage:
    store = await LedgerStore.open(None, engine=engine, config=StoreConfig(cache_bytes=0))
    return Stage(store, engine)


@pytest.fixture
def switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variant without the controller: nothing is ever outdated, nothing is refused."""
    controller = CursorStateRevisionController
    monkeypatch.setattr(controller, "is_outdated", lambda self, number: False)
    monkeypatch.setattr(controller, "is_running", property(lambda self: False))


async def broken_orders(stage: Stage, race: str) -> tuple[list[Order], int]:
    make, lengths, first = RACES[race]
    orders = list(interleavings(lengths))
    broken = [each for each in orders if not await stage.keeps_the_rule(make, each, first)]
    await stage.store.close()
    return broken, len(orders)


def test_every_interleaving_is_played() -> None:
    assert [(0, 1, 1), (1, 0, 1), (1, 1, 0)] == list(interleavings((1, 2)))
    assert [20, 10, 560] == [len(set(interleavings(n))) for n in ((3, 3), (3, 2), (3, 3, 2))]


@pytest.mark.parametrize("race", RACES)
async def test_the_controller_keeps_the_rule_in_every_interleaving(stage: Stage, race: str) -> None:
    assert ([], len(list(interleavings(RACES[race][1])))) == await broken_orders(stage, race)


@pytest.mark.slow
@pytest.mark.parametrize("race", RACES)
@pytest.mark.usefixtures("switched_off")
async def test_without_the_controller_the_rule_is_broken(stage: Stage, race: str) -> None:
    broken, _ = await broken_orders(stage, race)
    *reads, setting = range(len(RACES[race][1]))
    in_flight = [order for order in broken if setting not in (order[0], order[-1])]
    assert in_flight, broken
    # "Half in flight": answered before the revision began, delivered after it has ended.
    half_in_flight = (*reads, *reads, *[setting] * RACES[race][1][setting], *reads)
    assert half_in_flight in broken
