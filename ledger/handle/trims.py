"""Trims: deletes the oldest ledgers of one managed ledger, with all copies of them.

Rule: a pure plan selects them. The metadata without a ledger, the deletion of its data and the rows
that have its copy in a tier deleted are one change.
Must not know: appends, why a caller trims; its managed ledger, but for the time of a call.
"""

from contextlib import suppress

from kledger.ledger.config import NO_LIMIT, ManagedLedgerConfig
from kledger.ledger.cursors.cursor_registry import CursorRegistry
from kledger.ledger.errors import LedgerError
from kledger.ledger.handle.ledger_changes import LedgerChanges, MetadataChanges, SelectLedgers
from kledger.ledger.metadata.ledger_list_state import LedgerListState, MetadataChange
from kledger.ledger.metadata.records import ManagedLedgerRecord
from kledger.ledger.metadata.retention_plan import plan_trim, plan_trim_before, plan_truncate
from kledger.ledger.position import Position
from kledger.ledger.store_services import StoreServices
from kledger.runtime.containment import FaultUnit


class Trims:
    """The trims of one handle."""

    def __init__(
        self, changes: LedgerChanges, cursors: CursorRegistry, services: StoreServices
    ) -> None:
        """Make one.

        Args:
            changes: of the ledgers.
            cursors: of the managed ledger, which hold ledgers back.
            services: of the store.
        """
        self._changes = changes
        self._cursors = cursors
        self._clock = services.clock
        self._supervisor = services.supervisor

    async def trim(self, metadata: MetadataChanges, config: ManagedLedgerConfig) -> None:
        """See `ManagedLedger.trim`."""
        await self._remove(
            metadata,
            lambda ledgers: plan_trim(
                ledgers,
                now_ms=self._clock.now_ms(),
                retention_ms=config.retention_ms,
                retention_bytes=config.retention_bytes,
                slowest=self._cursors.slowest,
            ),
        )

    async def truncate(self, metadata: MetadataChanges) -> None:
        """See `ManagedLedger.truncate`."""
        await self._remove(metadata, lambda ledgers: plan_truncate(ledgers, self._cursors.slowest))

    async def trim_before(self, metadata: MetadataChanges, position: Position) -> None:
        """See `ManagedLedger.trim_before`."""
        await self._remove(metadata, lambda ledgers: plan_trim_before(ledgers, position))

    def schedule(
        self, metadata: MetadataChanges, config: ManagedLedgerConfig, unit: FaultUnit
    ) -> None:
        """Trim in the background, if a retention is set; a fault closes `unit`."""
        if config.retention_ms == NO_LIMIT and config.retention_bytes == NO_LIMIT:
            return
        if not self._supervisor.is_closed:
            work, name = self._trim_quietly(metadata, config), f"trim {unit.unit_name}"
            self._supervisor.spawn(work, name, unit=unit)

    async def _trim_quietly(self, metadata: MetadataChanges, config: ManagedLedgerConfig) -> None:
        # The next rollover trims again; a closed or fenced handle needs no report.
        with suppress(LedgerError):
            await self.trim(metadata, config)

    async def _remove(self, metadata: MetadataChanges, select: SelectLedgers) -> None:
        def plan(head: ManagedLedgerRecord, state: LedgerListState) -> MetadataChange | None:
            removed = select(state.infos())
            return state.removal(head, removed) if removed else None

        await self._changes.make(metadata, plan)
