"""Policies are checked when they are made."""

import pytest

from kledger.ledger import InvalidArgument, OffloadPolicies
from kledger.ledger.testing import MemoryTier


@pytest.mark.parametrize(
    ("given", "held"),
    [
        ("tiered-first", "tiered-first"),
        ("tiered-storage-first", "tiered-first"),
        ("bookkeeper-first", "bookkeeper-first"),
    ],
)
def test_the_priority_is_held_in_the_spelling_of_the_pip(given: str, held: str) -> None:
    assert held == OffloadPolicies(read_priority=given).read_priority  # type: ignore[arg-type]
    assert "tiered-first" == OffloadPolicies().read_priority


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("read_priority", "newest"), ("read_priority", None), ("threshold_bytes", "1"),
        ("threshold_ms", None), ("deletion_lag_ms", 1.5), ("driver", 7),
    ],
)  # fmt: skip
def test_other_values_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=f"{name}: expected .*{value}"):
        OffloadPolicies(**{name: value})  # type: ignore[arg-type]


def test_drivers_are_urls_or_objects() -> None:
    tier = MemoryTier()
    assert tier is OffloadPolicies(driver=tier).driver
    assert "s3://b" == OffloadPolicies(driver="s3://b").driver
    with pytest.raises(InvalidArgument, match="has no name, location, offload, open, delete"):
        OffloadPolicies(driver=[])  # type: ignore[arg-type]
