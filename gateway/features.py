"""Features: levels of behaviour that brokers and clients agree on (KIP-584).

Rule: what stands here is supported between its bounds, and its level holds from the start.
Must not know: who asks.
"""

from typing import Final, NamedTuple


class Feature(NamedTuple):
    """One feature, with the levels that are supported and the one that holds."""

    name: str
    min: int
    max: int
    level: int


FEATURES: Final = (
    Feature("group.version", 0, 1, 1),
    Feature("transaction.version", 0, 2, 2),
)
FEATURES_EPOCH: Final = 0
"""Rises whenever a level changes, which none does while a server runs."""
