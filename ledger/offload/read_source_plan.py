"""Read source plan: which copy of a ledger a read takes, and what it tries when that fails.

Rule: a copy in the tier counts only when it is complete. When the primary copy was deleted, the
primary is not asked at all. A plan is made when a read begins, and again when a source has failed,
as a copy may have been deleted meanwhile.
Must not know: storage, tiers. Source: PIP-73; decision 0030.

| copy in the tier               | priority         | sources             |
|--------------------------------|------------------|---------------------|
| none, or not complete          | any              | the primary         |
| complete, primary still there  | tiered-first     | tier, then primary  |
| complete, primary still there  | bookkeeper-first | primary, then tier  |
| complete, primary deleted      | any              | the tier            |

From the tier a read goes on to the primary after every failure, from the primary to the tier only
if the primary does not have the entry as it was written.
"""

from enum import StrEnum

from kledger.ledger.errors import AlreadyClosed, Corrupt, Fenced, LedgerError, NonRecoverable
from kledger.ledger.metadata.records import OffloadContext
from kledger.ledger.offload.offload_policies import ReadPriority


class ReadSource(StrEnum):
    """Where entries are read from; the label in metrics."""

    CACHE = "cache"
    """Memory: the newest entries."""
    PRIMARY = "primary"
    """The storage of this store."""
    TIER = "tier"
    """The second storage, with its caches."""


def plan_read_sources(
    tiered: OffloadContext | None, priority: ReadPriority, *, is_tier_paused: bool = False
) -> tuple[ReadSource, ...]:
    """Return the sources of a read that the cache does not serve, the first to ask first.

    Args:
        tiered: the complete copy in the tier, None without one.
        priority: which copy is read while there are two.
        is_tier_paused: whether the tier has just been too slow; the primary then comes first.
    """
    if tiered is None:
        return (ReadSource.PRIMARY,)
    if tiered.primary_deleted:
        return (ReadSource.TIER,)
    if priority == "tiered-first" and not is_tier_paused:
        return (ReadSource.TIER, ReadSource.PRIMARY)
    return (ReadSource.PRIMARY, ReadSource.TIER)


def leads_on(failed: ReadSource, error: LedgerError) -> bool:
    """Return whether a read asks its next source after a failure."""
    if failed is ReadSource.PRIMARY:
        return isinstance(error, NonRecoverable | Corrupt)
    return not isinstance(error, AlreadyClosed | Fenced)
