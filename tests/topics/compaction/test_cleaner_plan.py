"""When a partition is compacted, and up to where, as Kafka's cleaner decides it."""

from dataclasses import replace

import pytest

from kledger.ledger import LATEST, LedgerInfo, Position
from kledger.topics.compaction.cleaner_plan import Cleaning, plan_cleaning
from kledger.topics.config.topic_config import TopicConfig, TopicDefaults, effective_config

NOW_MS = 1_000_000
LEDGERS = (
    LedgerInfo(ledger_id=3, entries=5, size=100, closed_ms=900_000, max_timestamp_ms=100_000),
    LedgerInfo(ledger_id=4, entries=5, size=300, closed_ms=950_000, max_timestamp_ms=500_000),
    LedgerInfo(ledger_id=7, entries=2, size=50, closed_ms=None),
)


def config(**settings: str) -> TopicConfig:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return effective_config({"cleanup.policy": "compact", **named}, TopicDefaults())


def plan(
    settings: TopicConfig | None = None,
    *,
    upto: Position | None = None,
    kept: int = 0,
    stable: Position = LATEST,
) -> Cleaning | None:
    return plan_cleaning(
        LEDGERS,
        settings or config(),
        compacted_upto=upto,
        compacted_bytes=kept,
        stable_upto=stable,
        now_ms=NOW_MS,
    )


def test_all_closed_ledgers_are_compacted_at_first() -> None:
    assert Cleaning(Position(4, 4), new_bytes=400, kept_bytes=0) == plan()


def test_the_open_ledger_is_never_compacted() -> None:
    assert plan(upto=Position(4, 4)) is None


@pytest.mark.parametrize(("kept", "is_due"), [(299, True), (300, False)])
def test_more_than_the_ratio_must_be_new(kept: int, is_due: bool) -> None:
    found = plan(upto=Position(3, 4), kept=kept)
    assert is_due == (found is not None)


def test_a_horizon_within_a_ledger_makes_the_rest_of_it_new() -> None:
    found = plan(upto=Position(3, 2), kept=100)
    assert found is not None
    assert Position(4, 4) == found.horizon


def test_a_young_record_keeps_its_ledger_and_those_behind_it() -> None:
    found = plan(config(min_compaction_lag_ms="500001"), kept=50)
    assert Cleaning(Position(3, 4), new_bytes=100, kept_bytes=50) == found
    assert plan(config(min_compaction_lag_ms="900001")) is None


@pytest.mark.parametrize(
    ("stable", "horizon"),
    [(Position(4, 4), Position(4, 4)), (Position(4, 3), Position(3, 4)), (Position(3, 3), None)],
)
def test_only_ledgers_before_the_last_stable_offset(
    stable: Position, horizon: Position | None
) -> None:
    found = plan(stable=stable)
    assert horizon == (None if found is None else found.horizon)


def test_old_records_are_compacted_whatever_the_ratio() -> None:
    settings = config(max_compaction_lag_ms="499999", min_cleanable_dirty_ratio="1")
    assert plan(replace(settings, max_compaction_lag_ms=500_000), upto=Position(3, 4)) is None
    found = plan(settings, upto=Position(3, 4), kept=10_000)
    assert Cleaning(Position(4, 4), new_bytes=300, kept_bytes=10_000, is_late=True) == found


@pytest.mark.parametrize(("threshold", "is_due"), [(450, True), (451, False), (0, False)])
def test_a_threshold_counts_what_was_appended_to_the_open_ledger_too(
    threshold: int, is_due: bool
) -> None:
    settings = config(kledger_compaction_threshold_bytes=str(threshold), cleanup_policy="delete")
    found = plan(settings, stable=Position(7, 1))
    assert (Cleaning(Position(7, 1), new_bytes=450, kept_bytes=0) if is_due else None) == found


def test_a_threshold_counts_from_the_horizon_on() -> None:
    settings = config(kledger_compaction_threshold_bytes="100", cleanup_policy="delete")
    for upto, is_due in ((Position(4, 3), True), (Position(4, 4), False), (Position(7, 0), False)):
        assert is_due == (plan(settings, upto=upto, stable=Position(7, 1)) is not None)
