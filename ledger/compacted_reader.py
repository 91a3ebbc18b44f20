"""Compacted reader: reads a compacted ledger, which replaces the beginning of a log.

Rule: a read names the compacted ledger that it means, so entries of two of them never mix. A read
that finds it replaced says so, and the caller begins again with the present one.
Must not know: what is kept, and why.
"""

from collections.abc import Callable

from kledger.ledger.compacted_entry import CompactedEntry, decode_compacted
from kledger.ledger.errors import CompactedLedgerReplaced, LedgerError
from kledger.ledger.metadata.ledger_list_state import LedgerListState
from kledger.ledger.metadata.records import CompactedLedger
from kledger.ledger.position import Position
from kledger.ledger.store_services import StoreServices

READ_BYTES_MAX = 4 << 20
"""Bytes that one read returns at most, but at least one entry."""


class CompactedReader:
    """Reads the compacted ledger of one handle."""

    def __init__(
        self,
        state: LedgerListState,
        services: StoreServices,
        check_readable: Callable[[], None],
        name: str,
    ) -> None:
        """Make one; the arguments are those of `LedgerReader`."""
        self._state = state
        self._services = services
        self._check_readable = check_readable
        self._name = name

    async def read(
        self,
        compacted: CompactedLedger,
        first: int,
        *,
        count: int,
        bytes_max: int | None = None,
        is_background: bool = False,
    ) -> list[CompactedEntry]:
        """Read entries from the number `first` on, at least one; none at the end.

        Args:
            compacted: the present one, as `ManagedLedger.compacted` returned it.
            first: number of the first entry.
            count: how many at most.
            bytes_max: total size at most, READ_BYTES_MAX in any case; the first entry is returned
                whatever its size.
            is_background: see `ManagedLedger.read_entries`.

        Raises:
            CompactedLedgerReplaced: it is not the present one any more.
            Fenced: the handle is closed or fenced.
            NonRecoverable, Corrupt, StorageFailed, TooManyRequests: the first entry cannot be read.
        """
        self._check_readable()
        if first >= compacted.entries:
            return []
        limit = READ_BYTES_MAX if bytes_max is None else bytes_max
        try:
            buffers = await self._services.cold_reads.read(
                compacted.ledger_id,
                first,
                count=count,
                upto=compacted.entries,
                bytes_max=max(1, min(limit, READ_BYTES_MAX)),
                is_background=is_background,
            )
        except LedgerError as error:
            self._check_readable()
            if self._state.head.compacted != compacted:
                raise CompactedLedgerReplaced(
                    f"{self._name}: compacted ledger {compacted.ledger_id} was replaced"
                ) from error
            what = f"entry {first} of compacted ledger {compacted.ledger_id} of {self._name}"
            self._services.health.failed(error, f"reading {what}")
            raise
        self._check_readable()
        return [decode_compacted(number, each) for number, each in enumerate(buffers, first)]

    async def find(self, compacted: CompactedLedger, position: Position) -> int:
        """Return the number of the first entry at or after a position; their count if none is.

        Raises as `read`.
        """
        low, high = 0, compacted.entries
        if position > compacted.horizon:
            return high
        while low < high:
            middle = (low + high) // 2
            (entry,) = await self.read(compacted, middle, count=1)
            if entry.position < position:
                low = middle + 1
            else:
                high = middle
        return low
