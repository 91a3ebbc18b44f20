"""AcknowledgementGroup: sends the acknowledgements of one link, many in one request.

Rule: one request is in flight at a time; acknowledgements that arrive meanwhile form the next
group. A call is settled when its group is confirmed. If the server refuses a group, its calls are
sent one by one, so that only the wrong ones fail.
Must not know: messages, reconnecting.
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
    """The acknowledgements of one call, and the future that its caller awaits."""

    acknowledgements: Sequence[Acknowledgement]
    is_upto: bool
    outcome: asyncio.Future[None]


class AcknowledgementGroup:
    """The acknowledgements of one link, sent in groups."""

    def __init__(self, link: ConsumerLink, supervisor: Supervisor) -> None:
        self._link = link
        self._supervisor = supervisor
        self._state = AcknowledgementsState()
        self._pending: list[PendingAcknowledgement] = []
        self._task: asyncio.Task[None] | None = None
        self._is_reset = False

    def acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> "asyncio.Future[None]":
        """Acknowledge records, all or none; return a future that ends when that is durable.

        Cancelling the future does not undo the acknowledgement. It fails with:

            Unavailable: the connection was lost; the records may be acknowledged or not.
            InvalidArgument: there is no such record.
        """
        for each in acknowledgements:
            self._state.add(each)
        return self._settled(acknowledgements, is_upto=False)

    def acknowledge_upto(self, acknowledgement: Acknowledgement) -> "asyncio.Future[None]":
        """Acknowledge these records and all before them, likewise."""
        self._state.add_upto(acknowledgement)
        return self._settled((acknowledgement,), is_upto=True)

    def acknowledge_upto_nowait(self, acknowledgement: Acknowledgement) -> None:
        """Acknowledge these records and all before them without waiting for the answer."""
        self._state.add_upto(acknowledgement)
        self._send_soon()

    def note_reset(self) -> None:
        """Ignore errors from now on: after a reset, pending acknowledgements have no effect."""
        self._is_reset = True

    async def finish(self) -> None:
        """Return when all pending acknowledgements are answered."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def _settled(
        self, acknowledgements: Sequence[Acknowledgement], *, is_upto: bool
    ) -> "asyncio.Future[None]":
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append(PendingAcknowledgement(acknowledgements, is_upto, outcome))
        if self._task is None:
            self._send_soon()
        return outcome

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
                self._link.acknowledge_upto(each.acknowledgements[0])
                if each.is_upto
                else self._link.acknowledge(each.acknowledgements)
            )
            _settle([each], await self._error_of(acknowledged))

    async def _error_of(self, work: Awaitable[None]) -> KledgerError | None:
        """Wait for a request; return the server's error, or None."""
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
