"""Read counts: how many entries of each managed ledger were read from which source.

Rule: entries that a read returned count, once, for the source that they came from. Counts of a
managed ledger survive that it is closed and opened again; they end when it is deleted.
Must not know: readers, what reads entries.
"""

from dataclasses import dataclass
from functools import partial

from kledger.ledger.offload.read_source_plan import ReadSource
from kledger.runtime.metrics import Metrics


@dataclass(slots=True)
class ReadCounts:
    """Entries of one managed ledger, by source.

    Attributes:
        cache: read from memory.
        primary: read from the storage of this store.
        tier: read from the second storage, or from a cache of it on a disk.
        fell_back: how often the tier failed and the primary copy was read instead.
    """

    cache: int = 0
    primary: int = 0
    tier: int = 0
    fell_back: int = 0

    def add(self, source: ReadSource, entries: int) -> None:
        """Count entries."""
        match source:
            case ReadSource.CACHE:
                self.cache += entries
            case ReadSource.PRIMARY:
                self.primary += entries
            case ReadSource.TIER:
                self.tier += entries

    def by_source(self) -> dict[str, int]:
        """Return the entries by the name of the source."""
        return {"cache": self.cache, "primary": self.primary, "tier": self.tier}


class ReadCountTable:
    """The counts of all managed ledgers of a store; at most one object for each."""

    def __init__(self, metrics: Metrics) -> None:
        """Args: metrics: show the sums."""
        self._counts: dict[str, ReadCounts] = {}
        self._forgotten = ReadCounts()
        for source in ReadSource:
            metrics.gauge(
                "entries_read",
                partial(self._sum, source.value),
                "entries that were read so far, by where they came from",
                {"source": source.value},
            )
        metrics.gauge(
            "tier_fallbacks",
            partial(self._sum, "fell_back"),
            "reads so far of which the tier failed and the primary copy was read",
        )

    def of(self, name: str) -> ReadCounts:
        """Return the counts of a managed ledger, which its handles share."""
        return self._counts.setdefault(name, ReadCounts())

    def closed(self, name: str) -> None:
        """Forget the counts of a closed managed ledger of which nothing was read."""
        if self._counts.get(name) == ReadCounts():
            del self._counts[name]

    def forget(self, name: str) -> None:
        """Forget a deleted managed ledger; the sums keep what was read of it."""
        counts = self._counts.pop(name, None)
        if counts is not None:
            for field in ("cache", "primary", "tier", "fell_back"):
                total = getattr(self._forgotten, field) + getattr(counts, field)
                setattr(self._forgotten, field, total)

    def _sum(self, field: str) -> int:
        counts = (*self._counts.values(), self._forgotten)
        return sum(getattr(each, field) for each in counts)
