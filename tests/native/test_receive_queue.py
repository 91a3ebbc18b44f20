"""What was delivered and not handed out."""

from dataclasses import dataclass, field

import pytest

from native.errors import Unreadable
from native.receive_queue import ReceiveQueue
from subscriptions.model import Delivery
from tests.native.client_words import damaged, delivery


@dataclass(eq=False)
class Source:
    topic: str = "orders"
    partition: int = 0
    returned: list[int] = field(default_factory=list)

    def give_back(self, count: int) -> None:
        self.returned.append(count)


def queue_of(*arrivals: tuple[Source, Delivery]) -> ReceiveQueue:
    queue = ReceiveQueue()
    for source, each in arrivals:
        queue.add(source, each)
    return queue


def take_all(queue: ReceiveQueue) -> list[bytes | None]:
    found = []
    while (message := queue.take()) is not None:
        found.append(message.value)
    return found


def test_messages_come_in_the_order_of_their_arrival() -> None:
    one, two = Source(), Source(partition=1)
    queue = queue_of(
        (one, delivery(1, b"a", b"b", b"c", records=0b101)), (two, delivery(1, b"d")),
        (one, delivery(2, b"e")),
    )  # fmt: skip
    assert 4 == len(queue)
    first = queue.take()
    assert first is not None
    assert first.id.link is one
    assert 3 == len(queue)
    assert [b"c", b"d", b"e"] == take_all(queue)
    assert 0 == len(queue)


def test_what_came_by_a_link_goes_with_it() -> None:
    """Also what is decoded already."""
    one, two = Source(), Source()
    queue = queue_of(
        (one, delivery(1, b"a", b"b", b"c")), (two, delivery(1, b"d", b"e")),
        (one, delivery(2, b"f", b"g")),
    )  # fmt: skip
    queue.take()
    assert 4 == queue.drop(one)
    assert 2 == len(queue)
    assert 0 == queue.drop(one)
    assert [b"d", b"e"] == take_all(queue)


def test_what_is_decoded_of_another_link_stays() -> None:
    one, two = Source(), Source()
    queue = queue_of((one, delivery(1, b"a", b"b")), (two, delivery(1, b"c")))
    queue.take()
    assert 1 == queue.drop(two)
    assert [b"b"] == take_all(queue)


def test_damage_is_told_once_and_passed() -> None:
    one = Source()
    queue = queue_of((one, delivery(1, b"a")), (one, damaged(2)), (one, delivery(3, b"b")))
    queue.take()
    with pytest.raises(Unreadable, match="5:2"):
        queue.take()
    assert ([3], 1) == (one.returned, len(queue))
    assert [b"b"] == take_all(queue)
