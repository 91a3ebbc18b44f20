"""A batch that was resent because its answer was lost is stored once.

The answers are lost below `native.broker`: the server has stored the batch or not, and the link
ends before the client gets the answer.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import kledger
from kledger.ledger import Buffer
from kledger.native.broker import ProducerLink, SendReceipt
from kledger.native.errors import KledgerError, Unavailable
from tests.native.contract.words import receive, receive_values, values


class Answers:
    """The sends of a client: `lose_next` loses answers, `drop_next` loses what is sent."""

    def __init__(self, client: kledger.Client) -> None:
        assert client._services is not None
        self._broker = client._services.broker
        self._open = self._broker.open_producer
        self._replace(self._open_producer)
        self.lose_next = 0
        self.drop_next = 0
        self.links = 0

    def restore(self) -> None:
        self._replace(self._open)

    def _replace(self, open_producer: Callable[..., Any]) -> None:
        self._broker.open_producer = open_producer  # type: ignore[method-assign]

    async def _open_producer(
        self, topic: str, partition: int, *, name: str, on_ended: Callable[..., None]
    ) -> "LosingLink":
        self.links += 1
        link = await self._open(topic, partition, name=name, on_ended=on_ended)
        return LosingLink(self, link, on_ended)


class LosingLink:
    """A link that may lose a batch or an answer, and then ends."""

    def __init__(
        self, answers: Answers, link: ProducerLink, ended: Callable[[KledgerError | None], None]
    ) -> None:
        self._answers = answers
        self._link = link
        self._ended = ended
        self._is_lost = False

    async def send(self, batch: Buffer, *, is_resent: bool = False) -> SendReceipt:
        answers = self._answers
        if answers.drop_next:
            answers.drop_next -= 1
            self._lose()
        receipt = await self._link.send(batch, is_resent=is_resent)
        if answers.lose_next:
            answers.lose_next -= 1
            self._lose()
        return receipt

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._ended(Unavailable("the connection was lost"))
        raise Unavailable("no answer")

    async def close(self) -> None:
        await self._link.close()


@pytest.fixture
def answers(client: kledger.Client) -> Any:
    found = Answers(client)
    yield found
    found.restore()


async def end_offsets(client: kledger.Client, topic: str) -> list[int]:
    return [each.end_offset for each in (await client.topic_stats(topic)).partitions]


async def test_message_whose_answer_was_lost_is_stored_once(
    client: kledger.Client, answers: Answers
) -> None:
    producer = await client.create_producer("orders")
    consumer = await client.subscribe("orders", "s")
    await producer.send(b"first")
    answers.lose_next = 1
    sent = await producer.send(b"v")
    await producer.send(b"last")
    received = await receive(consumer, 3)
    assert [b"first", b"v", b"last"] == [each.value for each in received]
    assert (sent, 1) == (received[1].id, sent.offset)
    assert [3] == await end_offsets(client, "orders")
    assert 2 == answers.links


async def test_first_message_may_be_lost_before_or_after_the_append(
    client: kledger.Client, answers: Answers
) -> None:
    for lost in ("lose_next", "drop_next"):
        producer = await client.create_producer(lost)
        setattr(answers, lost, 1)
        assert 0 == (await producer.send(b"v")).offset
        assert [1] == await end_offsets(client, lost)


async def test_answer_that_is_lost_repeatedly(client: kledger.Client, answers: Answers) -> None:
    producer = await client.create_producer("orders")
    answers.lose_next = 4
    assert [0, 1] == [(await producer.send(b"v")).offset for _ in range(2)]
    assert [2] == await end_offsets(client, "orders")


@pytest.mark.parametrize("lost", [1, 60, 100])
async def test_many_single_messages_are_stored_once_and_in_order(
    client: kledger.Client, answers: Answers, lost: int
) -> None:
    """More batches are in flight than a partition remembers of a producer."""
    producer = await client.create_producer("orders", batching=False)
    consumer = await client.subscribe("orders", "s")
    answers.lose_next = lost
    sent = await asyncio.gather(*(producer.send(each) for each in values(150)))
    assert list(range(150)) == [each.offset for each in sent]
    received = await receive(consumer, 150)
    assert values(150) == [each.value for each in received]
    assert sent == [each.id for each in received]
    assert [150] == await end_offsets(client, "orders")


async def test_single_messages_behind_a_refused_one_are_stored_in_order(
    client: kledger.Client,
) -> None:
    await client.create_topic("orders", config={"max.message.bytes": "1000"})
    consumer = await client.subscribe("orders", "s")
    producer = await client.create_producer("orders", batching=False)
    sizes = [bytes(2_000) if number % 5 == 2 else b"%d" % number for number in range(20)]
    outcomes = await asyncio.gather(*map(producer.send, sizes), return_exceptions=True)
    refused = [isinstance(each, kledger.InvalidArgument) for each in outcomes]
    assert [len(each) == 2_000 for each in sizes] == refused
    kept = [each for each in sizes if len(each) < 2_000]
    assert kept == await receive_values(consumer, len(kept))
    assert [len(kept)] == await end_offsets(client, "orders")


async def test_delayed_messages_are_stored_once(client: kledger.Client, answers: Answers) -> None:
    consumer = await client.subscribe("orders", "s", consumer_type="shared")
    producer = await client.create_producer("orders")
    answers.lose_next = 20
    await asyncio.gather(*(producer.send(each, deliver_at=1) for each in values(20)))
    assert values(20) == await receive_values(consumer, 20)
    assert [20] == await end_offsets(client, "orders")
