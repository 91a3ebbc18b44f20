"""The queue of delivered messages."""

from dataclasses import dataclass, field

import pytest

from kledger.native.client.receive_queue import ReceiveQueue
from kledger.native.errors import Unreadable
from kledger.runtime.tasks import Supervisor
from kledger.subscriptions.model import Delivery
from tests.native.client_builders import damaged, decoder, delivery, long_delivery, rig, ticks


@dataclass(eq=False)
class Source:
    topic: str = "orders"
    partition: int = 0
    returned: list[int] = field(default_factory=list)

    def return_permits(self, count: int) -> None:
        self.returned.append(count)


def queue_of(*arrivals: tuple[Source, Delivery]) -> ReceiveQueue:
    queue = ReceiveQueue(decoder(Supervisor()), lambda: None)
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


def test_messages_of_a_link_are_dropped_with_it() -> None:
    """Also those that are decoded already."""
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


def test_decoded_messages_of_another_link_stay() -> None:
    one, two = Source(), Source()
    queue = queue_of((one, delivery(1, b"a", b"b")), (two, delivery(1, b"c")))
    queue.take()
    assert 1 == queue.drop(two)
    assert [b"b"] == take_all(queue)


def test_damage_is_raised_once_and_skipped() -> None:
    one = Source()
    queue = queue_of((one, delivery(1, b"a")), (one, damaged(2)), (one, delivery(3, b"b")))
    queue.take()
    with pytest.raises(Unreadable, match="5:2"):
        queue.take()
    assert ([3], 1) == (one.returned, len(queue))
    assert [b"b"] == take_all(queue)


async def test_long_batch_blocks_the_batches_behind_it() -> None:
    async with rig() as rig_:
        changes: list[int] = []
        one, two = Source(), Source(partition=1)
        queue = ReceiveQueue(rig_.services.decoder, lambda: changes.append(len(queue)))
        queue.add(one, long_delivery(1, count=2_500))
        queue.add(two, delivery(1, b"behind"))
        assert queue.take() is None
        assert queue.is_decoding
        found: list[bytes | None] = []
        while len(found) < 2_501:
            await ticks()
            found += take_all(queue)
        assert [*(b"%d" % each for each in range(2_500)), b"behind"] == found
        assert (0, False) == (len(queue), queue.is_decoding)
        assert changes


@pytest.mark.parametrize("taken", [0, 1, 1_500])
async def test_long_batch_is_dropped_with_its_link(taken: int) -> None:
    """Before, during and after the decoding of its first part; waiting receivers are notified."""
    async with rig() as rig_:
        changes: list[int] = []
        one, two = Source(), Source()
        queue = ReceiveQueue(rig_.services.decoder, lambda: changes.append(len(queue)))
        queue.add(one, long_delivery(1, count=2_500))
        queue.add(two, delivery(1, b"stays"))
        queue.take()
        for _ in range(taken):
            while queue.take() is None:
                await ticks()
        changes.clear()
        assert 2_500 - taken == queue.drop(one)
        assert [1] == [len(queue)]
        assert changes
        assert [b"stays"] == take_all(queue)
        await ticks()
        assert 0 == rig_.services.supervisor.task_count


async def test_damaged_long_batch_raises_before_any_message() -> None:
    async with rig() as rig_:
        one = Source()
        queue = ReceiveQueue(rig_.services.decoder, lambda: None)
        queue.add(one, long_delivery(1, count=2_500, is_damaged=True))
        queue.add(one, delivery(2, b"behind"))
        assert queue.take() is None
        await ticks()
        with pytest.raises(Unreadable, match="5:1"):
            queue.take()
        assert ([2_500], 1) == (one.returned, len(queue))
        assert [b"behind"] == take_all(queue)


async def test_parts_of_a_long_batch_are_put_together() -> None:
    async with rig() as rig_:
        queue = ReceiveQueue(rig_.services.decoder, lambda: None)
        queue.add(Source(), long_delivery(1, count=2_500))
        queue.take()
        assert not queue.gather(2_000)
        while not queue.gather(2_000):
            await ticks()
        assert 2_000 == len(take_all(queue))
