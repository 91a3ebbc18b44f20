"""One partition of a producer: groups what comes into batches and sends them in order.

Rule: one flight at a time, so that nothing overtakes; what comes meanwhile leaves with the next
one. Every message hears its own outcome. A batch whose link was lost is sent again: it may then be
there twice. One that the server refused is not.
Must not know: how partitions are chosen.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from native.client_services import ClientServices
from native.errors import AlreadyClosed, InvalidArgument, KledgerError, Unavailable
from native.flight_plan import plan_flight
from native.message_codec import Outgoing, encode
from native.message_id import MessageId
from native.reconnecting import is_final, open_patiently
from native.seam import ProducerLink, SendReceipt

RESEND_PATIENCE_MS = 30_000
"""How long messages wait for a lost server to come back."""


class Pending(NamedTuple):
    """A message, and who waits for it."""

    message: Outgoing
    outcome: asyncio.Future[MessageId]


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
        settled: Callable[[Sequence[Pending]], None],
        left: Callable[[int], None],
    ) -> None:
        """Prepare; `open` connects.

        Args:
            services: the client's.
            topic: its short name.
            partition: which of the topic.
            name: of the producer.
            is_batching: messages may share a batch.
            settled: told of messages that have their outcome.
            left: told of this partition when something leaves.
        """
        self._services = services
        self._topic = topic
        self._partition = partition
        self._name = name
        self._is_batching = is_batching
        self._settled = settled
        self._left = left
        self._waiting: deque[Pending] = deque()
        self._flying: Sequence[Pending] = ()
        self._task: asyncio.Task[None] | None = None
        self._link: ProducerLink | None = None
        self._link_number = 0
        self._reopening = asyncio.Lock()
        self._failure: KledgerError | None = None

    @property
    def unsettled(self) -> list[asyncio.Future[MessageId]]:
        """Outcomes that are still open."""
        pending = [*self._flying, *self._waiting]
        return [each.outcome for each in pending if not each.outcome.done()]

    async def open(self) -> None:
        """Connect for the first time. Raises what the server answers."""
        await self._connect(is_first=True)

    def add(self, pending: Pending) -> None:
        """Send this behind all that were added before."""
        self._waiting.append(pending)
        if self._task is None:
            self._task = self._services.supervisor.spawn(
                self._send_all(), f"producer of {self._topic}-{self._partition}"
            )

    def fail(self, error: KledgerError) -> None:
        """Give everything this outcome, now and later."""
        self._failure = error
        fail([*self._flying, *self._waiting], error)

    async def close(self) -> None:
        """Let go; what has no outcome yet gets AlreadyClosed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        link, self._link = self._link, None
        self._failure = AlreadyClosed(f"producer of {self._topic} is closed")
        if link is not None:
            await link.close()

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                messages = (pending.message for pending in self._waiting)
                count, is_together = plan_flight(messages, is_batching=self._is_batching)
                taken = [self._waiting.popleft() for _ in range(count)]
                self._flying = taken
                self._left(self._partition)
                # Whoever was cancelled before its message left does not want it sent.
                wanted = [pending for pending in taken if not pending.outcome.done()]
                if is_together:
                    await self._fly_together(wanted)
                else:
                    await self._fly_singly(wanted)
                self._flying = ()
                self._settled(taken)
        except BaseException:
            closed = AlreadyClosed(
                f"producer of {self._topic} was closed before the server answered"
            )
            fail([*self._flying, *self._waiting], closed)
            raise
        finally:
            self._task = None

    async def _fly_together(self, pending: Sequence[Pending]) -> None:
        if not pending:
            return
        try:
            receipt = await self._send(pending)
        except InvalidArgument as error:
            if len(pending) == 1:
                fail(pending, error)
            else:  # The fault of one of them is not that of all.
                await self._fly_singly(pending)
        except KledgerError as error:
            fail(pending, error)
        else:
            self._confirm(pending, receipt)

    async def _fly_singly(self, pending: Sequence[Pending]) -> None:
        if len(pending) == 1:
            await self._fly_together(pending)
        elif pending:
            # What is sent at once is appended in that order, with one sync for many.
            await asyncio.gather(*(self._fly_together([each]) for each in pending))

    async def _send(self, pending: Sequence[Pending]) -> SendReceipt:
        """Send one batch, over as many links as it takes."""
        begin_ms = self._services.clock.monotonic_ms()
        while True:
            number, link = self._link_number, self._link
            if link is None:
                link = await self._reconnect()
                number = self._link_number
            try:
                return await link.send(encode(each.message for each in pending))
            except Unavailable:
                waited_ms = self._services.clock.monotonic_ms() - begin_ms
                if number == self._link_number and self._link is not None:
                    raise  # The link is alive: it was the server that refused.
                if waited_ms >= RESEND_PATIENCE_MS:
                    raise

    async def _reconnect(self) -> ProducerLink:
        async with self._reopening:
            if self._link is None:
                await self._connect(is_first=False)
            assert self._link is not None
            return self._link

    async def _connect(self, *, is_first: bool) -> None:
        if self._failure is not None:
            raise self._failure
        self._link_number += 1
        number = self._link_number
        self._link = await open_patiently(
            self._services,
            lambda: self._services.broker.open_producer(
                self._topic,
                self._partition,
                name=self._name,
                ended=lambda error: self._ended(number, error),
            ),
            is_first=is_first,
            patience_ms=RESEND_PATIENCE_MS,
        )

    def _ended(self, number: int, error: KledgerError | None) -> None:
        if number == self._link_number:
            self._link = None
            if is_final(error):
                self._failure = error

    def _confirm(self, pending: Sequence[Pending], receipt: SendReceipt) -> None:
        ledger_id, entry_id = receipt.position
        size, partition = len(pending), self._partition
        for index, (_, outcome) in enumerate(pending):
            if not outcome.done():
                outcome.set_result(MessageId(ledger_id, entry_id, index, partition, size))


def fail(pending: Iterable[Pending], error: KledgerError) -> None:
    """Give those an outcome that have none yet."""
    for _, outcome in pending:
        if not outcome.done():
            outcome.set_exception(error)
