"""What programs over `kledger.ledger` are tested with: a clock and an engine that obey.

Rule: names of `ledger.testing`, and nothing else.
Must not know: test frameworks.
"""

from ledger.testing import FaultyEngine, Hold, ManualClock

__all__ = ["FaultyEngine", "Hold", "ManualClock"]
