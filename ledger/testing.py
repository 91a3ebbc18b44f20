"""What users of this room test with: the tools that its own tests use.

Rule: no mocks of ours; a fake stands the contract tests of the real thing.
Must not know: test frameworks.
"""

from kledger.ledger.engine import faulty
from kledger.ledger.engine.faulty import OPERATIONS, Hold
from kledger.ledger.store import abandon_engine
from kledger.runtime.manual_clock import ManualClock

__all__ = ["OPERATIONS", "FaultyEngine", "Hold", "ManualClock"]


class FaultyEngine(faulty.FaultInjectingEngine):
    """The usual engine for a path (None: memory), with faults where a test wants them."""

    def _end_owner(self) -> None:
        """The store on top is dead: it can neither write to what is left nor begin to."""
        abandon_engine(self)
