"""ReadCommittedFilter: subscriptions see the records of a partition that are committed.

Rule: entries from the last stable offset on are undecided, whether they belong to a transaction or
not, so that order is kept. Before it, markers and the batches of aborted transactions are hidden.
Without transactions, the filter reads one byte of an entry.
Must not know: subscriptions; only their `VisibilityFilter`.
"""

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter

from kledger.batches.header import (
    CONTROL_BIT,
    FLAGS_AT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_base_offset,
    read_header,
)
from kledger.ledger import Buffer, Entry, Position
from kledger.runtime.containment import FaultUnit
from kledger.runtime.listeners import Listener
from kledger.subscriptions.visibility_filter import NOTHING_HIDDEN, Visibility
from kledger.topics import AbortedTransaction, PartitionLog

MARKED = CONTROL_BIT | TRANSACTIONAL_BIT
_last_offset = attrgetter("last_offset")


class ReadCommittedFilter:
    """A `subscriptions.visibility_filter.VisibilityFilter` of one open partition."""

    __slots__ = ("_log",)

    def __init__(self, log: PartitionLog) -> None:
        self._log = log

    def visibility_of(self, entries: Sequence[Entry]) -> Visibility:
        """Return how many of the entries are settled, and which of those are hidden."""
        settled = len(entries)
        stable = self._log.last_stable_offset
        if settled and _offset_of(entries[-1]) >= stable:
            settled = bisect_left(entries, stable, key=_offset_of)
            entries = entries[:settled]
        marked = [(at, data) for at, data in entries if data[FLAGS_AT] & MARKED]
        return Visibility(settled, self._hidden(marked) if marked else NOTHING_HIDDEN)

    def add_listener(self, listener: Listener, unit: FaultUnit | None = None) -> None:
        """Call back whenever the log changes, which includes its last stable offset."""
        self._log.add_listener(listener, unit)

    def remove_listener(self, listener: Listener) -> None:
        """Stop calling back."""
        self._log.remove_listener(listener)

    def _hidden(self, marked: list[tuple[Position, Buffer]]) -> set[Position]:
        """Return which of some batches, control or transactional, are markers or aborted."""
        headers = [(position, read_header(data)) for position, data in marked]
        start, end = headers[0][1].base_offset, headers[-1][1].base_offset + 1
        aborted: dict[int, list[AbortedTransaction]] = {}
        for each in self._log.aborted_between(start, end):
            aborted.setdefault(each.producer_id, []).append(each)
        return {
            position
            for position, header in headers
            if header.is_control or _is_within(header, aborted.get(header.producer_id, ()))
        }


def _is_within(header: BatchHeader, aborted: Sequence[AbortedTransaction]) -> bool:
    """Whether a batch belongs to an aborted transaction of its producer; those are ascending."""
    row = bisect_left(aborted, header.base_offset, key=_last_offset)
    return row < len(aborted) and aborted[row].first_offset <= header.base_offset


def _offset_of(entry: Entry) -> int:
    return read_base_offset(entry.buffer)
