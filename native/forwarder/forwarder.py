"""Forwarder: copies one partition to another one, at least once, in order.

Rule: `ForwarderState` decides; this shell performs the effects and reports their outcomes. It
compares the revision before each effect, so a batch that was read before a reset of the source is
not sent after it. The source is rewound only when no send and no read is in flight.
Must not know: the kinds of source and target.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeAlias, assert_never

from kledger.batches.errors import BatchError
from kledger.ledger import (
    Buffer,
    LedgerError,
    NoMoreEntries,
    ResetInProgress,
    StorageFailed,
    TooManyRequests,
)
from kledger.native.errors import (
    InvalidArgument,
    KledgerError,
    SubscriptionFenced,
    Timeout,
    Unavailable,
)
from kledger.native.forwarder.batch_copy import copy_batch
from kledger.native.forwarder.forwarder_state import (
    Effect,
    Failure,
    ForwarderState,
    ForwardLimits,
    MarkDelete,
    Phase,
    Prepare,
    Read,
    Rewind,
    Send,
    SourceEntry,
)
from kledger.runtime.clock import Clock
from kledger.runtime.logs import RateLimitedLog
from kledger.runtime.signal import Signal
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import TimerHandle, Timers

logger = logging.getLogger(__name__)

WARNINGS_PER_SECOND = 1
RETRIED = (
    Unavailable,
    SubscriptionFenced,
    Timeout,
    ResetInProgress,
    StorageFailed,
    TooManyRequests,
)
"""Errors that are retried; every other error is final."""


class ForwardSource(Protocol):
    """A durable position in one partition, which outlives the forwarder."""

    def is_outdated(self, number: int) -> bool:
        """Return whether the position was reset after this revision."""
        ...

    async def rewind(self) -> int:
        """Continue at the first unacknowledged entry; return the new revision."""
        ...

    async def read_or_wait(self, count: int, bytes_max: int) -> list[SourceEntry]:
        """Return the next entries, in order; cancellable. Raises NoMoreEntries at the end."""
        ...

    async def mark_delete(self, entry: SourceEntry, number: int) -> None:
        """Acknowledge everything up to an entry, durably, unless the revision is outdated."""
        ...

    async def close(self) -> None:
        """Close; may be repeated."""
        ...


class ForwardTarget(Protocol):
    """Appends batches to a log."""

    @property
    def sends_in_flight_max(self) -> int:
        """How many sends may overlap now."""
        ...

    async def start(self) -> None:
        """Accept batches from now on; refuse those that were sent before."""
        ...

    async def send(self, batch: Buffer) -> None:
        """Append a batch; return when it is durable.

        Overlapping calls are appended in the order in which they began. After a failure all
        further calls fail until the next `start`.
        """
        ...

    async def close(self) -> None:
        """Close; may be repeated."""
        ...


PrepareEntry: TypeAlias = Callable[[SourceEntry], Awaitable[Buffer | None]]
"""Returns the batch to send for an entry, or None to send nothing. Later entries wait for it. It is
retried after any error but BatchError, which is final."""


async def prepare_unchanged(entry: SourceEntry) -> Buffer | None:
    """Return the unacknowledged records as they are."""
    return copy_batch(entry)


class Forwarder:
    """Forwards one partition while `run` runs."""

    def __init__(
        self,
        name: str,
        source: ForwardSource,
        target: ForwardTarget,
        *,
        clock: Clock,
        prepare: PrepareEntry = prepare_unchanged,
        limits: ForwardLimits | None = None,
    ) -> None:
        """Args: name: of the partition, for the log."""
        self.name = name
        self.state = ForwarderState(limits or ForwardLimits())
        self.progress = Signal()
        self._source = source
        self._target = target
        self._prepare = prepare
        self._clock = clock
        self._supervisor = Supervisor(self._on_crash)
        self._timers = Timers(clock, self._supervisor)
        self._timer: TimerHandle | None = None
        self._crash: BaseException | None = None
        self._reading: asyncio.Task[None] | None = None
        self._preparing: set[asyncio.Task[None]] = set()
        self._log = RateLimitedLog(logger, WARNINGS_PER_SECOND, clock)

    async def run(self) -> None:
        """Forward until `close`, the end of the source, or a final error.

        Raises:
            KledgerError, LedgerError: a final error, with a note of what failed.
        """
        state = self.state
        try:
            while True:
                version = self.progress.version
                self._check_revision()
                sends_max = self._target.sends_in_flight_max
                for effect in state.decide(
                    self._clock.monotonic_ms(), sends_in_flight_max=sends_max
                ):
                    self._begin(effect)
                if self._crash is not None:
                    raise self._crash
                if state.phase is Phase.FINISHED:
                    break
                if state.phase is not Phase.RUNNING:
                    for task in self._preparing:
                        task.cancel()
                if state.phase is Phase.WAITING:
                    self._decide_again_at(state.retry_at_ms)
                await self.progress.wait_beyond(version)
        finally:
            await self._close_ends()
        if state.error is not None:
            raise state.error

    def close(self) -> None:
        """Let `run` return when all sent batches are acknowledged."""
        self.state.close()
        self.progress.notify()

    # Effects

    def _check_revision(self) -> None:
        state = self.state
        if state.number >= 0 and self._source.is_outdated(state.number):
            state.outdated()

    def _begin(self, effect: Effect) -> None:
        match effect:
            case Rewind():
                self._spawn(self._rewind(), "rewind")
            case Read():
                self._reading = self._spawn(self._read(effect), "read")
            case Prepare():
                task = self._spawn(self._prepare_entry(effect), "prepare")
                self._preparing.add(task)
                task.add_done_callback(self._preparing.discard)
            case Send():
                self._spawn(self._send(effect), "send")
            case MarkDelete():
                self._spawn(self._mark_delete(effect), "mark-delete")
            case _:
                assert_never(effect)

    async def _rewind(self) -> None:
        try:
            await self._stop_reading()
            await self._target.start()
            number = await self._source.rewind()
        except (KledgerError, LedgerError) as error:
            self.state.rewind_failed(self._failure("rewind", error))
        else:
            self.state.rewound(number)
        self.progress.notify()

    async def _read(self, effect: Read) -> None:
        number = effect.number
        try:
            entries = await self._source.read_or_wait(effect.count, effect.bytes_max)
        except NoMoreEntries:
            self.state.ended(number)
        except (KledgerError, LedgerError) as error:
            if not self._source.is_outdated(number):
                self.state.read_failed(number, self._failure("read", error))
        else:
            if not self._source.is_outdated(number):
                self.state.read(number, entries)
        self.progress.notify()

    async def _prepare_entry(self, effect: Prepare) -> None:
        number, position = effect.number, effect.entry.position
        what = f"prepare {position}"
        try:
            batch = await self._prepare(effect.entry)
        except BatchError as error:
            failure = self._failure(what, InvalidArgument(str(error)))
            self.state.prepare_failed(number, position, failure)
        except Exception as error:  # noqa: BLE001 - the caller's function may raise anything
            self._warn(what, error)
            self.state.prepare_failed(number, position, Failure(error, is_final=False))
        else:
            self.state.prepared(number, position, batch)
        self.progress.notify()

    async def _send(self, effect: Send) -> None:
        number, position = effect.number, effect.position
        if self._source.is_outdated(number):
            self.state.send_dropped()
        else:
            try:
                await self._target.send(effect.batch)
            except KledgerError as error:
                self.state.send_failed(number, position, self._failure(f"send {position}", error))
            else:
                self.state.confirmed(number, position)
        self.progress.notify()

    async def _mark_delete(self, effect: MarkDelete) -> None:
        number, entry = effect.number, effect.entry
        try:
            await self._source.mark_delete(entry, number)
        except (KledgerError, LedgerError) as error:
            if not self._source.is_outdated(number):
                failure = self._failure(f"acknowledge {entry.position}", error)
                self.state.mark_failed(number, failure)
        else:
            if not self._source.is_outdated(number):
                self.state.marked(number, entry.position)
        self.progress.notify()

    def _failure(self, what: str, error: Exception) -> Failure:
        if isinstance(error, RETRIED):
            self._warn(what, error)
            return Failure(error, is_final=False)
        error.add_note(f"forwarding {self.name}: cannot {what}")
        return Failure(error, is_final=True)

    def _warn(self, what: str, error: Exception) -> None:
        self._log.warning("forwarding %s: cannot %s, will try again: %r", self.name, what, error)

    def _decide_again_at(self, deadline_ms: int) -> None:
        if self._timer is None or not self._timer.is_pending:
            self._timer = self._timers.call_at(deadline_ms, self.progress.notify)

    async def _stop_reading(self) -> None:
        """Cancel the running read, which would otherwise advance the rewound source."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.wait([reading])

    def _spawn(self, work: Coroutine[Any, Any, None], what: str) -> "asyncio.Task[None]":
        return self._supervisor.spawn(work, f"forward {self.name}: {what}")

    def _on_crash(self, error: BaseException) -> None:
        self._crash = error
        self.progress.notify()

    async def _close_ends(self) -> None:
        await self._supervisor.close()
        await self._source.close()
        await self._target.close()
