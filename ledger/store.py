"""LedgerStore: all managed ledgers of one data folder, by name, and the user's own rows.

Rule: a managed ledger has one owner and an engine one store; a later one fences the earlier one.
Opening recovers: everything that the previous owner acknowledged is visible, and it can append
nothing any more. A failed sync stops the store for good.
Must not know: what entries and the user's rows mean.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from weakref import WeakValueDictionary

from kledger.ledger.commits.committer import Committer, RowsDone, submitted
from kledger.ledger.commits.idle_watch import IdleWatch
from kledger.ledger.commits.store_threads import LOOP_COST_PER_TICK_MAX, StoreThreads
from kledger.ledger.config import ManagedLedgerConfig, StoreConfig
from kledger.ledger.engine.base import Row, StorageEngine
from kledger.ledger.errors import AlreadyClosed, Fenced, InvalidArgument, LedgerError, from_engine
from kledger.ledger.handle.managed_ledger import ManagedLedger
from kledger.ledger.metadata import keys
from kledger.ledger.metadata.ledger_list_state import LedgerInfo
from kledger.ledger.metadata.records import CompactedLedger
from kledger.ledger.offload.copy_deletions import CopyDeletions
from kledger.ledger.offload.copy_reads import CopyReads
from kledger.ledger.offload.object_tiers import ObjectStoreTiers
from kledger.ledger.offload.tier_calls import TierCalls
from kledger.ledger.offload.tier_services import TierPauses, TierServices
from kledger.ledger.offload.tiers import OffloaderFactory, Tiers
from kledger.ledger.ownership import Ownership
from kledger.ledger.reads.cold_reads import ColdReads
from kledger.ledger.reads.entry_cache import EntryCache
from kledger.ledger.reads.read_counts import ReadCountTable
from kledger.ledger.recovery import (
    load_compacted,
    load_ledgers,
    load_store,
    on_loop_bytes_max,
    open_engine,
    read_ahead_bytes_max,
)
from kledger.ledger.space_reclaim import SpaceReclaim, StartPace, throttled
from kledger.ledger.storage_health import READING_ROWS, StorageHealth
from kledger.ledger.store_services import IdCounter, MetadataVersions, StoreServices
from kledger.ledger.table_store import RowChanged
from kledger.runtime.blocking import Arguments, BlockingRunner, Result
from kledger.runtime.clock import Clock, SystemClock
from kledger.runtime.compute_pool import ComputePool
from kledger.runtime.containment import Containment
from kledger.runtime.entropy import Entropy, SystemEntropy
from kledger.runtime.metrics import Metrics
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers

logger = logging.getLogger(__name__)

TIER_CALL_TIMEOUT_MS = 60_000

_stores: WeakValueDictionary[int, "LedgerStore"] = WeakValueDictionary()
"""The store on top of each engine in use, by the engine's identity."""


class LedgerStore:
    """Made by `open`; enter it with `async with`, or await it and call `close` later."""

    def __init__(
        self,
        path: Path | None,
        config: StoreConfig,
        clock: Clock,
        engine: StorageEngine | None,
        threads: StoreThreads,
        *,
        start_pace: StartPace,
        offloaders: OffloaderFactory | None,
        entropy: Entropy,
    ) -> None:
        """Use `open`."""
        self.config = config
        self.clock = clock
        self.on_fatal: Callable[[LedgerError], None] = _ignore_fatal
        """Called once when the store stops for good; the program decides what to do."""
        self.metrics = Metrics()
        """Metrics of cursors; the layers above add their own."""
        self.containment = Containment(clock, self.metrics)
        """Limits faults to parts of this store; for the layers above, too."""
        self.health = StorageHealth(clock, self.metrics)
        """Present failures of the storage, for operators."""
        self.compute_pool = ComputePool(
            threads.compute_pool(),
            cost_per_tick_max=LOOP_COST_PER_TICK_MAX,
            processes=threads.compute_processes(),
        )
        """For the layers above, which decode entries."""
        self.path = path
        self._engine_given = engine
        self._threads = threads
        self._start_pace = start_pace
        self._own_offloaders: ObjectStoreTiers | None = None
        if offloaders is None:
            offloaders = self._own_offloaders = ObjectStoreTiers(containment=self.containment)
        self._offloaders = offloaders
        self._entropy = entropy
        self._engine: StorageEngine
        self._committer: Committer
        self._services: StoreServices
        self._reclaim: SpaceReclaim
        self._ownership: Ownership
        self._is_open = False
        self._is_closed = False

    # Opening and closing

    @classmethod
    def open(
        cls,
        path: str | Path | None,
        *,
        config: StoreConfig | None = None,
        clock: Clock | None = None,
        engine: StorageEngine | None = None,
        threads: StoreThreads | None = None,
        start_pace: StartPace = throttled,
        offloaders: OffloaderFactory | None = None,
        entropy: Entropy | None = None,
    ) -> Self:
        """Return a store that opens when it is entered or awaited.

        Args:
            path: the data folder, None = in memory.
            config: settings of the store.
            clock: source of the time.
            engine: used instead of the default engine for `path`, and not closed with the store; a
                store that has it open is fenced.
            threads: used instead of the default threads for blocking work.
            start_pace: makes the pace at which dead space is reclaimed; a store whose clock is not
                the system's may want one that follows its clock, see `kledger.ledger.testing`.
            offloaders: makes the tiers that settings and stored copies name, and is not closed with
                the store; the default knows the URLs of object stores, without options.
            entropy: source of ids of offload attempts; no two stores that use one tier may take the
                same.
        """
        return cls(
            Path(path) if path is not None else None,
            config or StoreConfig(),
            clock or SystemClock(),
            engine,
            threads or StoreThreads(),
            start_pace=start_pace,
            offloaders=offloaders,
            entropy=entropy or SystemEntropy(),
        )

    async def __aenter__(self) -> Self:
        """Open it.

        Raises:
            StoreInUse: the folder is open already.
            StoreUnusable: the folder cannot be used.
            Corrupt: the storage is damaged.
            StorageFailed: there is no space left, or something could not be read.
        """
        await self._start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def close(self) -> None:
        """Finish everything submitted, close all handles and the engine. May be repeated."""
        if not self._is_open or self._is_closed:
            self._is_closed = True
            return
        self._is_closed = True
        self.compute_pool.close()
        await self._ownership.settle()
        await self._ownership.close()
        await self._reclaim.close()
        await self._services.tier.deletions.close()
        await self._committer.close()
        await self._services.supervisor.close()
        self._services.cache.clear()  # objects in reference cycles would keep it for long
        if self._own_offloaders is not None:
            await self._own_offloaders.close()
        if _stores.get(id(self._engine)) is self:
            del _stores[id(self._engine)]
        if self._engine_given is None:
            await self._close_engine()
        self._services.pool.close()

    # Managed ledgers

    async def open_managed_ledger(
        self, name: str, *, config: ManagedLedgerConfig | None = None
    ) -> ManagedLedger:
        """Open a managed ledger, or create it; an open handle is fenced.

        Raises:
            Fenced, AlreadyClosed: the store has stopped.
            StorageFailed: nothing was changed, but an older handle is fenced.
            Corrupt: its metadata cannot be read.
            InvalidArgument: the store does not know the tier.
        """
        config = self._checked(name, config)
        opening = self._ownership.open(name, config)
        return await self._services.supervisor.finish(opening, f"open {name}")

    def create_managed_ledger_nowait(
        self,
        name: str,
        *,
        config: ManagedLedgerConfig | None = None,
        lost: Callable[[LedgerError], None],
    ) -> ManagedLedger | None:
        """Create a managed ledger without waiting: it is durable when its first entry is.

        Args:
            name: of the new managed ledger.
            config: its settings.
            lost: called on the event loop if it could not be stored: the handle is fenced, its
                appends fail right after this, and there is no managed ledger of that name.

        Returns:
            The handle; None if the name exists, or is being opened or deleted.

        Raises:
            Fenced, AlreadyClosed: the store has stopped.
            InvalidArgument: the store does not know the tier.
        """
        config = self._checked(name, config)
        return self._ownership.create_nowait(name, config, lost)

    async def delete_managed_ledger(self, name: str) -> None:
        """Delete a managed ledger with its data; does nothing if there is none.

        Raises:
            Fenced, AlreadyClosed: the store has stopped.
            StorageFailed: nothing was changed.
        """
        await self.delete_managed_ledgers((name,))

    async def delete_managed_ledgers(self, names: Sequence[str]) -> None:
        """Delete managed ledgers with their data, all or none; unknown names are ignored.

        Raises:
            Fenced, AlreadyClosed: the store has stopped.
            StorageFailed: nothing was changed.
        """
        for name in names:
            _check_name(name)
        self._check_usable()
        # A deletion left halfway would have an unknown outcome, so a caller cannot cancel it.
        deletion, what = self._ownership.delete(names), f"delete {len(names)} managed ledgers"
        await self._services.supervisor.finish(deletion, what)

    def has_managed_ledger(self, name: str) -> bool:
        """Return whether there is a managed ledger of that name."""
        return name in self._ownership

    def managed_ledger_names(self) -> list[str]:
        """Return the names of all managed ledgers, sorted."""
        return self._ownership.names()

    def stored_ledgers(self, name: str) -> tuple[LedgerInfo, ...] | None:
        """Read the ledgers of a managed ledger that is not open, without opening it.

        It blocks, so call it by `run_blocking`.

        Returns:
            Every ledger, oldest first; None if there is no such managed ledger, or if it was not
            closed properly, so that only an opening finds the true counts.

        Raises:
            Corrupt, StorageFailed: a row cannot be read.
        """
        try:
            return load_ledgers(self._engine, name)
        except Exception as error:
            raise from_engine(error) from error

    def stored_compacted(self, name: str) -> CompactedLedger | None:
        """Read what stands for the beginning of a managed ledger, without opening it; it blocks.

        Raises:
            Corrupt, StorageFailed: a row cannot be read.
        """
        try:
            return load_compacted(self._engine, name)
        except Exception as error:
            raise from_engine(error) from error

    # Rows of the user

    def append_rows_nowait(self, rows: Sequence[Row], done: RowsDone) -> None:
        """Make rows durable, in order with everything else and all or none; never blocks.

        Args:
            rows: keys and values; None deletes the key.
            done: called on the event loop when the rows are durable, or with the error.

        Raises:
            Fenced, AlreadyClosed: the store has stopped; `done` is not called.
        """
        self._check_usable()
        stored = [(keys.user_key(key), value) for key, value in rows]
        self._committer.submit_rows(stored, done)

    def append_rows_lazily(self, rows: Sequence[Row], done: RowsDone) -> None:
        """Make rows durable with the next group, at the latest by `close`.

        For rows that can be computed again, as a crash may lose them until then. `rows` and `done`
        as for `append_rows_nowait`.

        Raises:
            Fenced, AlreadyClosed: the store has stopped; `done` is not called.
        """
        self._check_usable()
        stored = [(keys.user_key(key), value) for key, value in rows]
        self._committer.submit_rows_lazily(stored, done)

    async def put_rows(self, rows: Sequence[Row]) -> None:
        """Make rows durable, all or none.

        Raises:
            Fenced, AlreadyClosed: the store has stopped.
            StorageFailed: nothing was stored.
        """
        self._check_usable()
        stored = [(keys.user_key(key), value) for key, value in rows]
        await submitted(lambda done: self._committer.submit_rows(stored, done))

    # As the tables of a server that is alone; `shared_tables` has those that brokers share.

    def change_lock(self) -> asyncio.Lock:
        """Return a lock of its own: nobody else changes the rows of this store."""
        return asyncio.Lock()

    def follow(self, prefix: bytes, changed: RowChanged) -> None:
        """Do nothing: no other process changes the rows of this store."""

    def get_row(self, key: bytes) -> bytes | None:
        """Return the durable value of a row of the user.

        Raises:
            Fenced, AlreadyClosed: the store has stopped.
            StorageFailed, Corrupt: the row cannot be read; the same for the scans.
        """
        self._check_usable()
        with self.health.translating(READING_ROWS):
            return self._engine.get(keys.user_key(key))

    def scan_rows(self, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        """Return the user's rows whose key begins with `prefix`, in the order of keys."""
        self._check_usable()
        with self.health.translating(READING_ROWS):
            rows = self._engine.scan(*keys.user_range(prefix))
        return [(keys.user_key_in(key), value) for key, value in rows]

    def scan_rows_between(
        self, start: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        """Return up to `limit` rows of the user with start <= key < end, in order or `reverse`."""
        self._check_usable()
        with self.health.translating(READING_ROWS):
            rows = self._engine.scan(
                keys.user_key(start), keys.user_key(end), reverse=reverse, limit=limit
            )
        return [(keys.user_key_in(key), value) for key, value in rows]

    async def run_blocking(
        self, call: Callable[[*Arguments], Result], *arguments: *Arguments
    ) -> Result:
        """Make a blocking call in a thread. Raises its errors, Fenced, AlreadyClosed."""
        self._check_usable()
        return await self._services.pool.run(call, *arguments)

    async def call_tier(self, work: Callable[[], Awaitable[Result]], what: str) -> Result:
        """Make a small call of a tier, which has `TIER_CALL_TIMEOUT_MS`.

        Args:
            work: makes it.
            what: it is, for errors.

        Raises:
            TierUnavailable: the tier did not answer in time, or not as it should.
            Fenced, AlreadyClosed: the store has stopped.
            LedgerError: of the call.
        """
        self._check_usable()
        return await self._services.tier.calls.call(work, what, timeout_ms=TIER_CALL_TIMEOUT_MS)

    # State and back-pressure

    @property
    def is_fenced(self) -> bool:
        """Whether the store stopped for good."""
        return self._is_open and self._committer.fatal is not None

    @property
    def is_saturated(self) -> bool:
        """Whether more than the queue limits is unconfirmed, so that producers should pause."""
        return self._committer.is_saturated

    def is_idle(self) -> bool:
        """Return whether nothing was appended or stored for a second, as far as calls have seen.

        What background work writes does not count: compactions, and moves of entries.
        """
        return self._idle_watch.is_idle()

    def on_drained(self, callback: Callable[[], None]) -> None:
        """Call back once, when at most half of the queue limits is used."""
        self._committer.on_drained(callback)

    async def flush(self) -> None:
        """Wait until everything submitted so far is confirmed or has failed."""
        await self._committer.flush()

    async def checkpoint(self) -> None:
        """Make log and index durable, and free the memory of rows that wait for the index.

        A failure is reported as that of any other checkpoint, and not raised.

        Raises:
            Fenced, AlreadyClosed: the store has stopped.
        """
        self._check_usable()
        await self._committer.checkpoint()

    async def reclaim_step(self) -> int | None:
        """Reclaim some space at once, without pace; see `SpaceReclaim.step`."""
        self._check_usable()
        return await self._reclaim.step()

    @property
    def cached_bytes(self) -> int:
        """Memory used by the entry cache, in bytes."""
        return self._services.cache.size

    # Inside

    async def _start(self) -> None:
        if self._is_open:
            raise InvalidArgument("a store is opened once")
        pool = self._threads.pool()
        engine = self._engine_given
        try:
            if engine is None:
                engine = await pool.run(open_engine, self.path, self.config)
            await _fence_previous_store(engine)
            stored = await pool.run(load_store, engine)
        except Exception as error:
            if engine is not None and self._engine_given is None:
                with suppress(Exception):  # the first error is raised
                    await pool.run(engine.close)
            pool.close()
            raise from_engine(error) from error
        self._engine = engine
        supervisor = Supervisor(containment=self.containment)
        timers = Timers(self.clock, supervisor)
        self._committer = Committer(
            self._engine,
            sync=self.config.durability == "fsync",
            on_loop_bytes_max=on_loop_bytes_max(self._engine, self.config),
            queue_bytes_max=self.config.committer_queue_bytes_max,
            queue_count_max=self.config.committer_queue_count_max,
            clock=self.clock,
            pool=pool,
            supervisor=supervisor,
            timers=timers,
            on_fatal=self._stopped,
            health=self.health,
            start_commits=self._threads.commits,
        )
        self._services = StoreServices(
            engine=self._engine,
            committer=self._committer,
            cache=EntryCache(self.config.cache_bytes),
            cold_reads=ColdReads(
                self._engine,
                self.config,
                read_ahead_bytes_max=read_ahead_bytes_max(self._engine, self.config),
                pool=pool,
                supervisor=supervisor,
            ),
            ids=IdCounter(stored.next_id),
            versions=MetadataVersions(),
            pool=pool,
            clock=self.clock,
            timers=timers,
            supervisor=supervisor,
            config=self.config,
            metrics=self.metrics,
            health=self.health,
            read_counts=ReadCountTable(self.metrics),
            tier=self._tier_services(pool, timers, supervisor),
        )
        self._ownership = Ownership(stored.names, self._services, self._check_usable)
        self._idle_watch = IdleWatch(self._committer, self.clock)
        self._reclaim = SpaceReclaim(
            self._engine, self._committer, self.config, idle_watch=self._idle_watch,
            clock=self.clock, start_pace=self._start_pace, pool=pool, supervisor=supervisor,
        )  # fmt: skip
        self._reclaim.start()
        if stored.has_copy_deletions:
            self._services.tier.deletions.wake()
        _stores[id(self._engine)] = self
        self._is_open = True

    def _tier_services(
        self, pool: BlockingRunner, timers: Timers, supervisor: Supervisor
    ) -> TierServices:
        tiers = Tiers(self._offloaders)
        calls = TierCalls(self.clock, timers, supervisor)
        return TierServices(
            tiers=tiers,
            calls=calls,
            reader=CopyReads(
                calls,
                bytes_max=self.config.offload_read_bytes_max,
                timeout_ms=self.config.offload_read_timeout_ms,
            ),
            deletions=CopyDeletions(
                self._engine, self._committer, tiers, calls,
                clock=self.clock, timers=timers, pool=pool, supervisor=supervisor,
            ),
            pauses=TierPauses(self.clock),
            slots=asyncio.Semaphore(self.config.offload_parallel),
            entropy=self._entropy,
        )  # fmt: skip

    def _checked(self, name: str, config: ManagedLedgerConfig | None) -> ManagedLedgerConfig:
        """Check the arguments of an opening before anything changes."""
        _check_name(name)
        self._check_usable()
        config = config or ManagedLedgerConfig()
        self._services.tier.tiers.resolved(config.offload)
        return config

    def _check_usable(self) -> None:
        if self._is_closed or not self._is_open:
            raise AlreadyClosed("the store is not open")
        self._check_not_fenced()

    def _check_not_fenced(self) -> None:
        if self._committer.fatal is not None:
            raise Fenced(str(self._committer.fatal))

    def _stopped(self, error: LedgerError) -> None:
        self._ownership.fence_all()
        self.on_fatal(error)

    async def _close_engine(self) -> None:
        try:
            await self._services.pool.run(self._engine.close)
        except Exception as error:
            # Everything acknowledged is in the log; the next start replays it.
            logger.exception("closing the engine failed")
            if not self.is_fenced:
                raise from_engine(error) from error


async def _fence_previous_store(engine: StorageEngine) -> None:
    """Fence the store that has the engine open, if there is one, and wait for its commits."""
    if store := _stores.get(id(engine)):
        await store._committer.detach()


def abandon_engine(engine: StorageEngine) -> None:
    """Fence the store that has the engine open, if there is one; blocks until its thread ends."""
    if store := _stores.get(id(engine)):
        store._committer.abandon()


def _check_name(name: str) -> None:
    if not name:
        raise InvalidArgument(f"a managed ledger needs a name, got {name!r}")


def _ignore_fatal(error: LedgerError) -> None:
    """Stand for `on_fatal` until the program sets it; a library must not end the process."""
