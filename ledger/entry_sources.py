"""Entry sources: the chain that serves a read of one ledger beyond the entry cache.

Rule: a pure plan says which copy is asked first, and which one after a failure. A read that began
before a copy was deleted continues with the other one. A ledger without a copy in a tier costs one
dict lookup.
Must not know: appends, cursors, how a source reads.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kledger.ledger.engine.base import Buffer
from kledger.ledger.errors import LedgerError, NonRecoverable, TierUnavailable
from kledger.ledger.metadata.ledger_list_state import LedgerListState
from kledger.ledger.metadata.records import OffloadContext
from kledger.ledger.offload.offload_policies import OffloadPolicies
from kledger.ledger.offload.read_source_plan import ReadSource, leads_on, plan_read_sources
from kledger.ledger.position import Position
from kledger.ledger.reads.read_counts import ReadCounts
from kledger.ledger.store_services import StoreServices


class WantedEntries(NamedTuple):
    """Entries of one ledger that a read wants.

    Attributes:
        start: position of the first one, which exists.
        count_max: how many.
        upto: id after the last one that the read may return.
        bytes_max: total size at most; the first entry is returned whatever its size.
        is_background: see `ManagedLedger.read_entries`.
    """

    start: Position
    count_max: int
    upto: int
    bytes_max: int
    is_background: bool


class EntrySources:
    """The sources of one handle.

    Attributes:
        policies: the tier, and which copy is read first; replaced when the settings change.
        counts: of the managed ledger.
    """

    def __init__(
        self,
        state: LedgerListState,
        services: StoreServices,
        check_readable: Callable[[], None],
        *,
        name: str,
        counts: ReadCounts,
    ) -> None:
        """Prepare.

        Args:
            state: the ledgers.
            services: of the store.
            check_readable: raises the error of a refused read, unless reads are served.
            name: of the managed ledger, in messages.
            counts: of the managed ledger.
        """
        self.policies = OffloadPolicies()
        self.counts = counts
        self._state = state
        self._services = services
        self._check_readable = check_readable
        self._name = name

    async def read(self, wanted: WantedEntries) -> tuple[Sequence[Buffer], ReadSource]:
        """Return entries, at least one, and where they came from.

        Raises:
            TooManyRequests: too many reads wait for the source.
            NonRecoverable, Corrupt, StorageFailed, TierUnavailable: the first entry cannot be read.
            Fenced, AlreadyClosed: the store has stopped.
        """
        failed: dict[ReadSource, LedgerError] = {}
        while True:
            # The plan is made anew after a failure: a copy may have been deleted meanwhile.
            tiered = self._state.tiered(wanted.start.ledger_id)
            source = next(each for each in self._sources(tiered) if each not in failed)
            try:
                if source is ReadSource.TIER and tiered is not None:
                    buffers = await self._read_tier(wanted, tiered)
                else:
                    buffers = await self._read_primary(wanted)
            except LedgerError as error:
                if isinstance(error, NonRecoverable):
                    # The engine drops entries in a thread, before the lists here know it.
                    self._check_readable()
                    await self._services.committer.flush()
                failed[source] = error
                if not self._goes_on(wanted, failed, source):
                    # A copy that was deleted after the other one had failed says nothing.
                    now = self._sources(self._state.tiered(wanted.start.ledger_id))
                    lasting = next((failed[each] for each in now if each in failed), error)
                    raise lasting from lasting.__cause__
            else:
                if source is ReadSource.PRIMARY and self._is_fallback(tiered):
                    self.counts.fell_back += 1
                return buffers, source

    def read_resident(self, wanted: WantedEntries) -> Sequence[Buffer]:
        """Return entries that the page cache has; () if only `read` can return the first one.

        A failure is left to `read`, which meets it again and knows which copy is asked next.
        """
        ledger_id, first = wanted.start
        tiered = self._state.tiered(ledger_id)
        if self._sources(tiered)[0] is not ReadSource.PRIMARY:
            return ()
        try:
            buffers = self._services.cold_reads.read_resident(
                ledger_id,
                first,
                count=wanted.count_max,
                upto=wanted.upto,
                bytes_max=wanted.bytes_max,
            )
        except LedgerError:
            return ()
        if buffers and self._is_fallback(tiered):
            self.counts.fell_back += 1
        return buffers

    def _sources(self, tiered: OffloadContext | None) -> tuple[ReadSource, ...]:
        is_paused = tiered is not None and self._services.tier.pauses.is_on(tiered.driver)
        return plan_read_sources(tiered, self.policies.read_priority, is_tier_paused=is_paused)

    def _is_fallback(self, tiered: OffloadContext | None) -> bool:
        return plan_read_sources(tiered, self.policies.read_priority)[0] is ReadSource.TIER

    def _goes_on(
        self, wanted: WantedEntries, failed: Mapping[ReadSource, LedgerError], last: ReadSource
    ) -> bool:
        """Note a failure; return whether another source is asked.

        Four cases: the managed ledger is being deleted, or was closed: its error is raised; the
        ledger was trimmed, or its primary copy deleted, during the read: that is no fault; the
        source failed, and there is another copy; it failed, and there is none.

        Raises:
            Fenced, AlreadyClosed: the managed ledger serves no reads any more.
        """
        self._check_readable()
        ledger_id, error = wanted.start.ledger_id, failed[last]
        if not self._state.has_ledger(ledger_id):
            return False
        tiered = self._state.tiered(ledger_id)
        sources = self._sources(tiered)
        if last in sources:
            if last is ReadSource.PRIMARY:
                self._services.health.failed(error, f"reading {self._name} at {wanted.start}")
            elif isinstance(error, TierUnavailable) and error.timed_out and tiered is not None:
                self._services.tier.pauses.begin(tiered.driver)
            if not leads_on(last, error):
                return False
        return any(each not in failed for each in sources)

    async def _read_primary(self, wanted: WantedEntries) -> Sequence[Buffer]:
        return await self._services.cold_reads.read(
            wanted.start.ledger_id,
            wanted.start.entry_id,
            count=wanted.count_max,
            upto=wanted.upto,
            bytes_max=wanted.bytes_max,
            is_background=wanted.is_background,
        )

    async def _read_tier(self, wanted: WantedEntries, copy: OffloadContext) -> Sequence[Buffer]:
        ledger_id, first = wanted.start
        return await self._services.tier.reader.read(
            self._services.tier.tiers.find(copy, self.policies.driver),
            ledger_id,
            copy,
            first,
            end=min(wanted.upto, first + wanted.count_max),
            bytes_max=wanted.bytes_max,
        )
