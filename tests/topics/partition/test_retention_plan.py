"""Which ledgers go: the table."""

import pytest

from kledger.topics.config.topic_config import TopicDefaults, effective_config
from kledger.topics.partition.retention_plan import KeptLedger, Removal, plan_removal

NOW = 1000
# Ledgers 1, 2, 3 of 100 bytes and ten offsets each; the last one is written to.
LEDGERS = [
    KeptLedger(1, 100, 10, 100, is_open=False),
    KeptLedger(2, 100, 20, 200, is_open=False),
    KeptLedger(3, 100, 30, 300, is_open=True),
]


def planned(log_start: int = 0, **configs: str) -> Removal | None:
    texts = {name.replace("_", "."): text for name, text in configs.items()}
    config = effective_config({"retention.ms": "-1", **texts}, TopicDefaults())
    return plan_removal(LEDGERS, config, log_start_offset=log_start, now_ms=NOW)


FIRST, SECOND = Removal(1, 10, False), Removal(2, 20, False)


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ({}, None),
        ({"retention_ms": "900"}, None),  # exactly that old stays
        ({"retention_ms": "899"}, FIRST),
        ({"retention_ms": "799"}, SECOND),
        ({"retention_ms": "699"}, Removal(3, 30, is_roll_needed=True)),
        ({"retention_bytes": "201"}, None),
        ({"retention_bytes": "200"}, FIRST),
        ({"retention_bytes": "1"}, SECOND),
        ({"retention_bytes": "0"}, Removal(3, 30, is_roll_needed=True)),
        ({"retention_ms": "0", "cleanup_policy": "compact"}, None),
        ({"retention_ms": "0", "cleanup_policy": ""}, None),
        ({"log_start": 9}, None),
        ({"log_start": 10}, FIRST),
        ({"log_start": 30}, SECOND),
        ({"log_start": 20, "cleanup_policy": "compact"}, SECOND),
        ({"log_start": 10, "retention_ms": "799"}, SECOND),
    ],
)
def test_plan(configs: dict[str, str], expected: Removal | None) -> None:
    assert expected == planned(**configs)  # type: ignore[arg-type]


def test_a_young_ledger_keeps_the_ones_after_it() -> None:
    young_first = [LEDGERS[0]._replace(max_timestamp=NOW), *LEDGERS[1:]]
    config = effective_config({"retention.ms": "1"}, TopicDefaults())
    assert plan_removal(young_first, config, log_start_offset=0, now_ms=NOW) is None


@pytest.mark.parametrize(
    ("unconsumed_from", "log_start", "expected"),
    [
        (1, 0, None),
        (2, 0, FIRST),
        (3, 0, SECOND),
        (1, 10, FIRST),  # deleted records never wait
        (1, 20, SECOND),
        (2, 20, SECOND),
        (3, 30, SECOND),
    ],
)
def test_unconsumed_ledgers_stay_after_the_log_start(
    unconsumed_from: int, log_start: int, expected: Removal | None
) -> None:
    """All of it is too old and too much."""
    kept = [each._replace(is_unconsumed=each.ledger_id >= unconsumed_from) for each in LEDGERS]
    config = effective_config({"retention.ms": "1", "retention.bytes": "0"}, TopicDefaults())
    assert expected == plan_removal(kept, config, log_start_offset=log_start, now_ms=NOW)


def test_nothing_there_is_nothing_to_remove() -> None:
    config = effective_config({"retention.ms": "0"}, TopicDefaults())
    assert plan_removal([], config, log_start_offset=0, now_ms=NOW) is None
