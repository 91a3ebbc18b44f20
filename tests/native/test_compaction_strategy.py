"""Strategies as the compactor asks them: what they are shown, and what is no strategy."""

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.pacing import no_pause
from kledger.ledger import Position
from kledger.native.client.message_decoder import decode_delivery
from kledger.native.compaction_strategy import comparison_by, imported_strategy
from kledger.native.message import EVENT_TIME_BIT, Message
from kledger.native.open_strategy import open_strategy
from kledger.subscriptions.model import ALL, Delivery
from kledger.topics.compaction.compaction_calls import begin_run, compare_batches
from kledger.topics.compaction.compaction_rules import CompactionRules
from kledger.topics.compaction.strategy_rule import StrategyRule
from kledger.topics.errors import StrategyFailed
from tests.native import message_strategies

HERE = message_strategies.__name__


class Noting:
    """Notes what it is shown, and keeps nothing."""

    def __init__(self, *, keeps_left: bool) -> None:
        self.keeps_left = keeps_left
        self.seen: list[tuple[Message | None, Message]] = []
        self.skipped: list[tuple[bytes, Message | None, Message]] = []

    def should_keep_left(self, previous: Message | None, current: Message) -> bool:
        self.seen.append((previous, current))
        return self.keeps_left

    def on_skip(self, key: bytes, previous: Message | None, current: Message) -> None:
        self.skipped.append((key, previous, current))


def shown(message: Message | None) -> dict[str, object] | None:
    """Return everything that a message shows."""
    if message is None:
        return None
    names = [each for each in Message.__slots__ if not each.startswith("_")]
    names += ["id", "headers", "properties", "producer_name", "sequence_id"]
    return {name: getattr(message, name) for name in names}


def compared(strategy: Noting, batch: bytes | bytearray, *, position: Position) -> None:
    """Show a strategy what a run shows it of one batch."""
    rule = StrategyRule("own:Noting", "orders", 2, lambda _, *at: comparison_by(strategy, *at))
    run = begin_run(CompactionRules(0, 0, (), 1 << 20, "/tmp", rule))
    compare_batches(run, memoryview(batch), [len(batch)], [(*position, 0)], no_pause)


@pytest.mark.parametrize("append_time", [None, 77])
def test_messages_are_those_that_a_consumer_gets(append_time: int | None) -> None:
    headers = [("v", b"1"), ("kledger.producer-name", b"me"), ("x", None), ("x", b"\xff")]
    records = [
        NewRecord(b"1", key=b"a", timestamp=5, headers=headers, attributes=EVENT_TIME_BIT),
        NewRecord(b"2", key=b"", timestamp=9),
        NewRecord(b"3", key=b"a", timestamp=7),
        NewRecord(None, key=b"a", timestamp=8),
        NewRecord(b"4", key=b"a", timestamp=8),
    ]
    batch = build_batch(records, base_offset=40, codec=1, log_append_time_ms=append_time)
    delivery = Delivery(Position(3, 9), bytes(batch), ALL, 0)
    messages = decode_delivery(delivery, topic="orders", partition=2, link=None)
    first, _, second, removal, last = map(shown, messages)
    strategy = Noting(keeps_left=False)
    compared(strategy, batch, position=Position(3, 9))
    expected = [(first, second), (second, removal), (None, last)]
    assert expected == [(shown(left), shown(right)) for left, right in strategy.seen]
    assert [] == strategy.skipped
    strategy = Noting(keeps_left=True)
    compared(strategy, batch, position=Position(3, 9))
    expected = [(first, each) for each in (second, removal, last)]
    assert expected == [(shown(left), shown(right)) for left, right in strategy.seen]
    assert [(b"a", left, right) for left, right in strategy.seen] == strategy.skipped


def test_a_strategy_is_an_object_or_a_class_that_makes_one() -> None:
    assert message_strategies.NEWEST is imported_strategy(f"{HERE}:NEWEST")
    made = imported_strategy(f"{HERE}:NewestVersion")
    assert isinstance(made, message_strategies.NewestVersion)
    assert made is not message_strategies.NEWEST


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere.at_all:Newest", "ModuleNotFoundError: No module named 'nowhere'"),
        (f"{HERE}:Missing", "AttributeError: .* 'Missing'"),
        (f"{HERE}:NOT_A_STRATEGY", "expected one with should_keep_left and on_skip, got 5"),
        (f"{HERE}:kledger", "expected one with should_keep_left and on_skip"),
        (f"{HERE}:OwnError", "TypeError: .*missing 2 required"),
    ],
)
def test_what_cannot_be_loaded_says_why(name: str, reason: str) -> None:
    with pytest.raises(StrategyFailed, match=f"strategy {name} cannot be loaded: .*{reason}"):
        open_strategy(name, "orders", 0)
