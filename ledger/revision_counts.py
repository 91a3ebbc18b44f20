"""Revision counts: how often each cursor of a store was revised, for metrics.

Rule: a count survives that its cursor is closed and opened again, and ends when the cursor is
deleted or the process ends. A closed cursor that was never revised takes no memory here.
Must not know: cursors, how metrics are exported.
"""

from kledger.runtime.metrics import Counter

ABOUT = "revisions of a cursor"


class RevisionCounts:
    """The counters by managed ledger and cursor."""

    def __init__(self) -> None:
        self._counters: dict[str, dict[str, Counter]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._counters.values()))

    def of(self, managed_ledger: str, cursor: str) -> Counter:
        """Return the counter of a cursor, which continues where it was when it was closed."""
        return self._counters.setdefault(managed_ledger, {}).setdefault(cursor, Counter(ABOUT))

    def closed(self, managed_ledger: str, cursor: str) -> None:
        """Forget the counter of a closed cursor if it is 0."""
        counter = self._counters.get(managed_ledger, {}).get(cursor)
        if counter is not None and not counter.value:
            self.forget(managed_ledger, cursor)

    def forget(self, managed_ledger: str, cursor: str) -> None:
        """Forget the counter of a deleted cursor, if there is one."""
        counters = self._counters.get(managed_ledger, {})
        counters.pop(cursor, None)
        if not counters:
            self._counters.pop(managed_ledger, None)

    def forget_all(self, managed_ledger: str) -> None:
        """Forget the counters of a deleted managed ledger."""
        self._counters.pop(managed_ledger, None)
