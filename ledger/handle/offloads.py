"""Offloads: copies the closed ledgers of one managed ledger to a tier, and deletes primary copies.

Rule: one run at a time. Copying a ledger has two phases, each one change of the metadata: an
attempt is named before anything is copied, and completed only if it still is the one named. With
the first phase a row says that its objects have to be deleted; the second one removes that row. A
primary copy is deleted in the change that makes all reads go to the tier.
Must not know: appends, readers, what a tier is. Source: Pulsar's offloadLoop, prepareLedgerInfo,
completeLedgerInfoForOffloaded.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

from kledger.ledger.engine.base import Buffer
from kledger.ledger.errors import (
    AlreadyClosed,
    Fenced,
    InvalidArgument,
    InvalidPosition,
    LedgerError,
    OffloadInProgress,
    StorageFailed,
)
from kledger.ledger.handle.ledger_changes import LedgerChanges, MetadataChanges, SelectLedgers
from kledger.ledger.metadata.ledger_list_state import LedgerInfo, LedgerListState, MetadataChange
from kledger.ledger.metadata.records import (
    LedgerRecord,
    ManagedLedgerRecord,
    OffloadContext,
)
from kledger.ledger.offload.offload_plan import (
    completed,
    deleted_primaries,
    first_not_offloaded,
    has_two_copies,
    plan_copies,
    plan_prefix,
    plan_primary_deletions,
    prepared,
)
from kledger.ledger.offload.offload_policies import OffloadPolicies
from kledger.ledger.offload.offloader import LedgerOffloader
from kledger.ledger.offload.tier_calls import outcome_of
from kledger.ledger.position import LATEST, Position
from kledger.ledger.store_services import StoreServices
from kledger.runtime.containment import NamedUnit

COMPLETE_TRIES = 3
"""How often the completion of an attempt is written at most."""
COMPLETE_RETRY_MS = 100
COPY_IDLE_MS = 300_000
"""How long a tier that copies a ledger may ask for no entries: more than an object store needs for
all parts that are on their way, repeated."""


class Offloads:
    """At most one run at a time.

    Its managed ledger refers to it, and it refers to its managed ledger only while one runs.

    Attributes:
        policies: with an offloader as driver, or none.
    """

    def __init__(
        self,
        services: StoreServices,
        state: LedgerListState,
        changes: LedgerChanges,
        *,
        shown_as: str,
        check: Callable[[], None],
    ) -> None:
        """Make one.

        Args:
            services: of the store.
            state: the durable list.
            changes: makes changes of the ledgers.
            shown_as: name of the managed ledger in errors.
            check: raises when the handle must not change anything any more.
        """
        self.policies = OffloadPolicies()
        self._services = services
        self._state = state
        self._changes = changes
        self._shown_as = shown_as
        self._check = check
        self._run: asyncio.Task[tuple[None] | LedgerError] | None = None

    @property
    def is_running(self) -> bool:
        """Whether ledgers are being copied."""
        return self._run is not None

    def stop(self) -> None:
        """End a run, as the handle closes; a tier that hangs is not waited for."""
        if self._run is not None:
            self._run.cancel()

    async def copy_prefix(
        self, metadata: MetadataChanges, position: Position, before: Position | None
    ) -> Position:
        """Copy the ledgers before that of a position; see `ManagedLedger.offload_prefix`."""
        self._check()
        if not isinstance(position, Position):
            raise InvalidArgument(f"position: expected a Position, got {position!r}")
        if position != LATEST and not self._state.is_valid(position):
            raise InvalidPosition(
                f"{self._shown_as}: expected a position up to the next entry, got {position}"
            )
        await self._copy(metadata, lambda infos: plan_prefix(infos, position, before=before))
        return first_not_offloaded(self._state.infos(), self._state.lac)

    async def copy_due(
        self, metadata: MetadataChanges, now_ms: int | None, before: Position | None
    ) -> Position:
        """Copy what the thresholds make due; see `ManagedLedger.offload_due`."""
        self._check()
        policies, now_ms = self.policies, self._wall_time(now_ms)
        await self._copy(
            metadata, lambda infos: plan_copies(infos, policies, now_ms=now_ms, before=before)
        )
        return first_not_offloaded(self._state.infos(), self._state.lac)

    async def delete_due_primaries(
        self, metadata: MetadataChanges, now_ms: int | None
    ) -> tuple[int, ...]:
        """Delete the primary copies that the lag does not keep; return the ids of the ledgers."""
        policies, now_ms = self.policies, self._wall_time(now_ms)
        return await self._delete_primaries(
            metadata, lambda infos: plan_primary_deletions(infos, policies, now_ms=now_ms)
        )

    async def delete_primaries(
        self, metadata: MetadataChanges, ledger_ids: frozenset[int]
    ) -> tuple[int, ...]:
        """Delete the primary copies of these ledgers, where the tier has a complete one."""

        def select(infos: Sequence[LedgerInfo]) -> tuple[int, ...]:
            return tuple(
                each.ledger_id
                for each in infos
                if each.ledger_id in ledger_ids and has_two_copies(each)
            )

        return await self._delete_primaries(metadata, select)

    def _wall_time(self, now_ms: int | None) -> int:
        return self._services.clock.now_ms() if now_ms is None else now_ms

    # Primary copies

    async def _delete_primaries(
        self, metadata: MetadataChanges, select: SelectLedgers
    ) -> tuple[int, ...]:
        def plan(head: ManagedLedgerRecord, state: LedgerListState) -> MetadataChange | None:
            selected = select(state.infos())
            return deleted_primaries(head, state, selected) if selected else None

        change = await self._changes.make(metadata, plan)
        return () if change is None else change.primaries

    # Copying

    async def _copy(self, metadata: MetadataChanges, select: SelectLedgers) -> None:
        if self._run is not None:
            raise OffloadInProgress(f"an offload of {self._shown_as} runs already")
        driver = self.policies.driver
        if driver is None or isinstance(driver, str):
            raise InvalidArgument(f"{self._shown_as} has no tier to offload to: no driver is set")
        selected = select(self._state.infos())
        if not selected:
            return
        what = f"offload {self._shown_as}"
        self._run = run = self._services.supervisor.spawn(
            outcome_of(partial(self._copy_all, metadata, driver, selected)),
            what,
            unit=NamedUnit("background work", what),
        )
        try:
            await self._services.tier.calls.result_of(run, what)
        except AlreadyClosed:
            self._check()  # says whether the handle was closed, fenced or deleted
            raise
        finally:
            if self._run is run:
                self._run = None

    async def _copy_all(
        self, metadata: MetadataChanges, driver: LedgerOffloader, ledger_ids: Sequence[int]
    ) -> None:
        """Copy ledgers, the oldest first; go on after a failure, and raise the first one."""
        first_error: LedgerError | None = None
        for ledger_id in ledger_ids:
            try:
                async with self._services.tier.slots:
                    await self._copy_one(metadata, driver, ledger_id)
            except (AlreadyClosed, Fenced):
                raise
            except LedgerError as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error

    async def _copy_one(
        self, metadata: MetadataChanges, driver: LedgerOffloader, ledger_id: int
    ) -> None:
        """Copy one ledger; does nothing if it was trimmed, or has a copy already."""
        tier = self._services.tier
        attempt = OffloadContext(
            attempt=tier.entropy.uuid4(), driver=driver.name, location=dict(driver.location)
        )
        what = f"offloading ledger {ledger_id} of {self._shown_as}"
        tier.deletions.attempt_begins(attempt.attempt)
        copying: asyncio.Task[tuple[None] | LedgerError] | None = None
        try:
            change = await self._changes.make(metadata, partial(prepared, ledger_id, attempt))
            if change is None:
                self._attempt_ends(attempt.attempt)
                return
            await self._services.committer.make_durable()  # a power cut must not lose the row
            source = _PrimarySource(self._services, self._state, change.put[0])
            work = partial(driver.offload, source, attempt.attempt, attempt.location)
            copying = tier.calls.start(work, what)
            await tier.calls.result_of(
                copying, what, timeout_ms=COPY_IDLE_MS, last_active_ms=source.last_active_ms
            )
        except BaseException as error:
            self._attempt_ends(attempt.attempt, copying)
            if isinstance(error, LedgerError) and not self._state.has_ledger(ledger_id):
                return
            raise
        # Cancelled halfway, it would not be known whether the objects are needed.
        await self._services.supervisor.finish(
            self._complete(metadata, ledger_id, attempt), f"complete {what}"
        )

    def _attempt_ends(
        self, attempt: UUID, copying: "asyncio.Task[tuple[None] | LedgerError] | None" = None
    ) -> None:
        """Let the objects of an attempt be deleted, as soon as it writes no more of them."""
        deletions = self._services.tier.deletions
        if copying is None or copying.done():
            deletions.attempt_ends(attempt)
        else:
            copying.add_done_callback(lambda _: deletions.attempt_ends(attempt))

    async def _complete(
        self, metadata: MetadataChanges, ledger_id: int, attempt: OffloadContext
    ) -> None:
        """Write that the copy is complete; it is not, if that could not be written."""
        try:
            for tries_left in reversed(range(COMPLETE_TRIES)):
                complete = replace(attempt, completed_ms=max(self._services.clock.now_ms(), 1))
                try:
                    await self._changes.make(metadata, partial(completed, ledger_id, complete))
                except StorageFailed:
                    if not tries_left:
                        raise
                    await self._services.clock.sleep(COMPLETE_RETRY_MS)
                else:
                    return
        finally:
            self._attempt_ends(attempt.attempt)


class _PrimarySource:
    """The primary copy of a closed ledger, as an `OffloadSource`."""

    def __init__(
        self, services: StoreServices, state: LedgerListState, record: LedgerRecord
    ) -> None:
        self.ledger_id = record.ledger_id
        self.entries = record.entries
        self.size = record.size
        self._services = services
        self._state = state
        self._reads = 0
        self._last_read_ms = services.clock.monotonic_ms()

    def last_active_ms(self) -> int:
        """Return when the last read ended; now while one runs, as the tier waits for that."""
        return self._services.clock.monotonic_ms() if self._reads else self._last_read_ms

    async def read(self, first: int, *, bytes_max: int) -> Sequence[Buffer]:
        """See `OffloadSource`; a thread reads, as the event loop has others to serve."""
        self._reads += 1
        try:
            return await self._services.cold_reads.read(
                self.ledger_id,
                first,
                count=self.entries - first,
                upto=self.entries,
                bytes_max=bytes_max,
                is_background=True,
            )
        except LedgerError as error:
            if self._state.has_ledger(self.ledger_id):
                self._services.health.failed(
                    error, f"offloading ledger {self.ledger_id}, entry {first}"
                )
            raise
        finally:
            self._reads -= 1
            self._last_read_ms = self._services.clock.monotonic_ms()
