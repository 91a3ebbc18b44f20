"""The server's side of one stream that carries a link: what producers and consumers have in common.

Rule: the first message opens the link, before that nothing is there. What is asked runs beside each
other, begun in the order in which it came; it is in work until its answer is on its way, and when
too much is in work the stream is not read. A client that ends its side gets every answer first; one
that vanishes loses its link at once. When a link ends the client is told so in the last message,
and the stream ends when the client has ended its side: what was on its way from there would
otherwise look like a lost connection.
Must not know: what a link does, who listens.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import grpc.aio
from google.protobuf.message import DecodeError

from kledger.native.broker import Broker, ConsumerLink, ProducerLink
from kledger.native.errors import InvalidArgument, KledgerError
from kledger.native.proto import kledger_native_pb2 as pb
from kledger.native.rpc.errors import message_of
from kledger.native.rpc.outbox import Outbox
from kledger.native.rpc.protocol import MESSAGE_BYTES_GOAL, Context
from kledger.runtime.signal import Signal
from kledger.runtime.tasks import Supervisor

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Link = TypeVar("Link", ProducerLink, ConsumerLink)


class QueuedReceipt(NamedTuple):
    """What a client is told of something that it asked for.

    Attributes:
        receipt: the message.
        size: what the request counts as work.
    """

    receipt: Any
    size: int


class LinkStream(ABC, Generic[Link, Item]):
    """One stream; run() it once."""

    unit_kind, unit_name = "native link", "of a remote client"

    def __init__(
        self, broker: Broker, context: Context, supervisor: Supervisor, work_max: int
    ) -> None:
        """Args: work_max: the size of what is in work at which the stream is not read."""
        self._broker = broker
        self._context = context
        self._work_max = work_max
        self._supervisor = supervisor
        self._outbox: Outbox[Item | QueuedReceipt] = Outbox(MESSAGE_BYTES_GOAL)
        self._error: KledgerError | None = None
        self._is_ended = False
        self._work_count = 0
        self._work_size = 0
        self._work_done = Signal()

    @abstractmethod
    async def _open(self, request: Any) -> Link:
        """Open the link that the first message asks for."""

    @abstractmethod
    def _take(self, link: Link, request: Any) -> None:
        """Begin with what a message asks; plain, so that the order is kept."""

    @abstractmethod
    def _response(self, items: Sequence[Item | QueuedReceipt]) -> Any:
        """Put items into one message."""

    @abstractmethod
    def _last_response(self, end: pb.LinkEnd) -> Any:
        """Say that the link has ended."""

    def _written(self, link: Link, items: Sequence[Item | QueuedReceipt]) -> None:
        """Note that items are on their way."""
        for item in items:
            if isinstance(item, QueuedReceipt):
                self._work_count -= 1
                self._work_size -= item.size
        self._work_done.notify()

    async def run(self) -> None:
        """Serve the stream to its end.

        Raises:
            KledgerError: what the client is to be told in the end.
        """
        request = await self._context.read()
        if request is grpc.aio.EOF:
            return
        if not request.HasField("open"):
            raise InvalidArgument("the first message of a stream says what to open")
        link = await self._open(request)
        reading = self._supervisor.spawn(self._read(link, request), "native stream", unit=self)
        try:
            await self._context.write(self._response(()))
            while items := await self._outbox.take():
                await self._context.write(self._response(items))
                self._written(link, items)
            if self._is_ended:
                await self._supervisor.finish(link.close(), "native link")
                error = None if self._error is None else message_of(self._error)
                await self._context.write(self._last_response(pb.LinkEnd(error=error)))
                await asyncio.wait([reading])
        finally:
            reading.cancel()
            await self._supervisor.finish(link.close(), "native link")
        if self._error is not None:
            raise self._error

    def end(self, error: KledgerError | None) -> None:
        """End the link from this side, behind what is to be written already."""
        if not self._is_ended:
            self._is_ended = True
            self._error = error
            self._outbox.finish()
            self._work_done.notify()

    def close_after_fault(self, error: Exception) -> None:
        """End the link; the client hears why, and opens a new one."""
        self.end(KledgerError(f"the server failed: {error!r}"))

    def _start_request(self, work: Coroutine[Any, Any, Any], size: int) -> None:
        """Let something run that returns a receipt."""
        self._work_count += 1
        self._work_size += size
        self._supervisor.spawn(self._run_request(work, size), "native request", unit=self)

    async def _run_request(self, work: Coroutine[Any, Any, Any], size: int) -> None:
        self._outbox.put(QueuedReceipt(await work, size))

    async def _read(self, link: Link, request: Any) -> None:
        """Read to the end of the client's side, also when nothing of it is heard any more."""
        try:
            while request is not grpc.aio.EOF:
                self._handle(link, request)
                while self._work_size > self._work_max and not self._is_ended:
                    await self._work_done.wait()
                request = await self._context.read()
            while self._work_count and not self._is_ended:
                await self._work_done.wait()
            self._outbox.finish()
        except Exception as error:  # noqa: BLE001 - a mistake in one stream is no end of the server
            self.end(error_for_client(error))

    def _handle(self, link: Link, request: Any) -> None:
        if self._is_ended:
            return
        try:
            self._take(link, request)
        except KledgerError as error:
            self.end(error)


async def error_of_request(work: Awaitable[object]) -> pb.Error | None:
    """Wait for what was asked; return what went wrong."""
    try:
        await work
    except KledgerError as error:
        return message_of(error)
    except Exception as error:  # noqa: BLE001 - the client hears of it, the log tells more
        return message_of(error_for_client(error))
    return None


def error_for_client(error: Exception) -> KledgerError:
    """Return what a client is told that has met a mistake, and log it if it is ours."""
    if isinstance(error, DecodeError):
        return InvalidArgument("a message that cannot be read")
    logger.error("a native request failed", exc_info=error)
    return KledgerError(f"the server failed: {error!r}")
