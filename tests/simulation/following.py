"""Following: a subscription that reads compacted, next to appends, compactions and removals.

Rule: it gets every position at most once until it asks for redelivery, in order; what it does not
get was acknowledged, or is in no compacted ledger that stood for it at some time since it began.
When it has acknowledged all in any order, nothing is left. It is not durable: a crash ends it.
Must not know: how a dispatcher reads.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from kledger.ledger import EARLIEST, LedgerError, Position
from kledger.subscriptions import errors
from kledger.subscriptions.model import (
    ALL,
    Acknowledgement,
    ConsumerOptions,
    Delivery,
    SubscriptionType,
)
from kledger.subscriptions.model import StartPosition as Beginning
from kledger.subscriptions.partition_subscriptions import PartitionSubscriptions
from kledger.subscriptions.subscription import Subscription, SubscriptionConsumer
from tests.simulation.compaction_model import CompactedState
from tests.simulation.invariants import InvariantBroken, check
from tests.simulation.log_model import HandleModel
from tests.simulation.scene import Scene

NAME = "follows compacted"
CAUGHT_UP_MS = 6000
"""Longer than a dispatcher's retry delay."""
ROUNDS_MAX = 100


class FollowerModel:
    """One consumer that reads compacted.

    Attributes:
        last: the newest position that it has got since it began, or began again.
        got: what it has got and not acknowledged.
        hold: its consumer; None before it has joined.
    """

    def __init__(self, scene: Scene, handle: HandleModel) -> None:
        self.handle = handle
        self.hold: SubscriptionConsumer | None = None
        self.subscription: Subscription | None = None
        self.partition = PartitionSubscriptions(
            handle.ml,
            partition_index=0,
            clock=scene.clock,
            timers=scene.timers,
            supervisor=scene.supervisor,
        )
        self.last = EARLIEST
        self.got: set[Position] = set()
        self._first = EARLIEST
        self._acknowledged: set[Position] = set()
        self._scene = scene
        self._states: dict[int, CompactedState] = {}
        self.see()
        self._first = min(self.expected_after(EARLIEST), default=EARLIEST)
        """The oldest that was there when it began; older ones that compactions of the simulator
        keep had been removed before, and a cursor is behind them."""
        handle.ml.add_listener(self.see)

    def __str__(self) -> str:
        return f"{self.handle} follower"

    def see(self) -> None:
        """Note the present compacted ledger; called whenever the managed ledger changes."""
        present = self.handle.ml.compacted
        if present is not None:
            state = self._scene.model.compacted_states[present.ledger_id]
            self._states[present.ledger_id] = state

    def take(self, deliveries: Sequence[Delivery]) -> None:
        """Check what it gets."""
        for position, data, _, _ in deliveries:
            if position <= self.last:
                raise InvariantBroken(f"{self} gets {position} after {self.last}")
            if position in self._acknowledged:
                raise InvariantBroken(f"{self} gets {position}, which is acknowledged")
            for missing in self.missing():
                if missing < position:
                    raise InvariantBroken(f"{self} gets {position} and misses {missing}")
            kept = [dict(each.entries).get(position) for each in self._states.values()]
            if bytes(data) not in kept:
                self._scene.model.recognise(self.handle.log, position, bytes(data))
            self.last = position
            self.got.add(position)

    def expected_after(self, position: Position) -> list[Position]:
        """Return what it has to get after a position, as it is now."""
        state = self._present
        kept = [] if state is None else [each for each, _ in state.entries]
        horizon = EARLIEST if state is None else state.horizon
        entries = (*kept, *(each for each in self.handle.positions() if each > horizon))
        return [
            each
            for each in entries
            if each > position and each >= self._first and each not in self._acknowledged
        ]

    def missing(self) -> list[Position]:
        """Return what it has to get yet: a later compaction may keep what an earlier has removed,
        which it may get."""
        return [each for each in self.expected_after(self.last) if not self._was_removed(each)]

    def acknowledged(self, positions: Sequence[Position]) -> None:
        """Note what it acknowledges."""
        self._acknowledged.update(positions)
        self.got.difference_update(positions)

    def begin_again(self) -> None:
        """Note that it gets all again that is not acknowledged."""
        self.last = EARLIEST
        self.got.clear()

    @property
    def _present(self) -> CompactedState | None:
        present = self.handle.ml.compacted
        return None if present is None else self._states[present.ledger_id]

    def _was_removed(self, position: Position) -> bool:
        """Return whether a compaction has removed it at some time."""
        return any(
            position <= each.horizon and position not in dict(each.entries)
            for each in self._states.values()
        )


def follow(scene: Scene) -> None:
    """Begin to read compacted; or add permits, acknowledge, or ask for redelivery."""
    handle, random = scene.handle(), scene.random
    if handle is None:
        return
    model = handle.follower
    if model is None:
        handle.follower = FollowerModel(scene, handle)
        scene.start(f"{handle} is followed", _joining(scene, handle.follower))
    elif model.hold is not None and handle.is_usable:
        match random.choice(("permits", "permits", "acknowledge", "redeliver")):
            case "permits":
                model.hold.add_permits(random.choice((1, 3, 100)))
            case "acknowledge" if model.got:
                count = random.randint(1, len(model.got))
                some = random.sample(sorted(model.got), count)
                scene.start(f"{model} acknowledges {count}", _acknowledging(scene, model, some))
            case "redeliver":
                scene.trace_line(f"{model} begins again")
                model.begin_again()
                model.hold.redeliver(None)


async def _joining(scene: Scene, model: FollowerModel) -> None:
    try:
        subscription = model.subscription = await model.partition.open(
            NAME, start=Beginning(EARLIEST), is_durable=False, reads_compacted=True
        )
        hold = await subscription.add_consumer(
            ConsumerOptions(name=NAME),
            SubscriptionType.EXCLUSIVE,
            deliver=partial(_deliver, scene, model),
            on_ended=partial(_ended, model),
            reads_compacted=True,
        )
    except BaseException as error:
        _forget(model)
        if not isinstance(error, errors.SubscriptionsError):
            raise
        return
    model.hold = hold
    hold.add_permits(scene.random.choice((1, 3, 100)))


async def _acknowledging(scene: Scene, model: FollowerModel, positions: list[Position]) -> None:
    assert model.hold is not None
    model.acknowledged(positions)
    try:
        await model.hold.acknowledge([Acknowledgement(each, ALL, 0) for each in positions])
    except errors.SubscriptionsError as error:
        scene.trace_line(f"{model} was not acknowledged: {error}")
        _forget(model)


async def catch_up(scene: Scene, handle: HandleModel) -> None:
    """Check at rest that it gets everything, and that nothing is left when it has acknowledged."""
    model = handle.follower
    if model is None or model.hold is None or not handle.is_usable:
        return
    for _ in range(ROUNDS_MAX):
        if handle.follower is not model:
            return
        model.hold.add_permits(1000)
        await scene.clock.sleep(CAUGHT_UP_MS)
        if not model.missing():
            break
    check(
        handle.follower is not model or not model.missing(),
        f"{model} got all up to {model.last} and not {model.missing()[:1]}",
    )
    some = scene.random.sample(sorted(model.got), len(model.got))
    await _acknowledging(scene, model, some)
    if handle.follower is model and model.subscription is not None:
        cursor = model.subscription.cursor
        end = handle.ml.last_confirmed_entry
        check(
            not cursor.backlog,
            f"{model}: {cursor.backlog} are left behind {cursor.mark_delete_position}, end {end}",
        )


async def close_all(scene: Scene) -> None:
    """Close the subscriptions of all owners."""
    for log in scene.model.logs.values():
        if log.handle is not None and log.handle.follower is not None:
            await log.handle.follower.partition.close()


def _deliver(scene: Scene, model: FollowerModel, deliveries: Sequence[Delivery]) -> None:
    first, last = deliveries[0].position, deliveries[-1].position
    scene.trace_line(f"{model} gets {len(deliveries)}: {first}, {last}")
    try:
        model.take(deliveries)
    except InvariantBroken as error:
        scene.schedule.interrupt(error)


def _ended(model: FollowerModel, error: errors.SubscriptionsError | None) -> None:
    _forget(model)


def _forget(model: FollowerModel) -> None:
    with suppress(LedgerError):
        model.handle.ml.remove_listener(model.see)
    model.partition.end()
    if model.handle.follower is model:
        model.handle.follower = None
