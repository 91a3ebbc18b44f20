"""Sends the acknowledgements of one consumer's link, many in one request.

Rule: one request is under way at a time; what comes meanwhile goes with the next. Whoever waits is
told when its group is confirmed, not before.
Must not know: messages, and what becomes of the link.
"""

import asyncio

from native.acknowledgements_state import AcknowledgementsState
from native.errors import AlreadyClosed, KledgerError
from native.seam import ConsumerLink
from runtime.tasks import Supervisor
from subscriptions.model import Acknowledgement


class AcknowledgementGroup:
    """Grows while the one before it is under way."""

    def __init__(self, link: ConsumerLink, supervisor: Supervisor) -> None:
        self._link = link
        self._supervisor = supervisor
        self._state = AcknowledgementsState()
        self._waiters: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None
        self._is_void = False

    async def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        """Return when the records are acknowledged durably.

        A caller that is cancelled takes nothing back.

        Raises:
            Unavailable: the connection was lost; nobody knows whether it was done.
        """
        self._state.add(acknowledgement)
        await self._confirmed()

    async def acknowledge_upto(self, acknowledgement: Acknowledgement) -> None:
        """The same for everything up to there."""
        self._state.add_upto(acknowledgement)
        await self._confirmed()

    def acknowledge_upto_nowait(self, acknowledgement: Acknowledgement) -> None:
        """The same for one who needs no answer, because nothing is lost without it."""
        self._state.add_upto(acknowledgement)
        self._send_soon()

    def make_void(self) -> None:
        """The link was ended by a reset: what is not confirmed yet means nothing any more."""
        self._is_void = True

    async def finish(self) -> None:
        """Return when everything that was noted has its answer."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _confirmed(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._send_soon()
        await waiter

    def _send_soon(self) -> None:
        if self._task is None:
            self._task = self._supervisor.spawn(self._send_all(), "acknowledgements")

    async def _send_all(self) -> None:
        waiters: list[asyncio.Future[None]] = []
        try:
            while not self._state.is_empty:
                waiters, self._waiters = self._waiters, []
                _settle(waiters, await self._send())
        except BaseException:
            closed = AlreadyClosed("the consumer was closed before the server answered")
            _settle([*waiters, *self._waiters], closed)
            raise
        finally:
            self._task = None

    async def _send(self) -> KledgerError | None:
        upto, single = self._state.take()
        try:
            if upto is not None:
                await self._link.acknowledge_upto(upto)
            if single:
                await self._link.acknowledge(single)
        except KledgerError as error:
            return None if self._is_void else error
        return None


def _settle(waiters: list[asyncio.Future[None]], error: KledgerError | None) -> None:
    for waiter in waiters:
        if waiter.done():
            continue
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)
