"""ComputeSession: calls that share a state, off the event loop.

Rule: the state lives in the session's process, where the calls run, and is never sent back. One
thread waits for the process while another copies the data of the next call; both belong to the
session, which may last for minutes and takes no thread of a pool. Cancelling a caller ends the
process, because the result is of no use any more.
Must not know: what is computed.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from kledger.runtime.blocking import Arguments, BlockingPool, BlockingRunner, PoolClosed, Result
from kledger.runtime.compute_process import Buffer, ComputeProcesses, Pause, StatefulProcess
from kledger.runtime.compute_worker import AREAS

State = TypeVar("State")
State_co = TypeVar("State_co", covariant=True)


class ComputeSession(Protocol[State_co]):
    """A state, and the calls that get it one after the other."""

    async def call(
        self,
        call: Callable[[State_co, memoryview, Sequence[int], *Arguments, Pause], Result],
        buffers: Sequence[Buffer],
        *arguments: *Arguments,
    ) -> Result:
        """Make one call; return or raise what it does.

        Args:
            call: a function of a module. Its arguments are the state, all buffers one after the
                other, the size of each, `arguments`, and the pause that it makes every few tenths
                of a millisecond. What it returns as `pickle.PickleBuffer` is not pickled, and
                may change with the second call after it.
            buffers: the data, which must not change meanwhile.
            arguments: small ones, which are pickled.

        Raises:
            PoolClosed: the pool was closed.
            ComputeProcessDied: the process has ended, and the state with it.
            Exception: what the call raises; the state is as the call left it.
        """
        ...

    async def submit(
        self,
        call: Callable[[State_co, memoryview, Sequence[int], *Arguments, Pause], Result],
        buffers: Sequence[Buffer],
        *arguments: *Arguments,
    ) -> "asyncio.Future[Result]":
        """Begin a call; return what ends with it, as soon as the buffers are not needed any more.

        Calls are made in the order in which they were begun. At most two are under way, one of
        which waits for the other: further ones begin later. The arguments are those of `call`.

        Raises:
            PoolClosed, ComputeProcessDied: see `call`; the future raises what `call` does.
        """
        ...

    async def close(self) -> None:
        """End the process. May be repeated."""
        ...


class ProcessSession(Generic[State]):
    """A session in a process."""

    def __init__(self, processes: ComputeProcesses, memory_bytes_max: int) -> None:
        """Start nothing yet. Args: memory_bytes_max: limit of the private memory."""
        self._process: StatefulProcess = processes.stateful(
            memory_bytes_max, asyncio.get_running_loop()
        )
        self._thread = BlockingPool(1)
        self._copying = BlockingPool(1)
        self._beginning = asyncio.Lock()
        self._areas: asyncio.Queue[int] = asyncio.Queue()
        for area in range(AREAS):
            self._areas.put_nowait(area)

    async def start(
        self, make_state: Callable[[*Arguments], State], *arguments: *Arguments
    ) -> None:
        """Start the process and make the state. Raises: see `StatefulProcess.start`."""
        try:
            await self._thread.run(self._process.start, make_state, arguments)
        except BaseException:
            await self.close()
            raise

    async def call(
        self,
        call: Callable[[State, memoryview, Sequence[int], *Arguments, Pause], Result],
        buffers: Sequence[Buffer],
        *arguments: *Arguments,
    ) -> Result:
        """See `ComputeSession.call`."""
        try:
            return await (await self.submit(call, buffers, *arguments))
        except asyncio.CancelledError:
            self._process.kill()
            raise

    async def submit(
        self,
        call: Callable[[State, memoryview, Sequence[int], *Arguments, Pause], Result],
        buffers: Sequence[Buffer],
        *arguments: *Arguments,
    ) -> "asyncio.Future[Result]":
        """See `ComputeSession.submit`."""
        async with self._beginning:
            area = await self._areas.get()
            try:
                data = await self._copying.run(self._process.load, area, buffers)
            except BaseException:
                self._areas.put_nowait(area)
                raise
            made = asyncio.ensure_future(
                self._thread.run(self._process.call, call, data, arguments)
            )
        made.add_done_callback(partial(self._ended, area))
        return made

    def _ended(self, area: int, made: "asyncio.Future[Result]") -> None:
        self._areas.put_nowait(area)
        _take_error(made)

    async def close(self) -> None:
        """See `ComputeSession.close`."""
        self._process.kill()
        try:
            await asyncio.shield(self._thread.run(self._process.end))
        except PoolClosed:
            return
        finally:
            self._thread.close()
            self._copying.close()


class ThreadSession(Generic[State]):
    """A session in this process, for systems without others, and for simulations."""

    def __init__(self, pool: BlockingRunner, state: State) -> None:
        """Args: pool: makes the calls; state: what it made before."""
        self._pool = pool
        self._state: State | None = state
        self._is_ended = False

    async def call(
        self,
        call: Callable[[State, memoryview, Sequence[int], *Arguments, Pause], Result],
        buffers: Sequence[Buffer],
        *arguments: *Arguments,
    ) -> Result:
        """See `ComputeSession.call`."""
        try:
            return await self._pool.run(self._call, call, buffers, arguments)
        except asyncio.CancelledError:
            self._is_ended = True
            raise

    async def submit(
        self,
        call: Callable[[State, memoryview, Sequence[int], *Arguments, Pause], Result],
        buffers: Sequence[Buffer],
        *arguments: *Arguments,
    ) -> "asyncio.Future[Result]":
        """See `ComputeSession.submit`; nothing is gained by it."""
        made: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        try:
            made.set_result(await self.call(call, buffers, *arguments))
        except Exception as error:  # noqa: BLE001 - of the call
            made.set_exception(error)
            _take_error(made)
        return made

    async def close(self) -> None:
        """See `ComputeSession.close`."""
        self._is_ended = True
        self._state = None

    def _call(
        self,
        call: Callable[[State, memoryview, Sequence[int], *Arguments, Pause], Result],
        buffers: Sequence[Buffer],
        arguments: tuple[*Arguments],
    ) -> Result:
        self._pause()
        assert self._state is not None, "it has ended otherwise"
        data = memoryview(b"".join(buffers))
        return call(self._state, data, [len(each) for each in buffers], *arguments, self._pause)

    def _pause(self) -> None:
        if self._is_ended:
            raise PoolClosed("the session has ended")
        self._pool.yield_gil()


def _take_error(made: "asyncio.Future[Result]") -> None:
    """Retrieve the error, so that asyncio does not log it after another call has failed."""
    if not made.cancelled():
        made.exception()
