"""Compacted source: reads a log whose beginning is read from its compacted ledger. A shell.

Rule: a read returns entries of the compacted ledger or of the log, never of both. Entries have the
positions that they were appended at. If a compaction completes while a read runs, entries from the
former compacted ledger are still valid. Entries from the part of the log that is now compacted are
not, because removed ledgers would be missing among them.
Must not know: acknowledgements, consumers, what is kept.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from kledger.ledger.compacted_reader import CompactedReader
from kledger.ledger.entry import Entry
from kledger.ledger.errors import CompactedLedgerReplaced, LedgerError
from kledger.ledger.ledger_reader import LedgerReader
from kledger.ledger.metadata.ledger_list_state import LedgerListState
from kledger.ledger.metadata.records import CompactedLedger
from kledger.ledger.position import Position


class SourceRead(NamedTuple):
    """What one read found.

    Attributes:
        entries: in order; of one of the two sources.
        last: there is no other entry up to this position; None if nothing is there to read.
        compacted_id: of the compacted ledger that the entries are from; None: from the log.
    """

    entries: Sequence[Entry]
    last: Position | None
    compacted_id: int | None


class CompactedSource:
    """One per cursor; it remembers where its last read of the compacted ledger ended."""

    def __init__(
        self, ledgers: LedgerListState, reader: LedgerReader, compacted_reader: CompactedReader
    ) -> None:
        self._ledgers = ledgers
        self._reader = reader
        self._compacted_reader = compacted_reader
        self._next: tuple[int, Position, int] | None = None
        """Compacted ledger, position, and the number of the first entry from there on."""

    async def read(
        self, start: Position, count: int, bytes_max: int | None, max_position: Position
    ) -> SourceRead:
        """Read entries from a position on.

        Args:
            start: where to begin; if it does not exist, at the next one that does.
            count: how many entries at most.
            bytes_max: their total size, but at least one entry; None: no limit.
            max_position: none after this.

        Raises:
            LedgerError: the first entry cannot be read; see `ManagedLedger.read_entries`.
        """
        while True:
            compacted = self._ledgers.head.compacted
            if compacted is not None and start <= compacted.horizon:
                with suppress(CompactedLedgerReplaced):
                    return await self._read_kept(compacted, start, count, bytes_max, max_position)
                continue
            try:
                entries = await self._reader.read_entries(start, count, bytes_max, max_position)
            except LedgerError:
                if not self._is_compacted_now(start):
                    raise
            else:
                if not self._is_compacted_now(start):
                    return self._appended(start, entries, max_position)

    def _is_compacted_now(self, start: Position) -> bool:
        compacted = self._ledgers.head.compacted
        return compacted is not None and start <= compacted.horizon

    async def _read_kept(
        self,
        compacted: CompactedLedger,
        start: Position,
        count: int,
        bytes_max: int | None,
        max_position: Position,
    ) -> SourceRead:
        ledger_id, reader = compacted.ledger_id, self._compacted_reader
        if self._next is not None and self._next[:2] == (ledger_id, start):
            first = self._next[2]
        else:
            first = await reader.find(compacted, start)
        found = await reader.read(compacted, first, count=count, bytes_max=bytes_max)
        kept = [each for each in found if each.position <= max_position]
        if not kept:
            return SourceRead((), min(compacted.horizon, max_position), ledger_id)
        last = kept[-1].position
        self._next = ledger_id, last.successor, first + len(kept)
        return SourceRead([Entry(each.position, each.data) for each in kept], last, ledger_id)

    def _appended(
        self, start: Position, entries: Sequence[Entry], max_position: Position
    ) -> SourceRead:
        """Return what was read of the log; entries that were removed meanwhile are passed."""
        if entries:
            return SourceRead(entries, entries[-1].position, None)
        following = self._ledgers.first_readable(start)
        if following is None or following > max_position:
            last = min(self._ledgers.lac, max_position)
        else:
            last = self._ledgers.previous(following)
        return SourceRead((), last if last >= start else None, None)
