"""Messages that were redelivered too often are moved to another topic."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kledger.batches.reader import iterate_records
from kledger.native.broker import TopicInfo
from kledger.native.client.consumer_session import ConsumerSession
from kledger.native.client.dead_letter import RETRY_DELAY_MS, DeadLetterProducer
from kledger.native.client.producer import Producer
from kledger.native.client.receive_queue import ReceiveQueue
from kledger.native.client.subscribe_options import DeadLetterPolicy, SubscribeOptions
from kledger.native.errors import TopicTerminated, Unavailable
from kledger.subscriptions.model import SubscriptionType
from tests.native.client_builders import Rig, delivery, rig, ticks
from tests.native.recording_broker import Endings, RecordingLink


@dataclass
class It:
    rig: Rig
    letters: DeadLetterProducer
    topics: list[str]

    def session(self) -> ConsumerSession:
        """A link of the consumer whose letters these are."""
        options = SubscribeOptions(
            subscription="s",
            type=SubscriptionType.SHARED,
            start="latest",
            name="c",
            receiver_queue_size=2,
            dead_letter=DeadLetterPolicy(max_redeliver_count=0),
        )
        session = ConsumerSession(
            self.rig.services,
            options,
            topic="orders",
            partition=0,
            queue=ReceiveQueue(self.rig.services.decoder, lambda: None),
            dead_letters=self.letters,
            on_arrived=lambda: None,
        )
        session.begin(RecordingLink(self.rig.broker, "c", Endings()))
        return session

    def sent(self) -> list[bytes | None]:
        return [r.value for each in self.rig.broker.batches for r in iterate_records(each)]

    def call_count(self, what: str) -> int:
        return sum(call[:2] == ("c", what) for call in self.rig.broker.calls)


@asynccontextmanager
async def letters() -> AsyncIterator[It]:
    async with rig() as rig_:
        topics: list[str] = []

        async def create_producer(topic: str) -> Producer:
            rig_.broker.maybe_fail()
            topics.append(topic)
            producer = Producer(
                rig_.services,
                TopicInfo(topic, 1),
                producer_name=None,
                batching=True,
                max_pending=10,
                on_closed=lambda _: None,
            )
            await producer.open()
            return producer

        found = DeadLetterProducer(rig_.services, "graves", create_producer)
        yield It(rig_, found, topics)
        await found.close()


async def test_letter_is_acknowledged_only_when_it_is_stored() -> None:
    async with letters() as it:
        session = it.session()
        session.deliver([delivery(1, b"a", b"b", redelivery_count=1)])
        await ticks()
        assert (["graves"], [b"a", b"b"]) == (it.topics, it.sent())
        assert (1, 2) == (it.call_count("acknowledge"), it.call_count("permits") - 1)


async def test_failed_letter_is_retried_and_keeps_its_permits() -> None:
    async with letters() as it:
        session = it.session()
        it.rig.broker.fail_next = Unavailable("no producer")
        session.deliver([delivery(1, b"a", redelivery_count=1)])
        await ticks()
        assert (0, 1) == (it.call_count("acknowledge"), it.call_count("permits"))
        it.rig.broker.fail_all = TopicTerminated("full")
        await it.rig.pass_ms(RETRY_DELAY_MS)
        it.rig.broker.fail_all = None
        await it.rig.pass_ms(RETRY_DELAY_MS - 1)
        assert 0 == it.call_count("acknowledge")
        await it.rig.pass_ms(1)
        assert ([b"a"], 1) == (it.sent()[-1:], it.call_count("acknowledge"))


async def test_letter_redelivered_while_being_sent_is_sent_once() -> None:
    """By the newest link, for only that one can acknowledge it."""
    async with letters() as it:
        session = it.session()
        it.rig.broker.fail_next = Unavailable("no producer")
        session.deliver([delivery(1, b"a", redelivery_count=1)])
        await ticks()
        session.end(None)
        newer = it.session()
        newer.deliver([delivery(1, b"a", redelivery_count=2)])
        await it.rig.pass_ms(RETRY_DELAY_MS)
        assert ([b"a"], 1) == (it.sent(), it.call_count("acknowledge"))


async def test_lost_acknowledgement_of_a_letter_affects_no_other() -> None:
    async with letters() as it:
        session = it.session()
        it.rig.broker.links.clear()
        session.deliver([delivery(1, b"a", redelivery_count=1)])
        await asyncio.sleep(0)
        session.end(Unavailable("lost"))
        await ticks()
        assert ([b"a"], 0) == (it.sent(), it.call_count("acknowledge"))
        it.session().deliver([delivery(2, b"b", redelivery_count=1)])
        await ticks()
        assert ([b"a", b"b"], 1) == (it.sent(), it.call_count("acknowledge"))
