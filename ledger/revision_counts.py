"""Revision counts: how often each cursor of a store was revised, also before it was opened again.

Rule: a count lives as long as its durable cursor does, whatever is closed and opened meanwhile; it
begins anew with the process, as counters do. A cursor that was never revised costs nothing here
while it is closed.
Must not know: cursors, how metrics are shown.
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
        """Return the counter of a cursor, as it stood when the cursor was closed."""
        return self._counters.setdefault(managed_ledger, {}).setdefault(cursor, Counter(ABOUT))

    def closed(self, managed_ledger: str, cursor: str) -> None:
        """A cursor is not open any more: forget its counter if it counted nothing."""
        counter = self._counters.get(managed_ledger, {}).get(cursor)
        if counter is not None and not counter.value:
            self.forget(managed_ledger, cursor)

    def forget(self, managed_ledger: str, cursor: str) -> None:
        """A cursor was deleted; nothing if it was not counted."""
        counters = self._counters.get(managed_ledger, {})
        counters.pop(cursor, None)
        if not counters:
            self._counters.pop(managed_ledger, None)

    def forget_all(self, managed_ledger: str) -> None:
        """A managed ledger was deleted with its cursors."""
        self._counters.pop(managed_ledger, None)
