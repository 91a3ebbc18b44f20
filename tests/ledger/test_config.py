"""Settings: defaults and what is refused."""

import pytest

from kledger.ledger.config import ManagedLedgerConfig, StoreConfig
from kledger.ledger.errors import InvalidArgument
from tests.ledger.words import with_limits


def test_defaults_are_pulsars_and_delete_nothing() -> None:
    config = ManagedLedgerConfig()
    assert (50_000, 100 << 20) == (config.max_entries_per_ledger, config.max_bytes_per_ledger)
    assert (0, 4 * 3_600_000) == (config.min_rollover_ms, config.max_rollover_ms)
    assert -1 == config.inactive_rollover_ms
    assert (-1, -1) == (config.retention_ms, config.retention_bytes)
    assert "fsync" == StoreConfig().durability


@pytest.mark.parametrize(
    "values",
    [
        {"max_entries_per_ledger": 0},
        {"max_bytes_per_ledger": -2},
        {"max_rollover_ms": 0},
        {"inactive_rollover_ms": 0},
        {"min_rollover_ms": -2},
        {"retention_ms": -2},
        {"retention_bytes": -5},
        {"min_rollover_ms": 11, "max_rollover_ms": 10},
        {"retention_ms": 1000, "retention_bytes": 0},
    ],
)
def test_a_value_that_cannot_work_is_refused(values: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        with_limits(ManagedLedgerConfig(), **values)
    assert next(iter(values)) in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        {"max_entries_per_ledger": -1, "max_bytes_per_ledger": -1, "max_rollover_ms": -1},
        {"retention_ms": 0, "retention_bytes": 0},
        {"retention_bytes": 0},
        {"min_rollover_ms": 5, "max_rollover_ms": -1},
    ],
)
def test_limits_can_be_switched_off(values: dict[str, int]) -> None:
    with_limits(ManagedLedgerConfig(), **values)


@pytest.mark.parametrize(
    "values",
    [
        {"durability": "maybe"},
        {"cache_bytes": -1},
        {"committer_queue_bytes_max": 0},
        {"committer_queue_count_max": 0},
        {"cold_read_bytes_max": 0},
        {"cold_reads_waiting_max": -1},
        {"read_ahead_bytes_max": -1},
        {"log_rewrite_bytes_per_second": -1},
        {"log_dead_percent_max": 9},
        {"log_dead_percent_max": 101},
    ],
)
def test_a_store_setting_that_cannot_work_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(values))):
        StoreConfig(**values)  # type: ignore[arg-type]
