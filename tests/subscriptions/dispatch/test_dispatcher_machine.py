"""The dispatcher over a real cursor against the model: reads are held, fail and end too late.

The test does what a subscription does: a reset clears the dispatcher in the step that sets the
position, and removes all consumers first, or does not. Acknowledgements are reported when they are
durable.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from random import Random
from typing import Any, TypeVar

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kledger.ledger import CursorState, Position
from kledger.subscriptions.errors import ConsumerBusy
from kledger.subscriptions.model import ConsumerOptions, Delivery, SubscriptionType
from tests.subscriptions.dispatch.builders import (
    KEYS,
    SINGLE,
    DeliveryModel,
    Record,
    indexes,
    masks_of,
)
from tests.subscriptions.dispatch.dispatcher_fixture import Scene
from tests.subscriptions.steps import until_idle

Result = TypeVar("Result")

CONSUMERS_MAX = 4
ODDS = {
    "append": 6, "append_delayed": 2, "join": 3, "leave": 1.5, "add_permits": 6, "acknowledge": 7,
    "redeliver": 3, "reset": 0.5, "advance": 3, "shut_reads": 2, "shut_writes": 1, "open": 4,
    "fail_a_read": 0.5, "run_until_idle": 8, "come_to_rest": 2,
}  # fmt: skip
"""What happens, and how often."""


class Storm:
    """Things that happen in an order that a seed draws."""

    def __init__(self, kind: SubscriptionType, seed: int) -> None:
        self.kind = kind
        self.random = random = Random(seed)
        self.scene = Scene()
        self.options = {
            "unacked_subscription_max": random.choice([0, 3, 8]),
            "failover_delay_ms": random.choice([0, 10]),
            "read_entries_max": random.choice([1, 3, 100]),
            "read_bytes_max": random.choice([1, 10_000]),
            "round_robin_entries_max": random.choice([1, 3]),
            "delayed_tick_ms": random.choice([1, 10]),
            "look_ahead_consumer_max": random.choice([1, 4, 100]),
        }
        self.work: set[asyncio.Future[None]] = set()
        self.sizes: dict[Position, int] = {}
        self.seen_number = 0
        self.joined = 0

    async def run(self, count: int) -> None:
        await self.scene.open()
        self.dispatcher = self.scene.dispatcher(self.kind, **self.options)
        self.model = DeliveryModel(self.kind, self.dispatcher._options)
        for _ in range(count):
            (name,) = self.random.choices(list(ODDS), list(ODDS.values()))
            await getattr(self, name)()
        await self.end()
        await self.dispatcher.close()
        await self.scene.close()

    async def end(self) -> None:
        """With free buffers and enough time, all unacknowledged records are delivered."""
        await self.open()
        await self.come_to_rest()
        if not self.model.consumers:
            await self.join()
        for number in self.model.consumers:
            self.permit(number, 10_000)
        for _ in range(100):
            self.scene.clock.advance(6_000)
            await self.come_to_rest()
            assert len(self.model.holder) == self.dispatcher.unacknowledged
            if not self.model.unacknowledged:
                break
            self.start(self.acknowledging(set(self.model.holder)))
            await self.come_to_rest()
        assert set() == self.model.unacknowledged
        assert 0 == self.scene.cursor.backlog

    # What the dispatcher does

    def deliver(self, number: int, deliveries: Sequence[Delivery]) -> None:
        self.look_at_revision()
        assert not self.scene.cursor.revision.is_running
        now_ms = self.scene.clock.now_ms()
        self.model.check_delivered({number: deliveries}, now_ms, is_whole=False)

    def look_at_revision(self) -> None:
        """A dispatcher that goes back does so in a revision."""
        number = self.scene.cursor.revision.number
        if number != self.seen_number:
            self.seen_number = number
            self.model.rewound()

    # What happens

    async def append(self) -> None:
        keys = tuple(self.random.choices(KEYS, k=self.random.randint(1, 4)))
        self.start(self.appending(keys, None))

    async def append_delayed(self) -> None:
        due_ms = self.scene.clock.now_ms() + self.random.randrange(20)
        self.start(self.appending((self.random.choice(KEYS),), due_ms))

    async def appending(self, keys: tuple[bytes | None, ...], due_ms: int | None) -> None:
        position = self.scene.submit(keys, due_ms)
        self.sizes[position] = len(keys)
        self.model.appended(position, keys, due_ms)

    async def join(self) -> None:
        if len(self.model.consumers) == CONSUMERS_MAX:
            return
        options = ConsumerOptions(
            name=self.random.choice("abcdef"),
            priority_level=self.random.randrange(2),
            unacked_max=self.random.choice([0, 1, 2, 5]),
        )
        expected = self.joined
        try:
            number = self.dispatcher.add_consumer(options, lambda d: self.deliver(expected, d))
        except ConsumerBusy:
            assert self.kind is SubscriptionType.EXCLUSIVE
            return
        assert expected == number
        self.joined += 1
        self.look_at_revision()
        self.model.joined(number, options)
        if count := self.random.randrange(7):
            self.permit(number, count)

    def someone(self) -> int | None:
        return self.random.choice(list(self.model.consumers)) if self.model.consumers else None

    def some_of(self, records: set[Record]) -> set[Record]:
        ordered = sorted(records)
        return set(self.random.sample(ordered, min(len(ordered), self.random.randint(1, 6))))

    async def leave(self) -> None:
        number = self.someone()
        if number is not None:
            self.model.left(number)
            self.dispatcher.remove_consumer(number)

    def permit(self, number: int, count: int) -> None:
        self.model.consumers[number].permits += count
        self.dispatcher.add_permits(number, count)

    async def add_permits(self) -> None:
        for number in self.model.consumers:
            self.permit(number, self.random.randint(1, 6))

    async def acknowledge(self) -> None:
        """Most often what is out, sometimes what was out once."""
        model = self.model
        once = {record for record in model.unacknowledged if model.times[record]}
        chosen = set(model.holder) & once if self.random.random() < 0.8 else once
        self.start(self.acknowledging(self.some_of(chosen)))

    async def acknowledging(self, records: set[Record]) -> None:
        cursor, number = self.scene.cursor, self.scene.cursor.revision.number
        for position, mask in masks_of(sorted(records)):
            if cursor.revision.is_outdated(number):
                return
            self.model.unacknowledged -= {(position, index) for index in indexes(mask)}
            await cursor.delete_batch_index(
                position, indexes(mask), self.sizes[position], revision=number
            )
        if not cursor.revision.is_outdated(number):
            self.model.acknowledged(records)
            self.dispatcher.acknowledged(masks_of(sorted(records)))

    async def redeliver(self) -> None:
        number = self.someone()
        if number is None:
            return
        held = self.model.consumers[number].held
        records = None if self.random.random() < 0.2 else self.some_of(self.model.unacknowledged)
        if self.kind not in SINGLE:
            self.model.lost(number, set(held) if records is None else records & held)
        pieces = None if records is None else masks_of(sorted(records))
        self.dispatcher.redeliver(number, pieces)
        self.look_at_revision()

    async def reset(self) -> None:
        if not self.scene.positions:
            return
        if self.random.random() < 0.5:
            for number in list(self.model.consumers):
                self.model.left(number)
                self.dispatcher.remove_consumer(number)
        cursor = self.scene.cursor
        cursor.revision.start()
        for _ in range(self.random.randrange(5)):
            await asyncio.sleep(0)
        target = self.random.choice(self.scene.positions)
        target = min(target, cursor.state.last_confirmed)
        if target.entry_id < 0:
            cursor.revision.end(lambda state: None)
            self.dispatcher.resume()
            self.look_at_revision()
            return

        def edit(state: CursorState) -> None:
            state.reset(*state.reset_target(target, force=False))
            self.dispatcher.clear()

        cursor.revision.end(edit)
        self.seen_number = cursor.revision.number
        self.model.was_reset(target)
        self.dispatcher.resume()

    async def advance(self) -> None:
        self.scene.clock.advance(self.random.randint(1, 15))

    async def shut_reads(self) -> None:
        self.scene.steps.reads.shut()

    async def shut_writes(self) -> None:
        self.scene.steps.writes.shut()

    async def open(self) -> None:
        self.scene.steps.open()

    async def fail_a_read(self) -> None:
        self.scene.engine.fail_next("read")

    async def run_until_idle(self) -> None:
        for _ in range(self.random.randrange(6)):
            await asyncio.sleep(0)

    async def come_to_rest(self) -> None:
        await until_idle()
        for done in [each for each in self.work if each.done()]:
            self.work.remove(done)
            done.result()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.work.add(asyncio.ensure_future(work))


def play(kind: SubscriptionType, seed: int, count: int) -> None:
    with asyncio.Runner() as runner:
        runner.run(Storm(kind, seed).run(count))


@settings(max_examples=40)
@given(
    st.sampled_from(list(SubscriptionType)),
    st.integers(0, 1 << 32),
    st.sampled_from([20, 100, 250]),
)
@example(SubscriptionType.SHARED, 1, 250)
@example(SubscriptionType.SHARED, 289, 100)
@example(SubscriptionType.KEY_SHARED, 289, 100)
@example(SubscriptionType.KEY_SHARED, 1, 250)
def test_nothing_is_lost_or_out_of_order(kind: SubscriptionType, seed: int, count: int) -> None:
    play(kind, seed, count)
