"""What settings mean for copies: policies, local retention, and what rows say is due."""

from uuid import UUID

import pytest

from kledger.ledger import LedgerInfo, OffloadContext, OffloadPolicies, Position
from kledger.topics.config.topic_config import TopicConfig, TopicDefaults, effective_config
from kledger.topics.partition.offload_plan import (
    end_of_offloaded,
    is_any_due,
    local_removals,
    offload_policies,
    waiting_count,
)
from kledger.topics.partition.offset_index import LedgerSummary

NOW_MS = 10_000


def config(**configs: str) -> TopicConfig:
    given = {name.replace("_", "."): text for name, text in configs.items()}
    return effective_config(given, TopicDefaults())


def ledger(
    ledger_id: int, kind: str = "primary", *, size: int = 10, entries: int = 1
) -> LedgerInfo:
    """A ledger closed at its id in seconds: `primary`, `both` copies, `tier` only, or `open`."""
    offload = None
    if kind in ("both", "tier"):
        offload = OffloadContext(
            attempt=UUID(int=ledger_id), driver="memory", location={},
            completed_ms=1000 * ledger_id, primary_deleted=kind == "tier",
        )  # fmt: skip
    return LedgerInfo(
        ledger_id=ledger_id, entries=entries, size=size,
        closed_ms=None if kind == "open" else 1000 * ledger_id,
        offloaded=offload is not None, offload=offload,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, OffloadPolicies()),
        (
            {
                "kledger_offload_threshold_bytes": "5",
                "kledger_offload_threshold_seconds": "6",
                "kledger_offload_deletion_lag_ms": "7",
                "kledger_data_read_priority": "bookkeeper-first",
            },
            OffloadPolicies(
                threshold_bytes=5, threshold_ms=6000, deletion_lag_ms=7,
                read_priority="bookkeeper-first",
            ),
        ),
        ({"kledger_data_read_priority": "tiered-storage-first"}, OffloadPolicies()),
        ({"remote_storage_enable": "true"}, OffloadPolicies(threshold_bytes=0)),
        (
            {"remote_storage_enable": "true", "kledger_offload_threshold_bytes": "5"},
            OffloadPolicies(threshold_bytes=0),
        ),
        (
            {
                "remote_storage_enable": "true",
                "remote_log_copy_disable": "true",
                "kledger_offload_threshold_bytes": "5",
            },
            OffloadPolicies(threshold_bytes=5),
        ),
    ],
)  # fmt: skip
def test_policies_of_settings(given: dict[str, str], expected: OffloadPolicies) -> None:
    assert expected == offload_policies(config(**given), None)


LEDGERS = [ledger(1, "tier"), ledger(2, "both"), ledger(3, "both"), ledger(4), ledger(5, "open")]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, []),
        ({"local_retention_ms": "0"}, [2, 3]),
        ({"local_retention_ms": "7000"}, [2]),
        ({"local_retention_ms": "8000"}, []),
        ({"local_retention_ms": "7999"}, [2]),
        ({"local_retention_bytes": "30"}, [2]),
        ({"local_retention_bytes": "31"}, []),
        ({"local_retention_bytes": "20"}, [2, 3]),
        ({"local_retention_bytes": "0"}, [2, 3]),
        ({"local_retention_ms": "-1", "local_retention_bytes": "-1"}, []),
        ({"retention_bytes": "30"}, [2]),
        ({"retention_ms": "7000"}, [2]),
    ],
)
def test_local_retention_releases_the_oldest_that_the_tier_has(
    given: dict[str, str], expected: list[int]
) -> None:
    unlimited = {"retention_ms": "-1", "remote_storage_enable": "true"}
    summaries = {each.ledger_id: each for each in (LedgerSummary(3, 0, 1, 3500),)}
    for enabled in ("true", "false"):
        settings = config(**{**unlimited, **given, "remote_storage_enable": enabled})
        found = local_removals(LEDGERS, summaries, settings, now_ms=NOW_MS)
        assert (expected if enabled == "true" else []) == found


@pytest.mark.parametrize(
    ("ledgers", "policies", "expected"),
    [
        (LEDGERS, OffloadPolicies(), False),
        (LEDGERS, OffloadPolicies(threshold_bytes=0), True),
        (LEDGERS, OffloadPolicies(threshold_bytes=10), False),
        (LEDGERS, OffloadPolicies(threshold_bytes=9), True),
        (LEDGERS, OffloadPolicies(threshold_ms=6000), True),
        (LEDGERS, OffloadPolicies(threshold_ms=6001), False),
        (LEDGERS, OffloadPolicies(deletion_lag_ms=7999), True),
        (LEDGERS, OffloadPolicies(deletion_lag_ms=8000), False),
        (LEDGERS[-1:], OffloadPolicies(threshold_bytes=0, threshold_ms=0), False),
        ([ledger(1, entries=0)], OffloadPolicies(threshold_bytes=0, threshold_ms=0), False),
        ([ledger(1, "tier")], OffloadPolicies(threshold_bytes=0, deletion_lag_ms=0), False),
        ([], OffloadPolicies(threshold_bytes=0), False),
    ],
)
def test_what_rows_say_is_due(
    ledgers: list[LedgerInfo], policies: OffloadPolicies, expected: bool
) -> None:
    assert expected is is_any_due(ledgers, {}, config(), policies, now_ms=NOW_MS)


def test_local_retention_is_due_too() -> None:
    settings = config(remote_storage_enable="true", retention_ms="-1", local_retention_bytes="0")
    assert is_any_due(LEDGERS, {}, settings, OffloadPolicies(), now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("ledgers", "count", "position"),
    [
        (LEDGERS, 1, Position(4, 0)),
        ([*LEDGERS[:3], LEDGERS[4]], 0, Position(5, 0)),
        (LEDGERS[:3], 0, Position(3, 1)),
        ([ledger(1, entries=0), ledger(2)], 1, Position(2, 0)),
        ([], 0, Position(-1, 0)),
    ],
)
def test_what_is_left(ledgers: list[LedgerInfo], count: int, position: Position) -> None:
    assert (count, position) == (waiting_count(ledgers), end_of_offloaded(ledgers))
