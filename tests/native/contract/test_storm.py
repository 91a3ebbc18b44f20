"""Consumers that join, leave, nack, forget and seek: every message is acknowledged in the end."""

import asyncio
import random
from contextlib import suppress

import pytest

import kledger
from tests.native.contract.words import SOON_MS, values

COUNT = 60
TYPES = ["exclusive", "failover", "shared", "key_shared"]


class Storm:
    """Random consumers of one subscription; a seed reproduces most of the run."""

    def __init__(self, client: kledger.Client, topic: str, consumer_type: str, seed: int) -> None:
        self._client = client
        self._topic = topic
        self._type = consumer_type
        self._random = random.Random(seed)
        self.sent: set[kledger.MessageId] = set()
        self.seen: set[kledger.MessageId] = set()
        self._are_all_sent = False
        self._is_over = False

    async def produce(self) -> None:
        async with await self._client.create_producer(self._topic, max_pending=7) as producer:
            for first in range(0, COUNT, 10):
                self.sent |= set(
                    await asyncio.gather(
                        *(
                            producer.send(
                                each,
                                key=self._random.choice([None, b"a", b"b", b"c"]),
                                deliver_after_ms=self._random.choice([None, None, 20]),
                            )
                            for each in values(10, first=first)
                        )
                    )
                )
        self._are_all_sent = True

    async def calm(self) -> None:
        """Return when the backlog is empty."""
        while not self._are_all_sent or await self._backlog():  # noqa: ASYNC110
            await asyncio.sleep(0)
        self._is_over = True

    async def consume(self) -> None:
        """Join and leave until the test ends."""
        while not self._is_over:
            try:
                consumer = await self._client.subscribe(
                    self._topic,
                    "s",
                    consumer_type=self._type,
                    receiver_queue_size=self._random.choice([1, 5, 1_000]),
                    negative_ack_redelivery_delay_ms=2,
                    ack_timeout_ms=50,
                    failover_delay_ms=0,
                )
            except kledger.ConsumerBusy:
                await asyncio.sleep(0)
                continue
            async with consumer:
                for _ in range(self._random.randrange(5, 100)):
                    if not self._is_over:
                        await self._do_something(consumer)

    async def _do_something(self, consumer: kledger.Consumer) -> None:
        chance = self._random.random()
        if chance < 0.02 and not self._are_all_sent:
            with suppress(kledger.SubscriptionFenced):  # Another one is at it.
                await consumer.seek("earliest")
        elif chance < 0.04 and not self._are_all_sent:
            await consumer.redeliver_unacknowledged()
        elif chance < 0.1:
            task = asyncio.ensure_future(consumer.receive())
            await asyncio.sleep(0)
            task.cancel()  # It may have a message by now, which is then not acknowledged.
        else:
            for message in await consumer.batch_receive(self._random.randrange(1, 9), timeout_ms=5):
                await self._answer(consumer, message)

    async def _answer(self, consumer: kledger.Consumer, message: kledger.Message) -> None:
        self.seen.add(message.id)
        match self._random.randrange(10):
            case 0:
                await consumer.negative_acknowledge(message)
            case 1:
                pass
            case _:
                # It raises when the seek of another consumer crosses it on a connection.
                with suppress(kledger.Unavailable):
                    await consumer.acknowledge(message)

    async def _backlog(self) -> int:
        return (await self._client.subscription_stats(self._topic, "s")).backlog


@pytest.mark.parametrize("consumer_type", TYPES)
async def test_every_message_is_acknowledged_in_the_end(
    client: kledger.Client, topic: str, consumer_type: str
) -> None:
    await client.create_subscription(topic, "s", "earliest")
    storm = Storm(client, topic, consumer_type, seed=5)
    work = [storm.produce(), storm.calm(), *(storm.consume() for _ in range(3))]
    await asyncio.wait_for(asyncio.gather(*work), 4 * SOON_MS / 1000)
    assert COUNT == len(storm.sent)
    assert storm.sent == storm.seen
