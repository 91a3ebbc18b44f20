"""Consuming: consumers join, leave, acknowledge, request redelivery, and set the position.

Rule: an error of `subscriptions` is explained by the error of the ledger that caused it.
Must not know: how the model checks it.
"""

from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial

from kledger import ledger
from kledger.ledger import EARLIEST, LATEST, AlreadyClosed, Cursor, LedgerError, ResetInProgress
from kledger.subscriptions import errors
from kledger.subscriptions.model import (
    Acknowledgement,
    ConsumerOptions,
    Delivery,
    RecordMask,
    SubscriptionType,
)
from kledger.subscriptions.model import StartPosition as Beginning
from kledger.subscriptions.partition_subscriptions import PartitionSubscriptions
from kledger.subscriptions.subscription import SubscriptionConsumer
from tests.simulation import cursors
from tests.simulation.acknowledged_set import AcknowledgedSet
from tests.simulation.faults import InjectedFault
from tests.simulation.invariants import InvariantBroken, check
from tests.simulation.log_model import HandleModel
from tests.simulation.scene import SHARED, Scene
from tests.simulation.sharing_model import SINGLE, ConsumerModel, Record, SharingModel, indexes

CONSUMERS_MAX = 4
DRAINED_MS = 6000
EMPTY_ROUNDS_MAX = 10
"""Rounds without a delivery: a read that exceeds the limits because of another one is retried
within five seconds.
"""
"""Longer than a dispatcher's retry delay and than its failover delay."""
ROUNDS_MAX = 500

_KINDS: dict[type, type[LedgerError]] = {
    errors.SubscriptionClosed: AlreadyClosed,
    errors.SubscriptionFailed: AlreadyClosed,
    errors.SubscriptionFenced: ResetInProgress,
    errors.StorageFailed: ledger.StorageFailed,
    errors.SubscriptionNotFound: ledger.CursorNotFound,
    errors.InvalidRequest: ledger.InvalidArgument,
}


@contextmanager
def in_words_of_the_ledger() -> Iterator[None]:
    """Convert an error of a subscription to the ledger's error that caused it."""
    try:
        yield
    except errors.SubscriptionsError as error:
        if isinstance(error.__cause__, LedgerError):
            raise error.__cause__ from error
        if type(error) not in _KINDS:
            raise
        raise _KINDS[type(error)](str(error)) from error


# Subscriptions


def subscribe(scene: Scene) -> None:
    """Add a consumer; open or create the subscription."""
    handle, random = scene.handle(), scene.random
    if handle is None or not scene.profile.shares:
        return
    known = handle.sharing
    if known is not None and len(known.consumers) >= CONSUMERS_MAX:
        return
    kind = random.choice(list(SubscriptionType))
    if known is not None and known.consumers and random.random() < 0.9:
        kind = known.consumers[0].type
    consumer = ConsumerModel(f"c{next(scene.numbers)}", kind, random.choice((0, 0, 2, 5)))
    scene.start(f"{handle} {consumer} joins, {kind}", _joining(scene, handle, consumer))


async def _joining(scene: Scene, handle: HandleModel, consumer: ConsumerModel) -> None:
    beginning = scene.random.choice((EARLIEST, EARLIEST, LATEST))
    await cursors.opening(
        scene, handle, SHARED, beginning, lambda: _open(scene, handle, Beginning(beginning))
    )
    sharing = _sharing_of(scene, handle)
    if sharing is None or not handle.is_usable:
        return
    attempt = scene.attempt(handle)
    options = ConsumerOptions(
        name=consumer.name,
        priority_level=scene.random.choice((0, 0, 1)),
        unacked_max=consumer.unacked_max,
    )
    try:
        with in_words_of_the_ledger():
            hold = await sharing.subscription.add_consumer(
                options,
                consumer.type,
                deliver=partial(_deliver, scene, sharing, consumer),
                on_ended=partial(_ended, scene, sharing, consumer),
                unacked_subscription_max=sharing.unacked_max,
                failover_delay_ms=scene.random.choice((0, 10, 1000)),
            )
    except errors.ConsumerBusy as error:
        scene.trace_line(f"{sharing} {consumer}: {error}")
        is_busy = consumer.type is SubscriptionType.EXCLUSIVE or any(
            each.type is not consumer.type for each in sharing.consumers
        )
        check(is_busy, f"{sharing}: {consumer} was refused: {error}")
    except ResetInProgress:
        return
    except AlreadyClosed as error:
        is_closed = sharing.subscription.is_closed or sharing.cursor.may_be_going
        if not is_closed:
            scene.explain(attempt, error)
    else:
        scene.trace_line(f"{sharing} {consumer} joined")
        sharing.join(consumer, hold)
        _add_permits(scene, sharing, consumer, 0)


async def _open(scene: Scene, handle: HandleModel, beginning: Beginning) -> Cursor:
    if handle.partition is None:
        handle.partition = PartitionSubscriptions(
            handle.ml,
            partition_index=0,
            clock=scene.clock,
            timers=scene.timers,
            supervisor=scene.supervisor,
        )
    with in_words_of_the_ledger():
        return (await handle.partition.open(SHARED, start=beginning)).cursor


def _sharing_of(scene: Scene, handle: HandleModel) -> SharingModel | None:
    """Return the model of the open subscription."""
    subscription = handle.partition.get(SHARED) if handle.partition is not None else None
    if subscription is None or subscription.is_closed:
        return None
    cursor = handle.log.cursors.get(SHARED)
    if cursor is None or cursor.cursor is not subscription.cursor:
        return None
    if handle.sharing is None or handle.sharing.subscription is not subscription:
        unacked_max = scene.random.choice((0, 0, 3, 10))
        handle.sharing = SharingModel(subscription, cursor, handle, scene.model, unacked_max)
    return handle.sharing


def close_subscription(scene: Scene) -> None:
    """Close it; all its consumers are disconnected."""
    sharing = _pick(scene)
    if sharing is not None:
        use = cursors.use_of(sharing.cursor)
        if use is not None:
            scene.start(f"{sharing} close", cursors.closing(scene, use, lambda: _close(sharing)))


def _close_with_the_fault(scene: Scene, sharing: SharingModel) -> None:
    """Record that the subscription closes itself; closing it again waits for that."""
    use = cursors.use_of(sharing.cursor)
    if use is not None:
        work = cursors.closing(scene, use, lambda: _closed_by_the_fault(scene, sharing))
        scene.start(f"{sharing} closes after a fault", work)


async def _closed_by_the_fault(scene: Scene, sharing: SharingModel) -> None:
    """Wait until the subscription, which is closing, has ended."""
    if not (scene.is_ending or sharing.subscription.is_closed):
        scene.schedule.interrupt(InvariantBroken(f"{sharing} continues after a fault"))
    await _close(sharing)


async def _close(sharing: SharingModel) -> None:
    with in_words_of_the_ledger():
        await sharing.subscription.close()


def delete_subscription(scene: Scene) -> None:
    """Delete it, consumers or not."""
    handle = scene.handle()
    if handle is None or handle.partition is None or scene.random.random() < 0.5:
        return
    partition = handle.partition

    async def delete() -> None:
        with in_words_of_the_ledger():
            await partition.delete(SHARED, force=True)

    scene.start(f"{handle} delete subscription", cursors.deleting(scene, handle, SHARED, delete))


# Consumers


def leave(scene: Scene) -> None:
    """Remove a consumer."""
    if (found := _pick_consumer(scene)) is not None:
        sharing, consumer = found
        scene.start(f"{sharing} {consumer} leaves", _leaving(sharing, consumer))


async def _leaving(sharing: SharingModel, consumer: ConsumerModel) -> None:
    assert consumer.hold is not None
    sharing.leave(consumer)
    await consumer.hold.close()


def add_permits(scene: Scene) -> None:
    """Add permits to a consumer."""
    if (found := _pick_consumer(scene)) is not None:
        _add_permits(scene, *found, scene.random.choice((1, 2, 10)))


def _add_permits(scene: Scene, sharing: SharingModel, consumer: ConsumerModel, count: int) -> None:
    assert consumer.hold is not None
    count = count or scene.random.choice((1, 10, 1000))
    scene.trace_line(f"{sharing} {consumer} adds {count} permits")
    consumer.permits += count
    consumer.hold.add_permits(count)


def redeliver(scene: Scene) -> None:
    """Let a consumer request redelivery of some of its records, or of all."""
    if (found := _pick_consumer(scene)) is None:
        return
    sharing, consumer = found
    assert consumer.hold is not None
    pieces = None
    if scene.random.random() < 0.6 and consumer.records:
        record = scene.random.choice(sorted(consumer.records))
        pieces = [RecordMask(record[0], 1 << record[1])]
    scene.trace_line(
        f"{sharing} {consumer} requests redelivery of {'all' if pieces is None else pieces}"
    )
    sharing.redeliver(consumer, pieces)
    consumer.hold.redeliver(pieces)


def acknowledge(scene: Scene) -> None:
    """Let a consumer acknowledge some records, mostly pending ones."""
    if (found := _pick_consumer(scene)) is None:
        return
    sharing, consumer = found
    records = consumer.records if scene.random.random() < 0.95 else sharing.unacknowledged()
    if records:
        count = scene.random.choice((1, 1, 2, 5, 100))
        some = scene.random.sample(sorted(records), min(count, len(records)))
        what = f"{sharing} {consumer} acknowledges {len(some)} from {min(some)} on"
        scene.start(what, _acknowledging(scene, sharing, consumer, some))


async def _acknowledging(
    scene: Scene, sharing: SharingModel, consumer: ConsumerModel, records: list[Record]
) -> None:
    model, hold = sharing.cursor, consumer.hold
    assert hold is not None
    masks: dict[ledger.Position, int] = {}
    for position, at in records:
        masks[position] = masks.get(position, 0) | 1 << at
    sizes = {position: sharing.size_of(position) for position in masks}
    acknowledged = model.acknowledged
    for position, mask in masks.items():
        acknowledged = acknowledged.without_records(position, indexes(mask), sizes[position])
    acknowledgements = [
        Acknowledgement(position, mask, sizes[position]) for position, mask in masks.items()
    ]
    await _taking(scene, sharing, hold, acknowledged, lambda: hold.acknowledge(acknowledgements))


def acknowledge_upto(scene: Scene) -> None:
    """Let the only consumer acknowledge everything up to a record."""
    if (found := _pick_consumer(scene)) is None or found[1].type not in SINGLE:
        return
    sharing, consumer = found
    if consumer.records:
        position, at = scene.random.choice(sorted(consumer.records))
        what = f"{sharing} {consumer} acknowledges up to {position} {at}"
        scene.start(what, _acknowledging_upto(scene, sharing, consumer, (position, at)))


async def _acknowledging_upto(
    scene: Scene, sharing: SharingModel, consumer: ConsumerModel, record: Record
) -> None:
    hold, (position, at) = consumer.hold, record
    assert hold is not None
    size, mask = sharing.size_of(position), (1 << at + 1) - 1
    acknowledged = sharing.cursor.acknowledged
    acknowledged = AcknowledgedSet(
        max(acknowledged.before, position), acknowledged.alone, acknowledged.parts
    )
    acknowledged = acknowledged.without_records(position, indexes(mask), size)
    acknowledgement = Acknowledgement(position, mask, size)
    await _taking(
        scene, sharing, hold, acknowledged, lambda: hold.acknowledge_upto(acknowledgement)
    )


async def _taking(
    scene: Scene,
    sharing: SharingModel,
    hold: SubscriptionConsumer,
    acknowledged: AcknowledgedSet,
    make: Callable[[], Awaitable[None]],
) -> None:
    """Make an acknowledgement with a known result; one of a removed consumer has no effect."""
    model, handle = sharing.cursor, sharing.handle
    attempt = scene.attempt(handle)
    is_there = not hold.is_ended
    is_taken = is_there and handle.is_usable and not sharing.subscription.cursor.is_closed
    serial = 0
    if is_taken:
        serial = model.move(acknowledged)
        sharing.acknowledged()
    try:
        with in_words_of_the_ledger():
            await make()
    except LedgerError as error:
        scene.trace_line(f"{sharing} was not acknowledged: {error}")
        if not (isinstance(error, AlreadyClosed) and model.may_be_going):
            scene.explain(attempt, error)
        return
    if not is_there:
        return
    check(is_taken, f"{sharing}: accepted an acknowledgement that it must refuse")
    if scene.is_paced:
        model.returned(serial)
    else:
        model.kept(serial)


# Setting the position


def reset_subscription(scene: Scene) -> None:
    """Reset it to some entry, or into one."""
    sharing = _pick(scene)
    if sharing is None:
        return
    random, handle = scene.random, sharing.handle
    positions = handle.positions()
    beginning = Beginning(EARLIEST)
    if positions and random.random() < 0.8:
        position = random.choice(positions)
        size = sharing.size_of(position)
        beginning = Beginning(position, random.randint(0, size), size)
    scene.start(f"{sharing} reset {beginning}", _resetting(scene, sharing, beginning))


async def _resetting(scene: Scene, sharing: SharingModel, beginning: Beginning) -> None:
    position, at, size = beginning
    target = (
        AcknowledgedSet(position).without_records(position, range(at), size)
        if at
        else AcknowledgedSet(position)
    )
    subscription = sharing.subscription
    await _setting(scene, sharing, target, lambda: subscription.reset(beginning))


def rewind_subscription(scene: Scene) -> None:
    """Redeliver everything that is not acknowledged."""
    sharing = _pick(scene)
    if sharing is not None:
        rewind = sharing.subscription.rewind
        scene.start(f"{sharing} rewind", _setting(scene, sharing, None, rewind))


async def _setting(
    scene: Scene,
    sharing: SharingModel,
    target: AcknowledgedSet | None,
    make: Callable[[], Awaitable[None]],
) -> None:
    """Set the position. `target`: the resulting state, None if nothing becomes durable."""
    model, subscription, handle = sharing.cursor, sharing.subscription, sharing.handle
    model.follow()
    attempt = scene.attempt(handle)
    is_taken = not (subscription.is_fenced or subscription.is_closed)
    revision = None
    given = sharing.cleared() if is_taken else set()
    if is_taken and target is not None and model.cursor is subscription.cursor:
        revision = model.begin_revision(
            target, target.before, partial(_is_set, sharing, subscription.cursor, target)
        )
    try:
        with in_words_of_the_ledger():
            await make()
    except CancelledError:
        sharing.not_cleared(given)
        raise
    except LedgerError as error:
        sharing.not_cleared(given)
        scene.trace_line(f"{sharing} was not set: {error}")
        is_going = isinstance(error, AlreadyClosed) and model.may_be_going
        is_refused = isinstance(error, ResetInProgress) and not is_taken
        if not (is_going or is_refused or subscription.is_closed):
            scene.explain(attempt, error)
        if revision is not None and isinstance(error, ledger.StorageFailed | AlreadyClosed):
            model.end_revision(revision, happened=False)
        return
    scene.trace_line(f"{sharing} was set, {subscription.cursor.mark_delete_position}")
    check(is_taken, f"{sharing}: its position was set, although that must fail")
    if revision is not None:
        model.end_revision(revision, happened=True)


# At rest


async def drain(scene: Scene, handle: HandleModel) -> None:
    """With enough permits, and with acknowledgements, every unacknowledged record is delivered."""
    sharing = handle.sharing
    if sharing is None or not handle.is_usable or sharing.subscription.is_closed:
        return
    empty_rounds = 0
    for _ in range(ROUNDS_MAX):
        if not sharing.consumers or not sharing.unacknowledged():
            return
        for consumer in sharing.consumers:
            _add_permits(scene, sharing, consumer, 1000)
        await scene.clock.sleep(DRAINED_MS)
        had = [(each, sorted(each.records)) for each in sharing.consumers if each.records]
        empty_rounds = 0 if had else empty_rounds + 1
        if empty_rounds > EMPTY_ROUNDS_MAX and sharing.consumers:
            left = sorted(sharing.unacknowledged())
            raise InvariantBroken(
                f"{sharing}: {len(left)} records from {left[0]} on are never delivered"
            )
        for consumer, records in had:
            if consumer in sharing.consumers:
                await _acknowledging(scene, sharing, consumer, records)
    raise InvariantBroken(f"{sharing}: deliveries never end")


async def close_all(scene: Scene) -> None:
    """Close the subscriptions of all owners."""
    for log in scene.model.logs.values():
        if log.handle is not None and log.handle.partition is not None:
            await log.handle.partition.close()


# Inside


def _pick(scene: Scene) -> SharingModel | None:
    handle = scene.handle()
    return None if handle is None else _sharing_of(scene, handle)


def _pick_consumer(scene: Scene) -> tuple[SharingModel, ConsumerModel] | None:
    sharing = _pick(scene)
    if sharing is None or not sharing.consumers:
        return None
    return sharing, scene.random.choice(sharing.consumers)


def _deliver(
    scene: Scene, sharing: SharingModel, consumer: ConsumerModel, deliveries: list[Delivery]
) -> None:
    try:
        scene.faults.ask("deliver")
    except InjectedFault:
        _close_with_the_fault(scene, sharing)
        raise
    first, last = deliveries[0], deliveries[-1]
    scene.trace_line(
        f"{sharing} {consumer} gets {len(deliveries)}: {first.position}, {last.position}"
    )
    try:
        sharing.take(consumer, deliveries)
    except InvariantBroken as error:
        scene.schedule.interrupt(error)


def _is_set(sharing: SharingModel, cursor: Cursor, target: AcknowledgedSet) -> bool:
    """Return whether a revision has ended; the subscription is notified a little later."""
    if not sharing.subscription.is_fenced:
        return True
    is_there = target.difference(cursor, sharing.handle.positions()) is None
    return is_there and not cursor.revision.is_running


def _ended(
    scene: Scene,
    sharing: SharingModel,
    consumer: ConsumerModel,
    error: errors.SubscriptionsError | None,
) -> None:
    scene.trace_line(f"{sharing} {consumer} was disconnected: {error}")
    sharing.leave(consumer)
