"""Partition offload: the copies of one partition in the tier, and its manifest there. A shell.

Rule: one run at a time; only ledgers wholly below the last stable offset are copied. The manifest
follows every copy and every removal. A row says which manifest the tier has; it is written before
there can be one and deleted after, so the next round finds and mends what a crash has left. A tier
that fails or hangs holds up nothing but runs, and the removal of a deleted topic's manifest.
Must not know: when to offload, readers.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from kledger.ledger import (
    LATEST,
    InvalidPosition,
    LedgerError,
    LedgerInfo,
    LedgerStore,
    ManagedLedger,
    OffloadPolicies,
    Position,
)
from kledger.runtime.containment import NamedUnit
from kledger.runtime.tasks import Supervisor
from kledger.topics.config.topic_config import TopicConfig
from kledger.topics.errors import NoTier, OffloadRunning, TopicsError, UnknownPosition
from kledger.topics.keys import PartitionKeys, ids_after
from kledger.topics.partition import manifest, records
from kledger.topics.partition.offload_plan import local_removals, offload_policies
from kledger.topics.partition.offset_index import LedgerSummary, OffsetIndex
from kledger.topics.partition.partition_state import PartitionState
from kledger.topics.partition.partition_tier import PartitionOffloader, PartitionTier
from kledger.topics.partition.results import translated_errors

logger = logging.getLogger(__name__)

StableEnd = Callable[[], Awaitable[Position | None]]
"""`PartitionLog.last_stable_position`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionIdentity:
    """Which partition it is."""

    topic: str
    topic_id: UUID
    index: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


class PartitionOffload:
    """The copies of one partition."""

    def __init__(
        self,
        identity: PartitionIdentity,
        *,
        store: LedgerStore,
        ledger: ManagedLedger,
        keys: PartitionKeys,
        state: PartitionState,
        index: OffsetIndex,
        driver: PartitionOffloader | None,
        supervisor: Supervisor,
    ) -> None:
        """Make one.

        Args:
            identity: of the partition.
            store: has its rows.
            ledger: of the partition.
            keys: of its rows.
            state: knows aborted transactions.
            index: knows the offsets of its ledgers.
            driver: the tier; None: the server has none.
            supervisor: of work in the background.
        """
        self.driver = driver
        self._supervisor = supervisor
        self._identity = identity
        self._ledger = ledger
        self._index = index
        self._is_running = False
        self._manifest = (
            None
            if driver is None
            else PartitionManifest(
                identity, driver.tier,
                store=store, ledger=ledger, keys=keys, state=state, index=index,
            )
        )  # fmt: skip

    @property
    def is_running(self) -> bool:
        """Whether ledgers are being copied."""
        return self._is_running

    @property
    def local_start_offset(self) -> int:
        """The offset behind the newest ledger of which only the tier has a copy; 0 without one."""
        removed = {info.ledger_id for info in self._ledger.ledgers if info.primary_deleted}
        offsets = [each.next_offset for each in self._summaries() if each.ledger_id in removed]
        return offsets[-1] if offsets else 0

    @property
    def latest_tiered_offset(self) -> int | None:
        """The last offset in the tier; None without one."""
        tiered = {info.ledger_id for info in self._ledger.ledgers if info.offloaded}
        offsets = [each.next_offset for each in self._summaries() if each.ledger_id in tiered]
        return offsets[-1] - 1 if offsets else None

    def policies(self, config: TopicConfig) -> OffloadPolicies:
        """Return the policies of the managed ledger."""
        return offload_policies(config, self.driver)

    async def copy(self, until: Position | None, stable_end: StableEnd) -> None:
        """Copy the closed ledgers before that of a position.

        Args:
            until: None: all closed ones.
            stable_end: returns the offset before which all transactions have ended.

        Raises:
            NoTier: the server has none.
            OffloadRunning: another run has not ended.
            UnknownPosition: the position is not one of the partition.
            TopicStorageFailed: a copy failed.
        """

        async def run(before: Position) -> None:
            try:
                await self._ledger.offload_prefix(LATEST if until is None else until, before=before)
            except InvalidPosition as error:
                raise UnknownPosition(f"{self._identity}: {error}") from error

        await self._run(run, stable_end)

    async def copy_due(self, stable_end: StableEnd) -> None:
        """Copy what the thresholds make due; errors as `copy`."""

        async def run(before: Position) -> None:
            await self._ledger.offload_due(before=before)

        await self._run(run, stable_end)

    async def _run(self, run: Callable[[Position], Awaitable[None]], stable_end: StableEnd) -> None:
        if self.driver is None or self._manifest is None:
            raise NoTier("the server has no tier to offload to: offload.url is not set")
        if self._is_running:
            raise OffloadRunning(f"an offload of {self._identity} runs already")
        failure: TopicsError | None = None
        self._is_running = True
        self.driver.before_copy = self._manifest.try_to_update
        try:
            last = await stable_end()
            if last is not None:
                with translated_errors():
                    await run(last.successor)
        except TopicsError as error:
            failure = error  # other ledgers may have been copied
        finally:
            self.driver.before_copy = None
            self._is_running = False
        await self._manifest.try_to_update()
        if failure is not None:
            raise failure

    async def delete_primaries(self, config: TopicConfig, now_ms: int) -> None:
        """Delete the primary copies that the lag and the local retention release.

        Raises:
            TopicStorageFailed: it was not stored.
        """
        with translated_errors():
            await self._ledger.delete_due_primaries(now_ms)
            summaries = {each.ledger_id: each for each in self._summaries()}
            released = local_removals(self._ledger.ledgers, summaries, config, now_ms=now_ms)
            if released:
                await self._ledger.delete_primaries(released)

    def ledgers_removed(self) -> None:
        """Let the manifest follow a removal, in the background; plain."""
        if self._manifest is not None and not self._supervisor.is_closed:
            what = f"manifest of {self._identity}"
            self._supervisor.spawn(
                self._manifest.try_to_update(), what, unit=NamedUnit("background work", what)
            )

    async def update_manifest(self) -> None:
        """Let the manifest follow what was copied and removed; a failure is logged."""
        if self._manifest is not None:
            await self._manifest.try_to_update()

    async def settle(self) -> None:
        """Wait until no manifest is being written."""
        if self._manifest is not None:
            await self._manifest.settle()

    @property
    def is_settled(self) -> bool:
        """Whether no manifest is being written."""
        return self._manifest is None or not self._manifest.is_writing

    def _summaries(self) -> list[LedgerSummary]:
        return self._index.all_summaries()


class PartitionManifest:
    """The manifest of one partition in the tier."""

    def __init__(
        self,
        identity: PartitionIdentity,
        tier: PartitionTier,
        *,
        store: LedgerStore,
        ledger: ManagedLedger,
        keys: PartitionKeys,
        state: PartitionState,
        index: OffsetIndex,
    ) -> None:
        self._identity = identity
        self._tier = tier
        self._store = store
        self._ledger = ledger
        self._keys = keys
        self._state = state
        self._index = index
        self._writing = asyncio.Lock()

    @property
    def is_writing(self) -> bool:
        """Whether one is being written."""
        return self._writing.locked()

    async def settle(self) -> None:
        """Wait until none is being written."""
        async with self._writing:
            pass

    async def try_to_update(self) -> None:
        """Do what `update` does; log a failure, which the next round mends."""
        try:
            await self.update()
        except LedgerError as error:
            logger.warning("manifest of %s was not written: %s", self._identity, error)

    async def update(self) -> None:
        """Replace the manifest if it lists other ledgers than the tier has of the partition.

        Raises:
            LedgerError: it may be the old one or the new one.
        """
        async with self._writing:
            ledgers = manifest.listed(self._ledger.ledgers, self._tier.location)
            row = self._store.get_row(self._keys.manifest)
            if not ledgers:
                if row is not None:
                    delete = partial(self._tier.delete_whole, manifest.NAME)
                    await self._store.call_tier(delete, "deleting it from the tier")
                    await self._store.put_rows([(self._keys.manifest, None)])
                return
            fingerprint = manifest.fingerprint(ledgers)
            if row is not None and records.decode_manifest(row) == fingerprint:
                return
            await self._write(ledgers, fingerprint)

    async def _write(self, ledgers: list[LedgerInfo], fingerprint: int) -> None:
        summaries = {each.ledger_id: each for each in self._index.all_summaries()}
        begin = summaries[ledgers[0].ledger_id].first_offset
        end = summaries[ledgers[-1].ledger_id].next_offset
        source = manifest.ManifestSource(
            topic=self._identity.topic,
            topic_id=self._identity.topic_id,
            partition=self._identity.index,
            ledgers=ledgers,
            summaries=summaries,
            aborted=self._state.transactions.aborted.between(begin, end),
            object_names=self._tier.object_names,
        )
        unknown = records.encode_manifest(manifest.NOT_KNOWN)
        await self._store.put_rows([(self._keys.manifest, unknown)])
        data = await self._store.run_blocking(self._built, source)
        await self._store.call_tier(
            partial(self._tier.put_whole, manifest.NAME, data), "writing it to the tier"
        )
        known = records.encode_manifest(fingerprint)
        await self._store.put_rows([(self._keys.manifest, known)])

    def _built(self, source: manifest.ManifestSource) -> bytes:
        """Build the manifest; for a thread."""
        prefix = self._keys.first_timestamps
        times = {}
        for key, row in self._store.scan_rows(prefix):
            (ledger_id,) = ids_after(key, prefix)
            times[ledger_id] = records.decode_first_timestamp(ledger_id, row)
        return manifest.build_manifest(source, times)
