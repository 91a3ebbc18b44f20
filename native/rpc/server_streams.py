"""ProducerStream and ConsumerStream: the server's side of the links of remote clients.

Rule: the first message opens the link. Requests run concurrently, begun in the order in which they
arrived; a request is pending until its answer is written, and with too many pending the stream is
not read. A client that ends its side gets every answer first; the link of a lost client is closed
at once. When a link ends, its last message says why, and the stream ends when the client has ended
its side: otherwise messages in flight from there would look like a lost connection.

A client over its quota waits: no further batch of a producer is taken, and a consumer gets no
permits, as long as its session says.

Permits are the flow control of a consumer; its delivery window bounds unwritten deliveries. These
carry the consumer epoch (Pulsar's PIP-84), and are dropped when a newer epoch begins. Batches are
bytes that are not decoded here.
Must not know: the listener, the implementation of the broker.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import grpc.aio
from google.protobuf.message import DecodeError

from kledger.ledger import Buffer, Position
from kledger.native.broker import PERMITS_PER_CALL_MAX, ConsumerLink, ProducerLink
from kledger.native.config import NativeConfig
from kledger.native.errors import InvalidArgument, KledgerError, NotAllowed
from kledger.native.proto import kledger_native_pb2 as pb
from kledger.native.rpc.delivery_window_state import DeliveryTotal, DeliveryWindow
from kledger.native.rpc.outbox import Outbox
from kledger.native.rpc.protocol import MESSAGE_BYTES_GOAL, Context, message_of
from kledger.native.rpc.sessions import BrokerSession
from kledger.native.rpc.values import (
    DELIVERIES,
    acknowledgement_from,
    consumer_from,
    delivery_head,
    position_to,
    record_mask_from,
)
from kledger.runtime.signal import Signal
from kledger.runtime.tasks import Supervisor
from kledger.subscriptions.model import Delivery

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Link = TypeVar("Link", ProducerLink, ConsumerLink)


class QueuedReceipt(NamedTuple):
    """The answer to a request.

    Attributes:
        receipt: the message.
        size: of the request, towards the limit of pending requests.
    """

    receipt: Any
    size: int


class LinkStream(ABC, Generic[Link, Item]):
    """One stream that carries a link; run() it once."""

    unit_kind, unit_name = "native link", "of a remote client"

    def __init__(
        self, session: BrokerSession, context: Context, supervisor: Supervisor, work_max: int
    ) -> None:
        """Args: work_max: the size of pending requests beyond which the stream is not read."""
        self._session = session
        self._broker = session.broker
        self._context = context
        self._work_max = work_max
        self._supervisor = supervisor
        self._outbox: Outbox[Item | QueuedReceipt] = Outbox(MESSAGE_BYTES_GOAL)
        self._error: KledgerError | None = None
        self._is_ended = False
        self._work_count = 0
        self._work_size = 0
        self._work_done = Signal()
        self._is_throttled = False
        """Whether the next message waits for the quota."""

    @abstractmethod
    async def _open(self, request: Any) -> Link:
        """Open the link that the first message describes."""

    @abstractmethod
    def _take(self, link: Link, request: Any) -> None:
        """Begin the requests of a message; not a coroutine, so that the order is kept."""

    @abstractmethod
    def _response(self, items: Sequence[Item | QueuedReceipt]) -> Any:
        """Put items into one message."""

    @abstractmethod
    def _last_response(self, end: pb.LinkEnd) -> Any:
        """Return the message that ends the link."""

    def _written(self, link: Link, items: Sequence[Item | QueuedReceipt]) -> None:
        """Note that items were written."""
        for item in items:
            if isinstance(item, QueuedReceipt):
                self._work_count -= 1
                self._work_size -= item.size
        self._work_done.notify()

    async def run(self) -> None:
        """Serve the stream to its end.

        Raises:
            KledgerError: the error that ends the call.
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
        """End the link after the queued items are written."""
        if not self._is_ended:
            self._is_ended = True
            self._error = error
            self._outbox.finish()
            self._work_done.notify()

    def close_after_fault(self, error: Exception) -> None:
        """End the link after a fault of the server; the client gets the error and reconnects."""
        self.end(KledgerError(f"the server failed: {error!r}"))

    def _start_request(self, work: Coroutine[Any, Any, Any], size: int) -> None:
        """Start a request whose coroutine returns its receipt."""
        self._work_count += 1
        self._work_size += size
        self._supervisor.spawn(self._run_request(work, size), "native request", unit=self)

    async def _run_request(self, work: Coroutine[Any, Any, Any], size: int) -> None:
        self._outbox.put(QueuedReceipt(await work, size))

    async def _read(self, link: Link, request: Any) -> None:
        """Read to the end of the client's side; ignore its messages once the link has ended."""
        try:
            while request is not grpc.aio.EOF:
                while self._is_throttled and not self._is_ended:
                    await self._work_done.wait()
                self._handle(link, request)
                while self._work_size > self._work_max and not self._is_ended:
                    await self._work_done.wait()
                request = await self._context.read()
            while self._work_count and not self._is_ended:
                await self._work_done.wait()
            self._outbox.finish()
        except Exception as error:  # noqa: BLE001 - a fault ends this stream, not the server
            self.end(error_for_client(error))

    def _handle(self, link: Link, request: Any) -> None:
        if self._is_ended:
            return
        try:
            self._take(link, request)
        except KledgerError as error:
            self.end(error)


class ProducerStream(LinkStream[ProducerLink, QueuedReceipt]):
    """The stream of one producer."""

    def __init__(
        self,
        session: BrokerSession,
        context: Context,
        supervisor: Supervisor,
        config: NativeConfig,
    ) -> None:
        super().__init__(session, context, supervisor, config.produce_bytes_max)

    async def _open(self, request: pb.ProduceRequest) -> ProducerLink:
        wanted = request.open
        return await self._broker.open_producer(
            wanted.topic, wanted.partition, name=wanted.name, on_ended=self.end
        )

    def _take(self, link: ProducerLink, request: pb.ProduceRequest) -> None:
        size = 0
        for batch in request.batches:
            # A copy: the broker writes offsets into it, and bytes are immutable.
            data = bytearray(batch.data)
            sending = self._send(link, batch.number, data, is_resent=batch.is_resent)
            self._start_request(sending, len(data))
            size += len(data)
        self._is_throttled = self._session.count_produced(size, self._resume)

    def _resume(self) -> None:
        self._is_throttled = False
        self._work_done.notify()

    def _response(self, items: Sequence[QueuedReceipt]) -> pb.ProduceResponse:
        return pb.ProduceResponse(receipts=[item.receipt for item in items])

    def _last_response(self, end: pb.LinkEnd) -> pb.ProduceResponse:
        return pb.ProduceResponse(end=end)

    async def _send(
        self, link: ProducerLink, number: int, data: bytearray, *, is_resent: bool
    ) -> pb.SendReceipt:
        try:
            receipt = await link.send(data, is_resent=is_resent)
        except KledgerError as error:
            return pb.SendReceipt(number=number, error=message_of(error))
        except Exception as error:  # noqa: BLE001 - the client gets it, and the log
            return pb.SendReceipt(number=number, error=message_of(error_for_client(error)))
        return pb.SendReceipt(
            number=number,
            position=position_to(receipt.position),
            base_offset=receipt.base_offset,
        )


class ConsumerStream(LinkStream[ConsumerLink, Delivery | Position]):
    """The stream of one consumer."""

    def __init__(
        self,
        session: BrokerSession,
        context: Context,
        supervisor: Supervisor,
        config: NativeConfig,
        *,
        total: DeliveryTotal | None = None,
    ) -> None:
        """Args: total: of all consumers of the server; None: there is only this one."""
        super().__init__(session, context, supervisor, config.acknowledgements_max)
        total = total or DeliveryTotal(config.delivery_bytes_total_max)
        self._window = DeliveryWindow(config.delivery_bytes_max, total)
        self._epoch = 0
        self._link: ConsumerLink | None = None
        self._has_quota = True

    async def run(self) -> None:
        """Serve the stream; unwritten deliveries are dropped at its end."""
        try:
            await super().run()
        finally:
            self._window.close()

    def end(self, error: KledgerError | None) -> None:
        """End the link; drop the unwritten deliveries after a reset, and when a right is gone."""
        if error is None or isinstance(error, NotAllowed):
            self._drop_waiting()
        super().end(error)

    async def _open(self, request: pb.ConsumeRequest) -> ConsumerLink:
        self._link = await self._broker.open_consumer(
            consumer_from(request.open),
            deliver=self._deliver,
            on_ended=self.end,
            on_read_position=(
                self._report_read_position if request.open.reports_read_position else None
            ),
        )
        return self._link

    def _take(self, link: ConsumerLink, request: pb.ConsumeRequest) -> None:
        for call in request.calls:
            match call.WhichOneof("kind"):
                case "permits":
                    self._add_permits(call.permits)
                    self._grant(link)
                case "acknowledge":
                    count = len(call.acknowledge.acknowledgements)
                    self._start_request(self._acknowledge(link, call.acknowledge), max(1, count))
                case "redeliver":
                    self._redeliver(link, call.redeliver)
                case _:
                    raise InvalidArgument("a call that this version does not know")

    def _response(self, items: Sequence[Delivery | Position | QueuedReceipt]) -> bytes:
        response = pb.ConsumeResponse()
        pieces: list[Buffer] = []
        for item in items:
            # What belongs to older epochs was dropped when this one began.
            if isinstance(item, Delivery):
                head = delivery_head(item, consumer_epoch=self._epoch)
                pieces += DELIVERIES.pieces(head, item.data)
            elif isinstance(item, Position):
                response.read_position.position.CopyFrom(position_to(item))
                response.read_position.consumer_epoch = self._epoch
            else:
                response.receipts.append(item.receipt)
        return b"".join([*pieces, response.SerializeToString()])

    def _last_response(self, end: pb.LinkEnd) -> pb.ConsumeResponse:
        return pb.ConsumeResponse(end=end)

    def _written(
        self, link: ConsumerLink, items: Sequence[Delivery | Position | QueuedReceipt]
    ) -> None:
        super()._written(link, items)
        self._window.written(sum(len(item.data) for item in items if isinstance(item, Delivery)))
        self._grant(link)

    def _add_permits(self, count: int) -> None:
        if not 1 <= count <= PERMITS_PER_CALL_MAX:
            raise InvalidArgument(f"permits: expected 1 to {PERMITS_PER_CALL_MAX}, got {count}")
        self._window.permits += count

    def _grant(self, link: ConsumerLink) -> None:
        if self._has_quota and (count := self._window.take_grant()):
            link.add_permits(count)

    def _resume(self) -> None:
        self._has_quota = True
        if self._link is not None and not self._is_ended:
            self._grant(self._link)

    def _redeliver(self, link: ConsumerLink, request: pb.Redeliver) -> None:
        if request.consumer_epoch < self._epoch:
            raise InvalidArgument(
                f"consumer epoch {request.consumer_epoch}, expected at least {self._epoch}"
            )
        if request.consumer_epoch > self._epoch:
            self._epoch = request.consumer_epoch
            self._drop_waiting()
        masks = [record_mask_from(each) for each in request.masks]
        link.redeliver(None if request.is_all else masks)
        self._grant(link)

    def _drop_waiting(self) -> None:
        """Drop the unwritten deliveries and read positions, and keep the receipts."""
        for item in self._outbox.discard(lambda item: not isinstance(item, QueuedReceipt)):
            if isinstance(item, Delivery):
                self._window.dropped(item.record_count, len(item.data))

    def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        records = 0
        data_bytes = 0
        for delivery in deliveries:
            self._outbox.put(delivery, len(delivery.data))
            records += delivery.record_count
            data_bytes += len(delivery.data)
        self._window.delivered(records, data_bytes)
        self._has_quota = not self._session.count_delivered(data_bytes, self._resume)

    def _report_read_position(self, position: Position) -> None:
        # One at a time: a consumer that reads slowly needs only the newest.
        self._outbox.replace_last(position, lambda last: isinstance(last, Position))

    async def _acknowledge(
        self, link: ConsumerLink, request: pb.Acknowledge
    ) -> pb.AcknowledgeReceipt:
        acknowledgements = [acknowledgement_from(each) for each in request.acknowledgements]
        if not request.is_cumulative:
            error = await error_of_request(link.acknowledge(acknowledgements))
        elif len(acknowledgements) == 1:
            error = await error_of_request(link.acknowledge_upto(acknowledgements[0]))
        else:
            found = len(acknowledgements)
            error = message_of(
                InvalidArgument(f"expected one position to acknowledge, got {found}")
            )
        return pb.AcknowledgeReceipt(request=request.request, error=error)


async def error_of_request(work: Awaitable[object]) -> pb.Error | None:
    """Wait for a request; return its error as a message, or None."""
    try:
        await work
    except KledgerError as error:
        return message_of(error)
    except Exception as error:  # noqa: BLE001 - the client gets it, and the log
        return message_of(error_for_client(error))
    return None


def error_for_client(error: Exception) -> KledgerError:
    """Return the error that a client gets for an unexpected exception; log a server's fault."""
    if isinstance(error, DecodeError):
        return InvalidArgument("a message that cannot be read")
    logger.error("a native request failed", exc_info=error)
    return KledgerError(f"the server failed: {error!r}")
