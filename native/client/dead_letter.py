"""DeadLetterProducer: moves messages that were redelivered too often to the dead-letter topic.

Rule: a message is acknowledged only after the dead-letter topic has stored it. A failed send is
logged and retried, so a message may be stored twice but is never lost.
Must not know: the limit of redeliveries.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from kledger.native.client.consumer_session import ConsumerSession
from kledger.native.client.producer import Producer
from kledger.native.client.services import ClientServices
from kledger.native.errors import KledgerError
from kledger.native.message import Message
from kledger.native.message_id import MessageId

logger = logging.getLogger(__name__)

RETRY_DELAY_MS = 1_000
ORIGIN_TOPIC = "REAL_TOPIC"
ORIGIN_ID = "ORIGIN_MESSAGE_ID"


class DeadLetterProducer:
    """The dead-letter producer of one consumer."""

    def __init__(
        self,
        services: ClientServices,
        topic: str,
        create_producer: Callable[[str], Awaitable[Producer]],
    ) -> None:
        """Args: topic: the dead-letter topic; its producer is opened for the first message."""
        self._services = services
        self._topic = topic
        self._create_producer = create_producer
        self._producer: Producer | None = None
        self._waiting: dict[MessageId, Message] = {}
        self._task: asyncio.Task[None] | None = None

    def put(self, messages: Sequence[Message]) -> None:
        """Send these messages, unless they are being sent already."""
        for message in messages:
            # Only the newest delivery can be acknowledged.
            id_ = message.id
            if id_ in self._waiting:
                _session_of(self._waiting.pop(id_).id).return_permits(1)
            self._waiting[id_] = message
        if self._task is None:
            self._task = self._services.supervisor.spawn(
                self._send_all(), f"dead letters to {self._topic}"
            )

    async def close(self) -> None:
        """Stop; the server redelivers unsent messages to another consumer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._producer is not None:
            await self._producer.close()

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                try:
                    if self._producer is None:
                        self._producer = await self._create_producer(self._topic)
                    sent = await self._send(self._producer, list(self._waiting))
                except KledgerError as error:
                    logger.warning("dead letters cannot be sent to %s: %s", self._topic, error)
                    await self._services.clock.sleep(RETRY_DELAY_MS)
                else:
                    await self._acknowledge(sent)
        finally:
            self._task = None

    async def _send(self, producer: Producer, ids: Sequence[MessageId]) -> list[Message]:
        """Send all concurrently; return those that were stored. Raises if none was."""
        outcomes = await asyncio.gather(
            *(self._send_one(producer, self._waiting[each]) for each in ids),
            return_exceptions=True,
        )
        sent = []
        for id_, outcome in zip(ids, outcomes, strict=True):
            if not isinstance(outcome, BaseException):
                sent.append(self._waiting.pop(id_))
        if not sent:
            raise next(each for each in outcomes if isinstance(each, BaseException))
        return sent

    async def _send_one(self, producer: Producer, message: Message) -> MessageId:
        origin = {ORIGIN_TOPIC: message.topic, ORIGIN_ID: str(message.id)}
        return await producer.send_again(message, origin)

    async def _acknowledge(self, messages: Sequence[Message]) -> None:
        """Acknowledge sent messages; one that fails is redelivered and sent again."""
        done = await asyncio.gather(
            *(_acknowledge_one(message) for message in messages), return_exceptions=True
        )
        for error in done:
            if isinstance(error, BaseException) and not isinstance(error, KledgerError):
                raise error


async def _acknowledge_one(message: Message) -> None:
    id_ = message.id
    session = _session_of(id_)
    session.return_permits(1)
    await session.acknowledge([message.acknowledgement()])


def _session_of(id_: MessageId) -> ConsumerSession:
    session = id_.link
    assert isinstance(session, ConsumerSession), f"{id_} was not delivered by a session"
    return session
