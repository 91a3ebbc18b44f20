"""What users of this room test with: the tools that its own tests use.

Rule: no mocks of ours; a fake stands the contract tests of the real thing.
Must not know: test frameworks.
"""

from ledger.engine.faulty import FaultyEngine, Hold
from runtime.manual_clock import ManualClock

__all__ = ["FaultyEngine", "Hold", "ManualClock"]
