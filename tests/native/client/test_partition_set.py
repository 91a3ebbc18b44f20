"""All or none."""

import asyncio

import pytest

from kledger.native.broker import TopicInfo
from kledger.native.client.partition_set import close_all, open_all, watch_partitions
from kledger.native.errors import Unavailable
from tests.native.client_builders import rig, ticks
from tests.native.recording_broker import RecordingBroker


class Part:
    def __init__(self, *, opening: Exception | None = None, closing: Exception | None = None):
        self._opening, self._closing = opening, closing
        self.hold = asyncio.Event()
        self.hold.set()
        self.is_open = False
        self.closes = 0

    async def open(self) -> None:
        await self.hold.wait()
        if self._opening is not None:
            raise self._opening
        self.is_open = True

    async def close(self) -> None:
        self.is_open = False
        self.closes += 1
        if self._closing is not None:
            raise self._closing


async def test_failed_open_closes_all_partitions() -> None:
    parts = [Part(), Part(opening=ValueError("no")), Part(closing=KeyError("odd"))]
    with pytest.raises(ValueError, match="no"):
        await open_all(parts)
    assert [False, False, False] == [each.is_open for each in parts]


async def test_the_first_can_be_opened_before_the_others() -> None:
    parts = [Part(), Part(), Part()]
    parts[0].hold.clear()
    opening = asyncio.ensure_future(open_all(parts, first_alone=True))
    await ticks()
    assert [False, False, False] == [each.is_open for each in parts]
    parts[0].hold.set()
    await opening
    assert [True, True, True] == [each.is_open for each in parts]
    await open_all([], first_alone=True)


async def test_slow_open_is_closed_after_a_failure() -> None:
    slow, failing = Part(), Part(opening=ValueError("no"))
    slow.hold.clear()
    task = asyncio.ensure_future(open_all([failing, slow]))
    await ticks()
    slow.hold.set()
    with pytest.raises(ValueError, match="no"):
        await task
    assert (False, 1) == (slow.is_open, slow.closes)


async def test_cancelled_opening_closes_open_partitions() -> None:
    slow, quick = Part(), Part()
    slow.hold.clear()
    task = asyncio.ensure_future(open_all([quick, slow]))
    await ticks()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [1, 1] == [quick.closes, slow.closes]


async def test_failed_close_does_not_keep_the_others_open() -> None:
    parts = [Part(), Part(closing=ValueError("no")), Part()]
    await open_all(parts)
    with pytest.raises(ValueError, match="no"):
        await close_all(parts)
    assert [1, 1, 1] == [each.closes for each in parts]


class GrowingBroker(RecordingBroker):
    """Its topic has as many partitions as the test sets."""

    partition_count = 1

    async def lookup(self, topic: str, *, create: bool) -> TopicInfo:
        self.maybe_fail()
        assert not create, "it must not be created again"
        return TopicInfo(topic, self.partition_count)


async def test_new_partitions_are_reported_once() -> None:
    broker = GrowingBroker()
    async with rig(broker) as rig_:
        grown: list[range] = []
        failures = [Unavailable("not now")]

        async def grow(new: range) -> None:
            if failures:
                raise failures.pop()
            grown.append(new)

        rig_.services.supervisor.spawn(watch_partitions(rig_.services, "orders", 1, grow), "watch")
        period_ms = rig_.services.partition_refresh_ms
        await rig_.pass_ms(period_ms)
        assert [] == grown
        broker.partition_count = 3
        await rig_.pass_ms(period_ms - 1)
        assert [] == grown
        await rig_.pass_ms(1)  # cannot be taken in yet
        await rig_.pass_ms(period_ms)
        assert [range(1, 3)] == grown
        await rig_.pass_ms(period_ms)
        broker.fail_next = Unavailable("away")
        broker.partition_count = 4
        await rig_.pass_ms(period_ms)
        await rig_.pass_ms(period_ms)
        assert [range(1, 3), range(3, 4)] == grown
