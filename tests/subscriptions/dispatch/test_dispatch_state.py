"""Dispatch states of all types against a model, with reads that begin and end at any time."""

from random import Random
from unittest import TestCase

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kledger.subscriptions.dispatch_options import DispatchOptions
from kledger.subscriptions.errors import ConsumerBusy
from kledger.subscriptions.model import ConsumerOptions, SubscriptionType
from tests.subscriptions.dispatch.builders import KEYS, SINGLE, Record
from tests.subscriptions.dispatch.dispatch_driver import DispatchDriver

PICKS = st.integers(0, 1 << 30)
KEY_LISTS = st.lists(st.sampled_from(KEYS), min_size=1, max_size=4).map(tuple)
CONSUMERS_MAX = 4
STEPS = ("report", "begin_read", "end_read", "begin_replay", "end_replay", "run")
WORK = st.lists(st.sampled_from(STEPS), max_size=8)
PEOPLE = st.builds(
    ConsumerOptions,
    name=st.sampled_from("abcdef"),
    priority_level=st.integers(0, 1),
    unacked_max=st.sampled_from([0, 1, 2, 5]),
)
ODDS = (8, 2, 3, 1.5, 6, 8, 1, 3, 0.3, 2, 3)
"""How often each thing happens in a storm."""


def a_person(random: Random) -> ConsumerOptions:
    return ConsumerOptions(
        name=random.choice("abcdef"),
        priority_level=random.randrange(2),
        unacked_max=random.choice([0, 1, 2, 5]),
    )


class DispatchMachine(RuleBasedStateMachine):
    """The model fails on a wrong delivery; at the end no record may be missing."""

    kind: SubscriptionType
    driver: DispatchDriver

    @initialize(
        subscription_max=st.sampled_from([0, 3, 8]),
        delay_ms=st.sampled_from([0, 10]),
        reads=st.sampled_from([1, 2, 5]),
        look_ahead=st.sampled_from([1, 4, 100]),
        round_robin=st.sampled_from([1, 3]),
        consumers=st.lists(PEOPLE, min_size=1, max_size=3),
        lists=st.lists(KEY_LISTS, min_size=5, max_size=20),
        seed=st.integers(0, 1 << 32),
        count=st.sampled_from([0, 30, 200]),
    )
    def begin(
        self,
        *,
        subscription_max: int,
        delay_ms: int,
        reads: int,
        look_ahead: int,
        round_robin: int,
        consumers: list[ConsumerOptions],
        lists: list[tuple[bytes | None, ...]],
        seed: int,
        count: int,
    ) -> None:
        self.options = DispatchOptions(
            unacked_subscription_max=subscription_max,
            failover_delay_ms=delay_ms,
            partition_index=1,
            read_entries_max=reads,
            round_robin_entries_max=round_robin,
            delayed_max=3,
            look_ahead_consumer_max=look_ahead,
            look_ahead_max=2 * look_ahead,
        )
        self.driver = DispatchDriver(self.kind, self.options)
        self.append(lists, [])
        for options in consumers:
            self.join(options, 5, ["run"])
        self.storm(seed, count)

    def someone(self, pick: int) -> int | None:
        numbers = list(self.driver.state.consumers)
        return numbers[pick % len(numbers)] if numbers else None

    def some_of(self, records: set[Record], picks: list[int]) -> set[Record]:
        ordered = sorted(records)
        return {ordered[pick % len(ordered)] for pick in picks} if ordered else set()

    @rule(steps=WORK)
    def work(self, steps: list[str]) -> None:
        for step in steps:
            getattr(self.driver, step)()

    @rule(lists=st.lists(KEY_LISTS, min_size=1, max_size=8), steps=WORK)
    def append(self, lists: list[tuple[bytes | None, ...]], steps: list[str]) -> None:
        for keys in lists:
            self.driver.append(keys)
        self.work(steps)

    @rule(key=st.sampled_from(KEYS), delay_ms=st.integers(0, 20), steps=WORK)
    def append_delayed(self, key: bytes | None, delay_ms: int, steps: list[str]) -> None:
        self.driver.append((key,), delay_ms)
        self.work(steps)

    @rule(options=PEOPLE, count=st.integers(0, 8), steps=WORK)
    def join(self, options: ConsumerOptions, count: int, steps: list[str]) -> None:
        if len(self.driver.state.consumers) == CONSUMERS_MAX:
            return
        try:
            number = self.driver.join(options)
        except ConsumerBusy:
            assert self.kind is SubscriptionType.EXCLUSIVE
            assert self.driver.state.consumers
            return
        if count:
            self.driver.add_permits(number, count)
        self.work(steps)

    @rule(pick=PICKS, steps=WORK)
    def leave(self, pick: int, steps: list[str]) -> None:
        number = self.someone(pick)
        if number is not None:
            self.driver.leave(number)
        self.work(steps)

    @rule(counts=st.lists(st.integers(0, 6), min_size=CONSUMERS_MAX), steps=WORK)
    def add_permits(self, counts: list[int], steps: list[str]) -> None:
        for number, count in zip(self.driver.state.consumers, counts, strict=False):
            if count:
                self.driver.add_permits(number, count)
        self.work(steps)

    @rule(picks=st.lists(PICKS, min_size=1, max_size=10), steps=WORK)
    def acknowledge(self, picks: list[int], steps: list[str]) -> None:
        self.driver.acknowledge(self.some_of(set(self.driver.model.holder), picks))
        self.work(steps)

    @rule(picks=st.lists(PICKS, min_size=1, max_size=3), steps=WORK)
    def acknowledge_late(self, picks: list[int], steps: list[str]) -> None:
        """Acknowledge records that consumers had before, whichever consumer has them now."""
        model = self.driver.model
        check_delivered = {record for record in model.unacknowledged if model.times[record]}
        self.driver.acknowledge(self.some_of(check_delivered, picks))
        self.work(steps)

    @rule(pick=PICKS, picks=st.none() | st.lists(PICKS, min_size=1, max_size=4), steps=WORK)
    def redeliver(self, pick: int, picks: list[int] | None, steps: list[str]) -> None:
        number = self.someone(pick)
        if number is not None:
            records = (
                None if picks is None else self.some_of(self.driver.model.unacknowledged, picks)
            )
            self.driver.redeliver(number, records)
        self.work(steps)

    @rule(pick=PICKS, consumers=st.lists(PEOPLE, max_size=3), steps=WORK)
    def reset(self, pick: int, consumers: list[ConsumerOptions], steps: list[str]) -> None:
        """Remove all consumers; some join again."""
        if self.driver.entries:
            self.driver.reset(self.driver.entries[pick % len(self.driver.entries)].position)
        for options in consumers:
            self.join(options, 5, steps)

    @rule(ms=st.integers(1, 15), steps=WORK)
    def advance(self, ms: int, steps: list[str]) -> None:
        self.driver.advance(ms)
        self.work(steps)

    def storm(self, seed: int, count: int) -> None:
        """Many things in a row, most of them work."""
        random = Random(seed)
        for _ in range(count):
            self.something(random)
            self.work(random.choices(STEPS, k=random.randrange(5)))
            self.counts_what_is_out()

    def something(self, random: Random) -> None:
        picks = [random.randrange(1 << 30) for _ in range(random.randint(1, 6))]
        match random.choices(range(len(ODDS)), ODDS)[0]:
            case 0:
                self.append([tuple(random.choices(KEYS, k=random.randint(1, 4)))], [])
            case 1:
                self.append_delayed(random.choice(KEYS), random.randrange(20), [])
            case 2:
                self.join(a_person(random), random.randrange(8), [])
            case 3:
                self.leave(picks[0], [])
            case 4:
                self.add_permits([random.randrange(7) for _ in range(CONSUMERS_MAX)], [])
            case 5:
                self.acknowledge(picks, [])
            case 6:
                self.acknowledge_late(picks, [])
            case 7:
                self.redeliver(picks[0], None if random.random() < 0.2 else picks, [])
            case 8:
                self.reset(picks[0], [a_person(random) for _ in range(random.randrange(3))], [])
            case 9:
                self.advance(random.randint(1, 15), [])
            case _:
                self.switch()

    @precondition(lambda self: self.driver.is_switching)
    @rule()
    def switch(self) -> None:
        if self.driver.is_switching:
            self.driver.rewind_cursor()

    @invariant()
    def counts_what_is_out(self) -> None:
        if hasattr(self, "driver"):
            driver = self.driver
            assert len(driver.model.holder) == driver.state.unacknowledged
            for number, consumer in driver.state.consumers.items():
                model_consumer = driver.model.consumers[number]
                assert model_consumer.permits == consumer.permits
                if self.kind not in SINGLE:
                    assert len(model_consumer.held) == consumer.unacked.count

    def teardown(self) -> None:
        """With free buffers and enough time, all unacknowledged records are delivered."""
        if not hasattr(self, "driver"):
            return
        driver = self.driver
        if not driver.state.consumers:
            driver.join(ConsumerOptions(name="last"))
        for number in driver.state.consumers:
            driver.add_permits(number, 10_000)
        driver.end_read()
        driver.end_replay()
        driver.advance(100)
        while driver.run() or driver.model.holder:
            self.counts_what_is_out()
            driver.acknowledge(set(driver.model.holder))
            driver.report()
            driver.advance(100)
        assert set() == driver.model.unacknowledged


def machine(kind: SubscriptionType) -> type[TestCase]:
    made: type[DispatchMachine] = type(f"{kind}", (DispatchMachine,), {"kind": kind})
    case: type[TestCase] = made.TestCase
    case.settings = settings(max_examples=30, stateful_step_count=10)  # type: ignore[attr-defined]
    return case


TestExclusive = machine(SubscriptionType.EXCLUSIVE)
TestFailover = machine(SubscriptionType.FAILOVER)
TestShared = machine(SubscriptionType.SHARED)
TestKeyShared = machine(SubscriptionType.KEY_SHARED)
