"""Sends the acknowledgements of one consumer's link, many in one request.

Rule: one request is under way at a time; what comes meanwhile goes with the next. Whoever waits is
told when its group is confirmed, not before. A group that the server refuses is sent again, one by
one: the fault of one of them is not that of all.
Must not know: messages, and what becomes of the link.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import NamedTuple

from kledger.native.broker import ConsumerLink
from kledger.native.client.acknowledgements_state import AcknowledgementsState
from kledger.native.errors import AlreadyClosed, InvalidArgument, KledgerError
from kledger.runtime.tasks import Supervisor
from kledger.subscriptions.model import Acknowledgement


class PendingAcknowledgement(NamedTuple):
    """What somebody acknowledges, and where it hears of it."""

    acknowledgement: Acknowledgement
    is_upto: bool
    outcome: asyncio.Future[None]


class AcknowledgementGroup:
    """Grows while the one before it is under way."""

    def __init__(self, link: ConsumerLink, supervisor: Supervisor) -> None:
        self._link = link
        self._supervisor = supervisor
        self._state = AcknowledgementsState()
        self._pending: list[PendingAcknowledgement] = []
        self._task: asyncio.Task[None] | None = None
        self._is_reset = False

    async def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        """Return when the records are acknowledged durably.

        A caller that is cancelled takes nothing back.

        Raises:
            Unavailable: the connection was lost; nobody knows whether it was done.
            InvalidArgument: there is no such record.
        """
        self._state.add(acknowledgement)
        await self._wait_confirmed(acknowledgement, is_upto=False)

    async def acknowledge_upto(self, acknowledgement: Acknowledgement) -> None:
        """The same for everything up to there."""
        self._state.add_upto(acknowledgement)
        await self._wait_confirmed(acknowledgement, is_upto=True)

    def acknowledge_upto_nowait(self, acknowledgement: Acknowledgement) -> None:
        """The same for one who needs no answer, because nothing is lost without it."""
        self._state.add_upto(acknowledgement)
        self._send_soon()

    def note_reset(self) -> None:
        """The link was ended by a reset: what is not confirmed yet means nothing any more."""
        self._is_reset = True

    async def finish(self) -> None:
        """Return when everything that was noted has its answer."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _wait_confirmed(self, acknowledgement: Acknowledgement, *, is_upto: bool) -> None:
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append(PendingAcknowledgement(acknowledgement, is_upto, outcome))
        self._send_soon()
        await outcome

    def _send_soon(self) -> None:
        if self._task is None:
            self._task = self._supervisor.spawn(self._send_all(), "acknowledgements")

    async def _send_all(self) -> None:
        group: list[PendingAcknowledgement] = []
        try:
            while not self._state.is_empty:
                group, self._pending = self._pending, []
                error = await self._error_of(self._send())
                if isinstance(error, InvalidArgument) and len(group) > 1:
                    await self._send_singly(group)
                else:
                    _settle(group, error)
        except BaseException:
            closed = AlreadyClosed("the consumer was closed before the server answered")
            _settle([*group, *self._pending], closed)
            raise
        finally:
            self._task = None

    async def _send(self) -> None:
        upto, single = self._state.take()
        if upto is not None:
            await self._link.acknowledge_upto(upto)
        if single:
            await self._link.acknowledge(single)

    async def _send_singly(self, group: Sequence[PendingAcknowledgement]) -> None:
        for each in group:
            acknowledged = (
                self._link.acknowledge_upto(each.acknowledgement)
                if each.is_upto
                else self._link.acknowledge([each.acknowledgement])
            )
            _settle([each], await self._error_of(acknowledged))

    async def _error_of(self, work: Awaitable[None]) -> KledgerError | None:
        """Return what the server has against it."""
        try:
            await work
        except KledgerError as error:
            return None if self._is_reset else error
        return None


def _settle(group: Sequence[PendingAcknowledgement], error: KledgerError | None) -> None:
    for each in group:
        if each.outcome.done():
            continue
        if error is None:
            each.outcome.set_result(None)
        else:
            each.outcome.set_exception(error)
