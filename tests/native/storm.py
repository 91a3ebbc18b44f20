"""A storm of clients on one service: random requests, many at once, some of them cancelled.

Everything is drawn from one seed. Whatever a client does, it gets native errors only, `on_ended` is
called once for each link, and nothing is delivered after that.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Sequence
from random import Random

from kledger.batches.header import read_record_count
from kledger.ledger import Position
from kledger.ledger.testing import FaultyEngine
from kledger.native.broker import (
    ConsumerLink,
    ConsumerRequest,
    ProducerLink,
    RecordPosition,
    SeekTarget,
)
from kledger.native.errors import KledgerError
from kledger.subscriptions.model import ALL, Acknowledgement, Delivery, RecordMask, SubscriptionType
from kledger.topics.errors import TopicsError
from kledger.topics.partition.partition_log import PartitionLog
from tests.batches.words import NOW_MS, batch
from tests.native.serving import Link, Serving, ticks
from tests.topics.words import append

TOPICS = ("a", "b")
PARTITIONS = 2
SUBSCRIPTIONS = ("x", "y", "z")
SECONDS_MAX = 120


class StormLink(Link):
    """Gets nothing behind its end."""

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        assert not self.ends, "something was delivered to a link that has ended"
        super().deliver(deliveries)

    def on_ended(self, error: KledgerError | None) -> None:
        assert not self.ends, "a link has ended twice"
        super().on_ended(error)


class Storm:
    """The running clients, and the outcome so far."""

    def __init__(self, serving: Serving, engine: FaultyEngine, seed: int, *, faults: bool) -> None:
        self.seen: Counter[str] = Counter()
        self._serving = serving
        self._service = serving.service
        self._engine = engine
        self._random = Random(seed)
        self._faults = faults
        self._consumers: list[tuple[ConsumerLink, StormLink]] = []
        self._producers: list[ProducerLink] = []

    async def blow(self, steps: int) -> None:
        """Do so many things, many at once; return when all of them have ended."""
        tasks = []
        for _ in range(steps):
            task = asyncio.ensure_future(self._do_something())
            tasks.append(task)
            if self._random.random() < 0.05:
                task.cancel()
            await ticks(self._random.choice((0, 0, 1, 2, 5, 20)))
            if self._random.random() < 0.1:
                await self._serving.topics.store.flush()  # the commit thread may wait for a CPU
            if self._random.random() < 0.1:
                self._serving.topics.clock.advance(self._random.choice((1, 1_000, 70_000)))
        async with asyncio.timeout(SECONDS_MAX):
            while not all(task.done() for task in tasks):
                await asyncio.sleep(0)
                self._serving.topics.clock.advance(10)
        for task in tasks:
            if not task.cancelled():
                task.result()
        for link, _ in self._consumers:
            await self._try(link.close())
        for _ in range(5):  # cancelled calls complete
            await ticks()
            await self._serving.topics.store.flush()

    async def _try(self, call: Awaitable[object]) -> object:
        """Return the result of a call; None if it fails in an expected way."""
        try:
            result = await call
        except KledgerError as error:
            self.seen[type(error).__name__] += 1
            return None
        self.seen["done"] += 1
        return result

    # What clients do

    async def _do_something(self) -> None:
        await self._random.choice(
            (
                self._change_topics, self._set_position, self._set_position, self._look,
                self._change_subscriptions, self._join, self._join, self._acknowledge,
                self._acknowledge, self._acknowledge, self._leave, self._say, self._send,
                self._send, self._append_as_kafka_does, self._raise_log_start, self._break,
            )
        )()  # fmt: skip

    async def _change_topics(self) -> None:
        chance = self._random.random()
        if chance < 0.85:
            size = str(self._random.choice((60, 300, 100_000)))
            config = {"internal.segment.bytes": size}
            await self._try(self._service.create_topic(self._topic(), PARTITIONS, config))
        elif chance < 0.99:
            await self._try(self._service.delete_topic(self._topic()))
        else:
            await self._try(self._service.terminate(self._topic()))

    async def _change_subscriptions(self) -> None:
        topic, name = self._topic(), self._subscription()
        if self._random.random() < 0.75:
            await self._try(self._service.create_subscription(topic, name, self._target()))
        else:
            force = self._random.random() < 0.7
            await self._try(self._service.delete_subscription(topic, name, force=force))

    async def _set_position(self) -> None:
        topic, name, count = self._topic(), self._subscription(), self._random.randrange(1, 6)
        match self._random.randrange(4):
            case 0:
                await self._try(self._service.skip_messages(topic, name, count))
            case 1 if count == 1:
                await self._try(self._service.clear_backlog(topic, name))
            case _:
                partition = self._random.choice((None, 0, 1))
                inclusive = self._random.random() < 0.5
                await self._try(
                    self._service.reset_subscription(
                        topic, name, self._target(), partition=partition, inclusive=inclusive
                    )
                )

    async def _look(self) -> None:
        topic, name = self._topic(), self._subscription()
        await self._try(self._service.peek(topic, name, self._random.randrange(1, 6)))
        await self._try(self._service.subscription_stats(topic, name))
        await self._try(self._service.topic_stats(topic))
        await self._try(self._service.last_record(topic, self._partition()))

    async def _join(self) -> None:
        link = StormLink()
        request = ConsumerRequest(
            topic=self._topic(),
            partition=self._partition(),
            subscription=self._subscription(),
            type=self._random.choice(list(SubscriptionType)),
            start=self._target(),
            is_start_inclusive=self._random.random() < 0.5,
            is_durable=self._random.random() < 0.8,
            unacked_max=self._random.choice((0, 2, 50_000)),
            unacked_subscription_max=self._random.choice((0, 3, 50_000)),
            priority_level=self._random.randrange(2),
        )
        consumer = await self._try(
            self._service.open_consumer(request, deliver=link.deliver, on_ended=link.on_ended)
        )
        if consumer is not None:
            self._consumers.append((consumer, link))  # type: ignore[arg-type]
            self._consumers[-1][0].add_permits(self._random.choice((1, 5, 1_000)))

    async def _acknowledge(self) -> None:
        for consumer, link in self._some_consumer():
            for delivery in self._random.sample(link.deliveries, min(1, len(link.deliveries))):
                size = read_record_count(delivery.data)
                records = self._random.choice((ALL, 1 << self._random.randrange(size)))
                given = Acknowledgement(delivery.position, records, size)
                if self._random.random() < 0.8:
                    await self._try(consumer.acknowledge([given]))
                else:
                    await self._try(consumer.acknowledge_upto(given))

    async def _say(self) -> None:
        for consumer, link in self._some_consumer():
            if self._random.random() < 0.5:
                consumer.add_permits(self._random.randrange(1, 10))
            else:
                masks = [RecordMask(each.position, each.records) for each in link.deliveries[-3:]]
                consumer.redeliver(self._random.choice((None, masks)))

    async def _leave(self) -> None:
        for each in self._some_consumer():
            self._consumers.remove(each)
            await self._try(each[0].close())

    async def _send(self) -> None:
        if self._producers and self._random.random() < 0.8:
            values = "abc"[: self._random.randrange(1, 4)]
            await self._try(self._random.choice(self._producers).send(batch(*values)))
            return
        opening = self._service.open_producer(
            self._topic(), self._partition(), name="", on_ended=StormLink().on_ended
        )
        producer = await self._try(opening)
        if producer is not None:
            self._producers = [*self._producers[-5:], producer]  # type: ignore[list-item]

    async def _append_as_kafka_does(self) -> None:
        for log in self._some_log():
            await append(log, batch(*"kafka"[: self._random.randrange(1, 5)]))

    async def _raise_log_start(self) -> None:
        for log in self._some_log():
            if self._random.random() < 0.3:
                offset = self._random.randrange(log.log_start_offset, log.high_watermark + 1)
                try:
                    await log.delete_records(offset)
                except TopicsError:
                    self.seen["log start"] += 1

    async def _break(self) -> None:
        if self._faults and self._random.random() < 0.3:
            self._engine.fail_next(self._random.choice(("commit", "commit", "read")))

    # Who and where

    def _topic(self) -> str:
        return self._random.choice(TOPICS)

    def _partition(self) -> int:
        return self._random.randrange(PARTITIONS)

    def _subscription(self) -> str:
        return self._random.choice(SUBSCRIPTIONS)

    def _target(self) -> SeekTarget:
        position = Position(self._random.randrange(-1, 20), self._random.randrange(-1, 30))
        return self._random.choice(
            (
                "earliest",
                "latest",
                NOW_MS + self._random.randrange(5),
                self._random.randrange(1 << 62),
                RecordPosition(position, self._random.randrange(-1, 5)),
            )
        )

    def _some_consumer(self) -> list[tuple[ConsumerLink, StormLink]]:
        return [self._random.choice(self._consumers)] if self._consumers else []

    def _some_log(self) -> list[PartitionLog]:
        topic = self._serving.topics.registry.get(self._topic())
        log = topic.partition(self._partition()) if topic is not None else None
        return [log] if log is not None and not log.is_closed else []
