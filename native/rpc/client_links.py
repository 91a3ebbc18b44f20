"""RpcProducerLink and RpcConsumerLink: the client's side of the links to a remote server.

Rule: a link is one stream. Requests are queued and written as fast as the server reads, many in one
message. When the stream ends, pending requests fail with Unavailable, as their outcome is unknown;
then `on_ended` is called, unless the client closed the link. After a reset (the server's last
message says so) pending acknowledgements have no effect and return. A delivery from before a
redelivery of everything, or before a reset by this client, is dropped.
Must not know: how a lost connection is restored, the next link.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

import grpc.aio

from kledger.ledger import Buffer
from kledger.native.broker import ConsumerRequest, OnEnded, SendReceipt
from kledger.native.errors import (
    AlreadyClosed,
    InvalidArgument,
    KledgerError,
    SubscriptionFenced,
    Unavailable,
)
from kledger.native.proto import kledger_native_pb2 as pb
from kledger.native.rpc.connection import RpcConnection, is_own_task_cancelled
from kledger.native.rpc.outbox import ITEM_BYTES, Outbox
from kledger.native.rpc.protocol import MESSAGE_BYTES_GOAL, error_of
from kledger.native.rpc.values import (
    BATCHES,
    acknowledgement_to,
    consumer_to,
    delivery_from,
    position_from,
    record_mask_to,
)
from kledger.subscriptions.model import (
    Acknowledgement,
    Deliver,
    OnReadPosition,
    RecordMask,
    SubscriptionType,
)

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_MS = 5_000
"""How long the server may take to end a closed link; then the stream is cancelled."""
MESSAGE_OVERHEAD_BYTES = 1024
"""Bytes that a message adds to one batch, at most."""

SINGLE_ACTIVE_TYPES = {SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER}
"""The types that redeliver all unacknowledged records, never only some."""

Item = TypeVar("Item")
Response = TypeVar("Response")


class RpcLink(ABC, Generic[Item, Response]):
    """One stream; open() it once."""

    call_name = ""

    def __init__(
        self, connection: RpcConnection, on_ended: OnEnded, links: "set[RpcLink[Any, Any]]"
    ) -> None:
        """Args: links: the client's; this one is among them while it is opening or open."""
        self._connection = connection
        self._on_ended = on_ended
        self._links = links
        self._outbox: Outbox[Item] = Outbox(MESSAGE_BYTES_GOAL)
        self._pending: dict[int, asyncio.Future[Response]] = {}
        self._number = 0
        self._call: Any = None
        self._reading: asyncio.Task[None] | None = None
        self._is_closing = False
        self._end: KledgerError | None = None
        self._was_reset = False

    @abstractmethod
    def _request(self, items: Sequence[Item]) -> Any:
        """Put items into one message."""

    @abstractmethod
    def _received(self, response: Any) -> None:
        """Handle a message of the server."""

    async def open(self, request: Any) -> None:
        """Send the first message and wait until the server has opened the link.

        Raises:
            KledgerError: the server has refused it, or was not reached.
        """
        self._links.add(self)
        try:
            await self._open(request)
        except BaseException:
            self._links.discard(self)
            raise

    async def _open(self, request: Any) -> None:
        clock, timers = self._connection.clock, self._connection.timers
        timeout_ms = self._connection.operation_timeout_ms
        deadline_ms = clock.monotonic_ms() + timeout_ms
        await self._connection.ready()
        self._call = call = self._connection.stream(self.call_name)
        timer = timers.call_at(deadline_ms, call.cancel)
        try:
            await call.write(request)
            response = await call.read()
        except grpc.aio.AioRpcError as error:
            raise self._connection.explain(error) from None
        except asyncio.CancelledError:
            if is_own_task_cancelled():
                call.cancel()
                raise
            if timer.is_pending:
                raise self._connection.closed() from None
            raise Unavailable(f"not open within {timeout_ms} ms") from None
        finally:
            timer.cancel()
        if response is grpc.aio.EOF:
            raise Unavailable("the server closed the link before it was open")
        if self._was_reset:
            call.cancel()
            raise SubscriptionFenced("the position was set while the consumer was being opened")
        supervisor = self._connection.supervisor
        writing = supervisor.spawn(self._write(), "native link")
        self._reading = supervisor.spawn(self._read(writing), "native link")

    async def close(self) -> None:
        """Close the link when all pending requests are answered. May be repeated."""
        self._is_closing = True
        self._outbox.finish()
        reading = self._reading
        if reading is None or reading.done():
            return
        timer = self._connection.timers.call_after(CLOSE_TIMEOUT_MS, self._call.cancel)
        try:
            await asyncio.wait([reading])
        finally:
            timer.cancel()

    def _new_request(self) -> tuple[int, "asyncio.Future[Response]"]:
        """Return the number of a new request and the future of its answer.

        Raises:
            AlreadyClosed: the link was closed.
            Unavailable: the link has ended.
        """
        if self._is_closing:
            raise AlreadyClosed("the link is closed")
        if self._end is not None:
            raise Unavailable(str(self._end))
        self._number += 1
        future = asyncio.get_running_loop().create_future()
        self._pending[self._number] = future
        return self._number, future

    def _settle_request(self, number: int, error: pb.Error | None, answer: Response) -> None:
        future = self._pending.pop(number, None)
        if future is None or future.done():
            return
        if error is None:
            future.set_result(answer)
        else:
            future.set_exception(error_of(error.code, error.message))

    async def _write(self) -> None:
        try:
            while items := await self._outbox.take():
                await self._call.write(self._request(items))
            await self._call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # `_read` gets the cause

    async def _read(self, writing: "asyncio.Task[None]") -> None:
        error: KledgerError | None = KledgerError("the client failed; its log says why")
        try:
            while (response := await self._call.read()) is not grpc.aio.EOF:
                self._received(response)
                if response.HasField("end"):
                    error = _error_of_end(response.end)
                    self._was_reset = error is None
                    break
            else:
                error = None
        except grpc.aio.AioRpcError as failure:
            error = self._connection.explain(failure)
        except asyncio.CancelledError:
            if is_own_task_cancelled():
                raise
            error = Unavailable("the link was cancelled")
        finally:
            writing.cancel()
            self._call.cancel()
            self._finish(error)

    def _finish(self, error: KledgerError | None) -> None:
        """End the link once: fail the pending requests and call `on_ended`."""
        if self._end is not None:
            return
        self._end = Unavailable(str(error or "the server closed the link"))
        self._links.discard(self)
        self._outbox.finish()
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(Unavailable(f"no answer: {self._end}"))
                future.exception()  # a cancelled caller never retrieves it
        if not self._is_closing:
            self._on_ended(error)


class RpcProducerLink(RpcLink["_OutgoingBatch", SendReceipt]):
    """`native.broker.ProducerLink` over a stream."""

    call_name = "Produce"

    async def send(self, batch: Buffer, *, is_resent: bool = False) -> SendReceipt:
        """Append one record batch; see `native.broker.ProducerLink`."""
        limit = self._connection.message_bytes_max
        if len(batch) + MESSAGE_OVERHEAD_BYTES > limit:
            raise InvalidArgument(f"a batch of {len(batch)} bytes, the server takes {limit}")
        number, answer = self._new_request()
        head = pb.Batch(number=number, is_resent=is_resent)
        self._outbox.put(_OutgoingBatch(head, batch), len(batch))
        return await answer

    def _request(self, items: "Sequence[_OutgoingBatch]") -> bytes:
        return b"".join(chain.from_iterable(BATCHES.pieces(head, data) for head, data in items))

    def _received(self, response: pb.ProduceResponse) -> None:
        for each in response.receipts:
            self._settle_request(
                each.number,
                each.error if each.HasField("error") else None,
                SendReceipt(position_from(each.position), each.base_offset),
            )


class _OutgoingBatch(NamedTuple):
    """All fields of the message but the data, and the data."""

    head: pb.Batch
    data: Buffer


class RpcConsumerLink(RpcLink[pb.ConsumerCall, None]):
    """`native.broker.ConsumerLink` over a stream."""

    call_name = "Consume"

    def __init__(
        self,
        connection: RpcConnection,
        on_ended: OnEnded,
        links: "set[RpcLink[Any, Any]]",
        request: ConsumerRequest,
        deliver: Deliver,
        *,
        on_read_position: OnReadPosition | None,
    ) -> None:
        super().__init__(connection, on_ended, links)
        self.request = request
        self._deliver = deliver
        self._on_read_position = on_read_position
        self._epoch = 0

    def add_permits(self, count: int) -> None:
        """Permit the server to deliver `count` more records."""
        self._outbox.put(pb.ConsumerCall(permits=count))

    async def acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Acknowledge records individually; see `native.broker.ConsumerLink`."""
        await self._acknowledge(acknowledgements, is_cumulative=False)

    async def acknowledge_upto(self, acknowledgement: Acknowledgement) -> None:
        """Acknowledge all earlier entries and these records of this one."""
        await self._acknowledge((acknowledgement,), is_cumulative=True)

    def redeliver(self, masks: Sequence[RecordMask] | None) -> None:
        """Redeliver records; see `native.broker.ConsumerLink`.

        When all are redelivered, a new consumer epoch begins and older deliveries are dropped.
        """
        redelivers_all = masks is None or (masks and self.request.type in SINGLE_ACTIVE_TYPES)
        if redelivers_all:
            self._epoch += 1
        request = pb.Redeliver(
            is_all=masks is None,
            masks=map(record_mask_to, masks or ()),
            consumer_epoch=self._epoch,
        )
        size = ITEM_BYTES * len(request.masks)
        self._outbox.put(pb.ConsumerCall(redeliver=request), size)

    def end_by_reset(self) -> None:
        """End the link because this client has reset the subscription."""
        self._was_reset = True
        if self._reading is not None:  # else it is being opened, and `open` raises
            self._finish(None)
            self._call.cancel()

    async def _acknowledge(
        self, acknowledgements: Sequence[Acknowledgement], *, is_cumulative: bool
    ) -> None:
        try:
            number, answer = self._new_request()
            request = pb.Acknowledge(
                request=number,
                is_cumulative=is_cumulative,
                acknowledgements=[acknowledgement_to(each) for each in acknowledgements],
            )
            size = ITEM_BYTES * len(acknowledgements)
            self._outbox.put(pb.ConsumerCall(acknowledge=request), size)
            await answer
        except Unavailable:
            if not self._was_reset:
                raise

    def _request(self, items: Sequence[pb.ConsumerCall]) -> pb.ConsumeRequest:
        return pb.ConsumeRequest(calls=items)

    def _received(self, response: pb.ConsumeResponse) -> None:
        for each in response.receipts:
            self._settle_request(each.request, each.error if each.HasField("error") else None, None)
        if self._is_closing or self._end is not None:
            return
        if response.deliveries:
            self._take(response.deliveries)
        if response.HasField("read_position"):
            self._take_read_position(response.read_position)

    def _take(self, deliveries: Sequence[pb.Delivery]) -> None:
        """Deliver what belongs to this epoch, and grant the permits of the rest again."""
        epoch = self._epoch
        taken = [delivery_from(each) for each in deliveries if each.consumer_epoch == epoch]
        if len(taken) < len(deliveries):
            older = (delivery_from(each) for each in deliveries if each.consumer_epoch != epoch)
            self.add_permits(sum(each.record_count for each in older))
        if taken:
            self._deliver(taken)

    def _take_read_position(self, read_position: pb.ReadPosition) -> None:
        if self._on_read_position is not None and read_position.consumer_epoch == self._epoch:
            self._on_read_position(position_from(read_position.position))


def _error_of_end(end: pb.LinkEnd) -> KledgerError | None:
    """Return the argument of `on_ended`."""
    return error_of(end.error.code, end.error.message) if end.HasField("error") else None


def open_producer_message(topic: str, partition: int, name: str) -> pb.ProduceRequest:
    """Return the first message of a producer's stream."""
    return pb.ProduceRequest(open=pb.OpenProducer(topic=topic, partition=partition, name=name))


def open_consumer_message(
    request: ConsumerRequest, *, reports_read_position: bool
) -> pb.ConsumeRequest:
    """Return the first message of a consumer's stream."""
    message = consumer_to(request)
    message.reports_read_position = reports_read_position
    return pb.ConsumeRequest(open=message)
