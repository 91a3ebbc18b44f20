"""PartitionProducer: groups the messages of one partition into batches and sends them in order.

Rule: one group of batches is in flight at a time, so that no message overtakes another; messages
that arrive meanwhile leave with the next group. The batches of a group share a sync of the server.
Every message has its own outcome. A batch whose link was lost is resent with the same producer id,
epoch and sequence, so the server stores it once. After a batch that was not stored, the next one
begins a new epoch; batches that the server refused only because they followed it are resent in that
epoch, in order.
Must not know: how a partition is chosen.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from kledger.batches.builder import NO_PRODUCER
from kledger.native.broker import ProducerLink, SendReceipt
from kledger.native.client.message_encoder import OutgoingMessage, encode
from kledger.native.client.reconnect import is_final, open_with_retries
from kledger.native.client.send_plan import BATCHES_MAX, plan_send
from kledger.native.client.services import ClientServices
from kledger.native.errors import (
    AlreadyClosed,
    InvalidArgument,
    KledgerError,
    NotInSequence,
    Unavailable,
)
from kledger.native.message_id import MessageId
from kledger.native.producer_sequence_state import PRODUCER_ID_COUNT, ProducerSequence

RESEND_RETRY_MS = 30_000
"""How long messages wait for a lost server to come back."""


class _Batch:
    """Messages that are sent together.

    Attributes:
        numbers: its producer id, epoch and first sequence number.
        is_unanswered: it was sent over a link that was lost; it may be stored or not.
    """

    __slots__ = ("is_unanswered", "numbers", "pending")

    def __init__(self, pending: Sequence[OutgoingMessage]) -> None:
        self.pending = pending
        self.numbers = NO_PRODUCER
        self.is_unanswered = False


class PartitionProducer:
    """Sends to one partition."""

    def __init__(
        self,
        services: ClientServices,
        topic: str,
        partition: int,
        *,
        name: str,
        is_batching: bool,
        on_finished: Callable[[Sequence[OutgoingMessage]], None],
        on_batch_taken: Callable[[int], None],
    ) -> None:
        """Prepare; `open` connects.

        Args:
            services: the client's.
            topic: its short name.
            partition: its number in the topic.
            name: of the producer.
            is_batching: messages may share a batch.
            on_finished: called with messages that have an outcome.
            on_batch_taken: called with this partition when a batch leaves.
        """
        self._services = services
        self._topic = topic
        self._partition = partition
        self._name = name
        self._is_batching = is_batching
        self._on_finished = on_finished
        self._on_batch_taken = on_batch_taken
        self._waiting: deque[OutgoingMessage] = deque()
        self._inflight: Sequence[OutgoingMessage] = ()
        self._task: asyncio.Task[None] | None = None
        self._idle: asyncio.Future[None] | None = None  # the task waits for it while nothing waits
        self._link: ProducerLink | None = None
        self._link_number = 0
        self._sequence = ProducerSequence(services.entropy.below(PRODUCER_ID_COUNT))
        self._needs_new_epoch = False
        self._failure: KledgerError | None = None

    @property
    def unfinished(self) -> list[asyncio.Future[MessageId]]:
        """Outcomes that are still open."""
        pending = [*self._inflight, *self._waiting]
        return [each.outcome for each in pending if not each.outcome.done()]

    async def open(self) -> None:
        """Connect for the first time. Raises the server's error."""
        await self._connect(is_first=True)

    def add(self, pending: OutgoingMessage) -> None:
        """Queue a message behind all earlier ones."""
        self._waiting.append(pending)
        if self._task is None:
            name = f"producer of {self._topic}-{self._partition}"
            self._task = self._services.supervisor.spawn(self._send_all(), name)
        elif self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def fail(self, error: KledgerError) -> None:
        """Fail all pending messages, and all later ones, with this error."""
        self._failure = error
        fail([*self._inflight, *self._waiting], error)

    async def close(self) -> None:
        """Close the link; pending messages fail with AlreadyClosed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        link, self._link = self._link, None
        self._failure = AlreadyClosed(f"producer of {self._topic} is closed")
        if link is not None:
            await link.close()

    async def _send_all(self) -> None:
        try:
            while True:
                if not self._waiting:
                    self._idle = asyncio.get_running_loop().create_future()
                    await self._idle
                    self._idle = None
                taken, batches = self._take_group()
                self._inflight = taken
                self._on_batch_taken(self._partition)
                if batches:
                    await self._send_batches(batches)
                self._inflight = ()
        except BaseException:  # also of `close`, which cancels
            closed = AlreadyClosed(
                f"producer of {self._topic} was closed before the server answered"
            )
            fail([*self._inflight, *self._waiting], closed)
            raise
        finally:
            self._task = self._idle = None

    def _take_group(self) -> "tuple[list[OutgoingMessage], list[_Batch]]":
        """Take the messages that leave now, and put them into batches."""
        group: list[OutgoingMessage] = []
        batches: list[_Batch] = []
        while self._waiting and len(batches) < BATCHES_MAX:
            count, is_together = plan_send(self._waiting, is_batching=self._is_batching)
            if group and not is_together:
                break
            taken = [self._waiting.popleft() for _ in range(count)]
            group += taken
            # The message of a cancelled caller is not sent.
            wanted = [pending for pending in taken if not pending.outcome.done()]
            if len(wanted) < count:
                self._on_finished([pending for pending in taken if pending.outcome.done()])
            if not is_together:
                return group, _singly(wanted)
            if wanted:
                batches.append(_Batch(wanted))
        return group, batches

    async def _send_batches(self, batches: "list[_Batch]") -> None:
        """Send batches in their order, reconnecting as often as needed."""
        begin_ms = self._services.clock.monotonic_ms()
        while batches:
            try:
                link = self._link or await self._reconnect()
            except KledgerError as error:
                for batch in batches:
                    self._fail_batch(batch, error)
                return
            number = self._link_number
            sent = self._next_to_send(batches)
            if len(batches) == 1:
                batches = await self._send(link, number, sent[0], begin_ms)
            else:
                # The server appends concurrent sends in this order, with one sync for many.
                sends = (self._send(link, number, batch, begin_ms) for batch in sent)
                batches = _replace_sent(batches, sent, await asyncio.gather(*sends))

    def _next_to_send(self, batches: "list[_Batch]") -> "list[_Batch]":
        """Return which batches are sent next.

        Two cases:
        1. Batches were sent over a link that was lost before their answers arrived. They keep
           their numbers and are sent alone; the others follow when the answers are known.
        2. No batch can be stored already: all get the next numbers.
        """
        unanswered = [batch for batch in batches if batch.is_unanswered]
        if unanswered:
            return unanswered
        if self._needs_new_epoch:
            self._needs_new_epoch = False
            self._sequence.begin_epoch(self._services.entropy.below(PRODUCER_ID_COUNT))
        for batch in batches:
            batch.numbers = self._sequence.take(len(batch.pending))
        return batches

    async def _send(
        self, link: ProducerLink, number: int, batch: "_Batch", begin_ms: int
    ) -> "list[_Batch]":
        """Send one batch once; return the batches to resend: none, itself, or its messages."""
        pending = batch.pending
        try:
            data = encode(pending, batch.numbers)
            receipt = await link.send(data, is_resent=batch.is_unanswered)
        except NotInSequence as error:
            if batch.numbers.base_sequence == 0:  # It could follow anything.
                return self._fail_batch(batch, error)
            self._needs_new_epoch = True
            batch.is_unanswered = False
            return [batch]
        except InvalidArgument as error:
            if len(pending) == 1:
                return self._fail_batch(batch, error)
            # Only some messages are wrong: send each in a batch of its own.
            self._needs_new_epoch = True
            return _singly(pending)
        except Unavailable as error:
            is_link_alive = number == self._link_number and self._link is not None
            waited_ms = self._services.clock.monotonic_ms() - begin_ms
            if is_link_alive or waited_ms >= RESEND_RETRY_MS:
                return self._fail_batch(batch, error)
            batch.is_unanswered = True
            return [batch]
        except KledgerError as error:
            return self._fail_batch(batch, error)
        self._confirm(pending, receipt)
        return []

    def _fail_batch(self, batch: "_Batch", error: KledgerError) -> "list[_Batch]":
        """Fail the messages of a batch, which is not resent."""
        self._needs_new_epoch = True
        fail(batch.pending, error)
        self._on_finished(batch.pending)
        return []

    async def _reconnect(self) -> ProducerLink:
        await self._connect(is_first=False)
        assert self._link is not None, "connected without a link"
        return self._link

    async def _connect(self, *, is_first: bool) -> None:
        if self._failure is not None:
            raise self._failure
        self._link_number += 1
        number = self._link_number
        self._link = await open_with_retries(
            self._services,
            lambda: self._services.broker.open_producer(
                self._topic,
                self._partition,
                name=self._name,
                on_ended=lambda error: self._on_link_ended(number, error),
            ),
            is_first=is_first,
            retry_ms=RESEND_RETRY_MS,
        )

    def _on_link_ended(self, number: int, error: KledgerError | None) -> None:
        if number == self._link_number:
            self._link = None
            if is_final(error):
                self._failure = error

    def _confirm(self, pending: Sequence[OutgoingMessage], receipt: SendReceipt) -> None:
        ledger_id, entry_id = receipt.position
        size, partition, offset = len(pending), self._partition, receipt.base_offset
        for index, each in enumerate(pending):
            if not each.outcome.done():
                each.outcome.set_result(
                    MessageId(ledger_id, entry_id, index, partition, size, None, offset + index)
                )
        # In the same step: a caller that gets its outcome may send another message at once.
        self._on_finished(pending)


def _replace_sent(
    batches: list[_Batch], sent: list[_Batch], left: Sequence[list[_Batch]]
) -> list[_Batch]:
    """Replace the batches that were sent by those that remain of them, in order."""
    if sent is batches:
        return list(chain.from_iterable(left))
    left_of = dict(zip(sent, left, strict=True))
    return list(chain.from_iterable(left_of.get(batch, [batch]) for batch in batches))


def _singly(pending: Iterable[OutgoingMessage]) -> list[_Batch]:
    return [_Batch([each]) for each in pending]


def fail(pending: Iterable[OutgoingMessage], error: KledgerError) -> None:
    """Fail those messages that have no outcome yet."""
    for each in pending:
        if not each.outcome.done():
            each.outcome.set_exception(error)
