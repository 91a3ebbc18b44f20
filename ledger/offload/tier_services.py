"""Tier services: what the handles of one store share for their tiers.

Must not know: managed ledgers.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from kledger.ledger.metadata.records import CopyDeletion
from kledger.ledger.offload.copy_deletions import CopyDeletions
from kledger.ledger.offload.copy_reads import CopyReader
from kledger.ledger.offload.tier_calls import TierCalls
from kledger.ledger.offload.tiers import Tiers
from kledger.runtime.entropy import Entropy


@dataclass(frozen=True, slots=True, kw_only=True)
class TierServices:
    """The parts of a store that deal with tiers.

    Attributes:
        tiers: the offloaders.
        calls: calls them.
        reader: reads copies.
        deletions: deletes copies.
        slots: limits the ledgers that are copied at once.
        entropy: gives ids of attempts.
    """

    tiers: Tiers
    calls: TierCalls
    reader: CopyReader
    deletions: CopyDeletions
    slots: asyncio.Semaphore
    entropy: Entropy

    def forget(self, deletions: Iterable[CopyDeletion]) -> None:
        """Release what is kept of copies that no ledger needs, and have them deleted."""
        for deletion in deletions:
            self.reader.forget(deletion.attempt)
        self.deletions.wake()
