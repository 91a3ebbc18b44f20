"""Ownership: the managed ledgers of a store, and the handle that owns each.

Rule: a managed ledger has one owner; opening it again fences the previous handle. Openings and
deletions of one name run one after the other. They take effect when their rows are durable, with
one exception: `create_nowait` returns the handle of a new managed ledger at once, and fences it
again if its rows were not stored.
Must not know: entries, the user's rows, how a store starts and ends.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack

from kledger.ledger.commits.committer import submitted
from kledger.ledger.config import ManagedLedgerConfig
from kledger.ledger.cursors.cursor_recovery_plan import StoredCursor
from kledger.ledger.engine.base import Row
from kledger.ledger.errors import Fenced, LedgerError
from kledger.ledger.handle.managed_ledger import ManagedLedger
from kledger.ledger.handle.metadata_submission import change_rows
from kledger.ledger.metadata.ledger_list_state import LedgerListState, MetadataChange
from kledger.ledger.name_set import NameSet
from kledger.ledger.recovery import (
    ManagedLedgerSnapshot,
    load_deletions,
    load_snapshot,
    recovered_state,
)
from kledger.ledger.storage_health import READING_ROWS
from kledger.ledger.store_services import StoreServices
from kledger.runtime.blocking import Arguments, Result
from kledger.runtime.keyed_locks import KeyedLocks


class Ownership:
    """The managed ledgers of one store, by name."""

    def __init__(
        self, names: Iterable[str], services: StoreServices, check: Callable[[], None]
    ) -> None:
        """Args: check: raises if the store cannot be used any more."""
        self._names = NameSet(names)
        self._services = services
        self._check_usable = check
        self._handles: dict[str, ManagedLedger] = {}
        self._locks: KeyedLocks[str] = KeyedLocks()
        """Names that are being opened or deleted."""

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def names(self) -> list[str]:
        """Return the names of all managed ledgers, sorted."""
        return sorted(self._names)

    # Opening

    def create_nowait(
        self, name: str, config: ManagedLedgerConfig, lost: Callable[[LedgerError], None]
    ) -> ManagedLedger | None:
        """Create a managed ledger; its rows are committed with the next group, such as an append.

        Args:
            name: of the new managed ledger.
            config: its settings.
            lost: called if the rows were not stored, before the appends fail; the handle is fenced
                then, and there is no managed ledger of that name.

        Returns:
            The handle; None if the name exists, or is being opened or deleted.

        Raises:
            Fenced: the store has stopped.
        """
        if name in self._names or name in self._locks:
            return None
        change, state = self._taken_over(ManagedLedgerSnapshot.of_new(self._services.ids.take()))

        def stored(error: LedgerError | None) -> None:
            if error is not None:
                self._unregister(handle)
                lost(error)

        rows = [*change_rows(name, change), self._services.ids.row()]
        self._services.committer.submit_rows_lazily(rows, stored)
        handle = self._register(name, state, config, ())
        return handle

    async def open(self, name: str, config: ManagedLedgerConfig) -> ManagedLedger:
        """Open a managed ledger, or create it; see `LedgerStore.open_managed_ledger`."""
        async with self._locks.holding(name):
            if handle := self._handles.pop(name, None):
                handle.fence()
                await self._services.committer.flush()
            self._check_usable()
            state, cursors = await self._recover(name)
            self._check_usable()
            return self._register(name, state, config, cursors)

    def _register(
        self,
        name: str,
        state: LedgerListState,
        config: ManagedLedgerConfig,
        cursors: Sequence[StoredCursor],
    ) -> ManagedLedger:
        self._names.add(name)
        self._services.versions.reset(name, state.head.version)
        handle = ManagedLedger(name, state, self._services, config, self._forget, cursors=cursors)
        self._handles[name] = handle
        return handle

    async def _recover(self, name: str) -> tuple[LedgerListState, Sequence[StoredCursor]]:
        """Take over a stored managed ledger, or create it."""
        services = self._services
        snapshot: ManagedLedgerSnapshot | None = None
        if name in self._names:
            now_ms = services.clock.now_ms()
            snapshot = await self._run_blocking(load_snapshot, services.engine, name, now_ms)
        if snapshot is None:
            snapshot = ManagedLedgerSnapshot.of_new(services.ids.take())
        change, state = self._taken_over(snapshot)
        rows = [*change_rows(name, change), services.ids.row()]
        await self._commit_rows(rows, drops=change.drops)
        for ledger_id in change.drops:
            services.forget_ledger(ledger_id)
        return state, snapshot.cursors

    def _taken_over(
        self, snapshot: ManagedLedgerSnapshot
    ) -> tuple[MetadataChange, LedgerListState]:
        services = self._services
        return recovered_state(
            snapshot, new_ledger_id=services.ids.take(), now_ms=services.clock.now_ms()
        )

    # Deleting and closing

    async def delete(self, names: Iterable[str]) -> None:
        """Delete managed ledgers, all or none; see `LedgerStore.delete_managed_ledgers`."""
        names = sorted(set(names))
        async with AsyncExitStack() as locks:
            for name in names:  # sorted, so that two deletions never wait for each other
                await locks.enter_async_context(self._locks.holding(name))
            self._check_usable()
            handles = [self._handles[name] for name in names if name in self._handles]
            for handle in handles:
                handle.fence_for_deletion()
            try:
                await self._services.committer.flush()
                self._check_not_fenced()  # creations in flight may be stored or not
                await self._delete_rows([name for name in names if name in self._names])
            except BaseException:
                for handle in handles:
                    handle.end_deletion(deleted=False)
                raise
            for name in names:
                self._handles.pop(name, None)
                self._names.discard(name)
            for handle in handles:
                handle.end_deletion(deleted=True)
            for name in names:
                self._services.forget_managed_ledger(name)

    async def settle(self) -> None:
        """Wait for openings and deletions in flight, which can still be written."""
        await self._locks.settle()

    async def close(self) -> None:
        """Close all handles."""
        await asyncio.gather(*(handle.close() for handle in list(self._handles.values())))
        self._handles.clear()

    def fence_all(self) -> None:
        """Fence all handles, as the store stops for good."""
        for handle in list(self._handles.values()):
            handle.fence()

    async def _delete_rows(self, names: Sequence[str]) -> None:
        if not names:
            return
        rows, ledger_ids = await self._run_blocking(load_deletions, self._services.engine, names)
        await self._commit_rows(rows, drops=ledger_ids)
        for ledger_id in ledger_ids:
            self._services.forget_ledger(ledger_id)
        self._services.tier.deletions.wake()

    # Inside

    async def _run_blocking(
        self, call: Callable[[*Arguments], Result], *arguments: *Arguments
    ) -> Result:
        """Read in a thread; raises Fenced if another store took over the engine meanwhile."""
        try:
            with self._services.health.translating(READING_ROWS):
                found = await self._services.pool.run(call, *arguments)
        except LedgerError:
            self._check_not_fenced()
            raise
        self._check_not_fenced()
        return found

    async def _commit_rows(self, rows: Sequence[Row], drops: Sequence[int]) -> None:
        await submitted(lambda done: self._services.committer.submit_rows(rows, done, drops))

    def _forget(self, handle: ManagedLedger) -> None:
        if self._handles.get(handle.name) is handle:
            del self._handles[handle.name]
            self._services.versions.forget(handle.name)
            self._services.read_counts.closed(handle.name)

    def _unregister(self, handle: ManagedLedger) -> None:
        """Undo the creation of a managed ledger whose rows were not stored."""
        self._names.discard(handle.name)
        self._forget(handle)
        handle.fence()

    def _check_not_fenced(self) -> None:
        if (fatal := self._services.committer.fatal) is not None:
            raise Fenced(str(fatal))
