"""Sends what was handed out too often to another topic.

Rule: a message is acknowledged where it came from only after it is stored where it goes; when that
does not work it is tried again, and said in the log. It may be there twice, never nowhere.
Must not know: how often is too often.
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
    """Of one consumer."""

    def __init__(
        self,
        services: ClientServices,
        topic: str,
        create_producer: Callable[[str], Awaitable[Producer]],
    ) -> None:
        """Args: topic: where to; its producer is made when it is needed."""
        self._services = services
        self._topic = topic
        self._create_producer = create_producer
        self._producer: Producer | None = None
        self._waiting: dict[MessageId, Message] = {}
        self._task: asyncio.Task[None] | None = None

    def put(self, messages: Sequence[Message]) -> None:
        """Send these; one that is on its way already is not sent again."""
        for message in messages:
            # The newest copy is the one that can be acknowledged.
            id_ = message.id
            if id_ in self._waiting:
                _session_of(self._waiting.pop(id_).id).return_permits(1)
            self._waiting[id_] = message
        if self._task is None:
            self._task = self._services.supervisor.spawn(
                self._send_all(), f"dead letters to {self._topic}"
            )

    async def close(self) -> None:
        """Stop; what was not sent comes again to another consumer."""
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
                    logger.warning("dead letters cannot go to %s: %s", self._topic, error)
                    await self._services.clock.sleep(RETRY_DELAY_MS)
                else:
                    await self._acknowledge(sent)
        finally:
            self._task = None

    async def _send(self, producer: Producer, ids: Sequence[MessageId]) -> list[Message]:
        """Send as much as can be sent; return it, or raise when nothing could be."""
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
        """Acknowledge what was sent. What cannot be comes again, and is sent again."""
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
    await session.acknowledge(id_)


def _session_of(id_: MessageId) -> ConsumerSession:
    session = id_.link
    assert isinstance(session, ConsumerSession), f"{id_} came by no session"
    return session
