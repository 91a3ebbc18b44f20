"""GroupFunctions: applies the filters and converters that groups name, off the event loop. A shell.

Rule: functions run in processes of the compute pool, one process for groups with the same
functions, and at most as many processes as the settings allow. A call has a time limit: one that
exceeds it, or ends its process, costs that process; then its elements are tried one by one, and the
one that does it again is reported as failed and left out. A poll that is cancelled, or cannot wait,
finds the result with the next poll.
Must not know: rows, owners, how elements are read.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, NamedTuple, TypeVar

from kledger.named_topics.errors import FunctionsUnavailable, WrongArgument
from kledger.named_topics.function_run import (
    FunctionLimits,
    FunctionNames,
    FunctionOutput,
    FunctionRun,
    FunctionsNotLoaded,
    apply_functions,
    find_next_offset,
)
from kledger.named_topics.model import ChannelElements, ElementFailure
from kledger.named_topics.records import GroupKey
from kledger.runtime.blocking import PoolClosed
from kledger.runtime.compute_pool import ComputePool
from kledger.runtime.compute_process import ComputeProcessDied
from kledger.runtime.compute_session import ComputeSession
from kledger.runtime.keyed_locks import KeyedLocks
from kledger.runtime.signal import Signal
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import TimerHandle, Timers

Result = TypeVar("Result")

logger = logging.getLogger(__name__)

NO_FUNCTIONS = FunctionNames("", "")
TIMEOUT_MS = 5_000
"""The default time limit of a call."""
PROCESSES_MAX = 4
"""The default number of processes."""
LOAD_TIMEOUT_MS = 30_000
"""The time limit of a process to start and to import the functions."""
IDLE_MS = 120_000
"""A process without calls is ended after this time."""
ELEMENTS_MAX = 1 << 30
"""No limit: bytes and time have one."""
ONE_BY_ONE_MAX = 64
"""Elements that are tried one by one for one poll."""


class FunctionSettings(NamedTuple):
    """What the server allows.

    Attributes:
        timeout_ms: how long one call may take.
        processes_max: how many processes there are at most.
    """

    timeout_ms: int = TIMEOUT_MS
    processes_max: int = PROCESSES_MAX


class GroupChannel(NamedTuple):
    """A channel of a group."""

    group: GroupKey
    channel: int


class GroupFunctions:
    """One per server."""

    def __init__(
        self,
        pool: ComputePool,
        *,
        timers: Timers,
        supervisor: Supervisor,
        settings: FunctionSettings = FunctionSettings(),  # noqa: B008 - a value
    ) -> None:
        """Start nothing yet.

        Args:
            pool: makes the processes.
            timers: of time limits.
            supervisor: of the calls.
            settings: limits.
        """
        self._pool = pool
        self._timers = timers
        self._supervisor = supervisor
        self._settings = settings
        self._processes: dict[FunctionNames, _FunctionProcess] = {}
        """Those that run, the one that was used last at the end."""
        self._process_count = 0
        """Of those and the ones that are starting or ending."""
        self._freed = Signal()
        """Notified when a process has ended, or has nothing to do."""
        self._in_use: KeyedLocks[FunctionNames] = KeyedLocks()
        self._applications: dict[GroupChannel, _Application] = {}
        self._one_by_one_until: dict[GroupChannel, int] = {}
        """The offsets before which elements are tried one by one."""
        self._is_closed = False

    async def load(self, names: FunctionNames) -> None:
        """Import functions, if they are not yet.

        Raises:
            WrongArgument: one cannot be imported, or is none.
            FunctionsUnavailable: it is not known.
        """
        if names != NO_FUNCTIONS:
            await self._supervisor.finish(self._load(names), f"load {names}")

    async def apply(
        self, channel: GroupChannel, names: FunctionNames, found: ChannelElements, *, bytes_max: int
    ) -> ChannelElements:
        """Return what functions leave of some elements, or of the first of them.

        Args:
            channel: whose elements they are.
            names: of the functions.
            found: the elements.
            bytes_max: about how many bytes are returned at most.

        Returns:
            Nothing, for now, if it takes too long; the next call with the same elements goes on.

        Raises:
            WrongArgument, FunctionsUnavailable: as `load`.
        """
        if names == NO_FUNCTIONS or not found.batches:
            return found
        application, asked = self._applications.get(channel), (names, found.start_offset)
        if application is None or application.asked != asked:
            if application is not None and not application.has_begun:
                application.task.cancel()
            application = self._applications[channel] = _Application(asked)
            work = self._outcome(application, channel, names, found, bytes_max)
            application.task = self._supervisor.spawn(work, f"functions of {channel.group.name}")
        if not await self._has_ended(application.task):
            return found._replace(next_offset=found.start_offset, batches=())
        if self._applications.get(channel) is application:
            del self._applications[channel]
        outcome = application.task.result()
        if isinstance(outcome, Exception):
            raise outcome
        return found._replace(**outcome._asdict())

    def forget(self, group: GroupKey) -> None:
        """Drop what is known of a group: it has no members."""
        for channel in [each for each in self._applications if each.group == group]:
            application = self._applications.pop(channel)
            if not application.has_begun:
                application.task.cancel()
        for channel in [each for each in self._one_by_one_until if each.group == group]:
            del self._one_by_one_until[channel]

    async def close(self) -> None:
        """End all processes; calls under way fail. May be repeated."""
        self._is_closed = True
        while self._processes:
            await self._end(next(iter(self._processes)))

    async def _has_ended(self, task: "asyncio.Task[Any]") -> bool:
        """Wait for a task, for as long as a call may take."""
        if task.done():
            return not task.cancelled()
        changed = Signal()
        timer = self._timers.call_after(self._settings.timeout_ms, changed.notify)
        notify = lambda _: changed.notify()  # noqa: E731 - it is removed again
        task.add_done_callback(notify)
        try:
            await changed.wait_beyond(0)
        finally:
            timer.cancel()
            task.remove_done_callback(notify)
        return task.done() and not task.cancelled()

    # Calls

    async def _outcome(
        self,
        application: "_Application",
        channel: GroupChannel,
        names: FunctionNames,
        found: ChannelElements,
        bytes_max: int,
    ) -> FunctionOutput | Exception:
        async with self._in_use.holding(names):
            application.has_begun = True
            try:
                return await self._apply(channel, names, found, bytes_max)
            except Exception as error:  # noqa: BLE001 - the poll raises it
                return error
            finally:
                self._freed.notify()

    async def _load(self, names: FunctionNames) -> None:
        async with self._in_use.holding(names):
            try:
                await self._process(names)
            finally:
                self._freed.notify()

    async def _apply(
        self, channel: GroupChannel, names: FunctionNames, found: ChannelElements, bytes_max: int
    ) -> FunctionOutput:
        start = found.start_offset
        if start >= self._one_by_one_until.get(channel, 0):
            self._one_by_one_until.pop(channel, None)
            limits = FunctionLimits(start, ELEMENTS_MAX, bytes_max, self._time_ms_max)
            try:
                return await self._call(names, apply_functions, found.batches, limits)
            except _ProcessLost as error:
                logger.warning("%s: %s; elements are tried one by one", names, error)
            self._one_by_one_until[channel] = found.next_offset
        return await self._apply_one_by_one(channel, names, found, bytes_max)

    async def _apply_one_by_one(
        self, channel: GroupChannel, names: FunctionNames, found: ChannelElements, bytes_max: int
    ) -> FunctionOutput:
        """Find the element that ends or blocks the process, or get past all that might."""
        output = FunctionOutput(found.start_offset, (), ())
        try:
            offset = await self._call(names, find_next_offset, found.batches, output.next_offset)
        except _ProcessLost as error:
            raise FunctionsUnavailable(str(error)) from None
        for _ in range(ONE_BY_ONE_MAX):
            if offset is None or offset >= found.next_offset:
                return output._replace(next_offset=found.next_offset)
            limits = FunctionLimits(offset, 1, bytes_max, self._time_ms_max)
            try:
                one = await self._call(names, apply_functions, found.batches, limits)
            except _ProcessLost as error:
                logger.warning("%s: %s, for the element at offset %s", names, error, offset)
                failure = ElementFailure(offset, f"{_shown(names)} failed: {error}")
                one = FunctionOutput(offset + 1, (), (failure,))
                del self._one_by_one_until[channel]
            output = FunctionOutput(
                one.next_offset, output.batches + one.batches, output.failures + one.failures
            )
            offset = one.next_offset
            if channel not in self._one_by_one_until:
                break
        return output

    @property
    def _time_ms_max(self) -> int:
        """After how long a call ends by itself, so that slow functions do not exceed the limit."""
        return max(1, self._settings.timeout_ms // 5)

    async def _call(
        self,
        names: FunctionNames,
        call: Callable[..., Result],
        batches: Sequence[bytes],
        argument: FunctionLimits | int,
    ) -> Result:
        """Make one call in the process of some functions. Raises _ProcessLost."""
        process = await self._process(names)
        limit_ms = self._settings.timeout_ms
        try:
            return await self._timed(process.session.call(call, batches, argument), limit_ms)
        except TimeoutError:
            await self._end(names)
            raise _ProcessLost(f"it has not returned within {limit_ms} ms") from None
        except ComputeProcessDied as error:
            await self._end(names)
            raise _ProcessLost(str(error)) from None
        except PoolClosed as error:
            raise FunctionsUnavailable(str(error)) from None

    async def _timed(self, work: Coroutine[Any, Any, Result], limit_ms: int) -> Result:
        """Return or raise what some work does. Raises TimeoutError: it was cancelled."""
        task = self._supervisor.spawn(_caught(work), "functions of a subscriber group")
        timer = self._timers.call_after(limit_ms, partial(_cancel, task))
        try:
            await asyncio.wait([task])
        finally:
            timer.cancel()
            task.cancel()
        if task.cancelled():
            raise TimeoutError
        outcome = task.result()
        if isinstance(outcome, _Raised):
            raise outcome.error
        return outcome

    # Processes

    async def _process(self, names: FunctionNames) -> "_FunctionProcess":
        """Return the process of some functions, which are in use; start it if there is none."""
        if self._is_closed:
            raise FunctionsUnavailable("the server is stopping")
        process = self._processes.pop(names, None)
        if process is None:
            await self._make_room()
            try:
                process = await self._start(names)
            except BaseException:
                self._count_ended()
                raise
        self._processes[names] = process
        if process.idle is not None:
            process.idle.cancel()
        process.idle = self._timers.call_after(IDLE_MS, partial(self._on_idle, names))
        return process

    async def _make_room(self) -> None:
        """Count one more process; end one that has nothing to do if there are too many."""
        while self._process_count >= self._settings.processes_max:
            version = self._freed.version
            idle = next((each for each in self._processes if each not in self._in_use), None)
            if idle is None:
                await self._freed.wait_beyond(version)
            else:
                await self._end(idle)
        self._process_count += 1

    async def _start(self, names: FunctionNames) -> "_FunctionProcess":
        holding, limit_ms = AsyncExitStack(), max(LOAD_TIMEOUT_MS, self._settings.timeout_ms)
        entering = holding.enter_async_context(self._pool.session(FunctionRun, names))
        try:
            return _FunctionProcess(await self._timed(entering, limit_ms), holding)
        except FunctionsNotLoaded as error:
            raise WrongArgument(str(error)) from None
        except TimeoutError:
            message = f"{_shown(names)} cannot be loaded within {limit_ms} ms"
            raise WrongArgument(message) from None
        except ComputeProcessDied as error:
            raise WrongArgument(f"{_shown(names)} cannot be loaded: {error}") from None
        except PoolClosed as error:
            raise FunctionsUnavailable(str(error)) from None

    def _on_idle(self, names: FunctionNames) -> None:
        if names not in self._in_use:
            process = self._processes.pop(names)
            self._supervisor.spawn(self._close(process), f"end of the process of {names}")

    async def _end(self, names: FunctionNames) -> None:
        process = self._processes.pop(names, None)
        if process is not None:
            await self._close(process)

    async def _close(self, process: "_FunctionProcess") -> None:
        if process.idle is not None:
            process.idle.cancel()
        try:
            await process.holding.aclose()
        finally:
            self._count_ended()

    def _count_ended(self) -> None:
        self._process_count -= 1
        self._freed.notify()


class _FunctionProcess:
    """The session of some functions.

    Attributes:
        session: with a `FunctionRun`.
        holding: ends the session.
        idle: the timer that ends it if it has nothing to do.
    """

    __slots__ = ("holding", "idle", "session")

    def __init__(self, session: ComputeSession[FunctionRun], holding: AsyncExitStack) -> None:
        self.session = session
        self.holding = holding
        self.idle: TimerHandle | None = None


class _Application:
    """The functions of a group on their way through the elements of a channel.

    Attributes:
        asked: the functions, and the offset of the first element.
        task: returns the outcome.
        has_begun: whether the process is at it; before that, it can be cancelled at no cost.
    """

    __slots__ = ("asked", "has_begun", "task")

    task: "asyncio.Task[FunctionOutput | Exception]"

    def __init__(self, asked: tuple[FunctionNames, int]) -> None:
        self.asked = asked
        self.has_begun = False


class _ProcessLost(Exception):
    """A call has ended its process, or was ended with it."""


class _Raised(NamedTuple):
    """Instead of a result: the error that there was."""

    error: Exception


async def _caught(work: Coroutine[Any, Any, Result]) -> Result | _Raised:
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - the caller raises it
        return _Raised(error)


def _cancel(task: "asyncio.Task[Any]") -> None:
    task.cancel()


def _shown(names: FunctionNames) -> str:
    parts = {"filter": names.filter_name, "converter": names.converter_name}
    return " and ".join(f"{what} {name!r}" for what, name in parts.items() if name)
