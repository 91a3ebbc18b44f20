"""Tier services: what the handles of one store share for their tiers.

Must not know: managed ledgers.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from kledger.ledger.metadata.records import CopyDeletion
from kledger.ledger.offload.copy_deletions import CopyDeletions
from kledger.ledger.offload.copy_reads import CopyReads
from kledger.ledger.offload.tier_calls import TierCalls
from kledger.ledger.offload.tiers import Tiers
from kledger.runtime.clock import Clock
from kledger.runtime.entropy import Entropy

PAUSE_MS = 30_000
"""How long a tier that did not answer in time is not asked for what the primary has, too."""


class TierPauses:
    """Tiers that hang, by their kind.

    Without a pause, each read that could take the primary copy would wait as long as the first.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_ms: dict[str, int] = {}

    def begin(self, driver: str) -> None:
        """Note that a tier did not answer in time."""
        self._until_ms[driver] = self._clock.monotonic_ms() + PAUSE_MS

    def is_on(self, driver: str) -> bool:
        """Return whether a tier is not asked if there is another copy."""
        until_ms = self._until_ms.get(driver)
        return until_ms is not None and self._clock.monotonic_ms() < until_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class TierServices:
    """The parts of a store that deal with tiers.

    Attributes:
        tiers: the offloaders.
        calls: calls them.
        reader: reads copies.
        deletions: deletes copies.
        pauses: of tiers that hang.
        slots: limits the ledgers that are copied at once.
        entropy: gives ids of attempts.
    """

    tiers: Tiers
    calls: TierCalls
    reader: CopyReads
    deletions: CopyDeletions
    pauses: TierPauses
    slots: asyncio.Semaphore
    entropy: Entropy

    def forget(self, deletions: Iterable[CopyDeletion]) -> None:
        """Release what is kept of copies that no ledger needs, and have them deleted."""
        for deletion in deletions:
            self.reader.forget(deletion.attempt)
        self.deletions.wake()
