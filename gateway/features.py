"""Features: levels of behaviour that brokers and clients agree on (KIP-584).

Rule: every level between `min` and `max` is supported, and `level` is finalized from the start.
Must not know: requests.
"""

from typing import Final, NamedTuple


class Feature(NamedTuple):
    """One feature, with its supported levels and the level that holds."""

    name: str
    min: int
    max: int
    level: int


FEATURES: Final = (
    # Tools derive the release of a cluster from it: 7 is 3.3-IV3, 30 is 4.3-IV0.
    Feature("metadata.version", 7, 30, 30),
    # One node is in sync with itself, so the list of other eligible leaders is always empty.
    Feature("eligible.leader.replicas.version", 0, 1, 1),
    Feature("group.version", 0, 1, 1),
    Feature("transaction.version", 0, 2, 2),
)
FEATURES_EPOCH: Final = 0
"""Rises when a level changes; none does while a server runs."""
