"""Words that the tests of named topics share."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import kledger
from kledger.runtime.manual_clock import ManualClock
from kledger.testing import Server
from tests.native.contract.words import SOON_MS

SETTINGS: Mapping[str, object] = {
    "native.function_modules": "json, tests.native.contract",
    "native.function_timeout_ms": 600_000,  # for slow machines; none of these functions blocks
}
TIMEOUT_MS = 10_000
"""How long a subscriber of these tests may be silent, by a manual clock."""


async def publish(
    topic: kledger.NamedTopic, values: Iterable[bytes], *, channel: int = 0
) -> list[kledger.ChannelPosition]:
    """Publish these to one channel, in their order; return their positions."""
    async with await topic.create_publisher(order_by=kledger.OrderBy.id(channel)) as publisher:
        found = [await publisher.publish(value) for value in values]
    assert {channel} <= {each.channel for each in found} | {channel}
    return [each.position for each in found]


async def receive(subscriber: kledger.Subscriber, count: int) -> list[kledger.Element]:
    """Receive as many, one after the other."""
    found = []
    async with asyncio.timeout(SOON_MS / 1000):
        for _ in range(count):
            element = await subscriber.receive()
            assert element is not None
            found.append(element)
    return found


async def receive_values(subscriber: kledger.Subscriber, count: int) -> list[object]:
    """Receive as many, and return their values."""
    return [each.value for each in await receive(subscriber, count)]


async def is_empty(topic: kledger.NamedTopic, group: str) -> bool:
    """Return whether a subscriber that joins the group for a moment receives nothing."""
    async with await topic.create_subscriber(group=group, complete_on_empty=True) as subscriber:
        return await soon(subscriber.receive()) is None


async def soon(awaited: "asyncio.Future[object] | object") -> object:
    """Await something that does not hang."""
    async with asyncio.timeout(SOON_MS / 1000):
        return await awaited  # type: ignore[misc]


async def until(condition: Callable[[], object]) -> None:
    """Return when a condition holds."""
    deadline = asyncio.get_running_loop().time() + SOON_MS / 1000
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it never came true"
        await asyncio.sleep(0)


class Listener:
    """Records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, frozenset[int]]] = []

    def on_assigned(self, channels: frozenset[int]) -> None:
        self.calls.append(("assigned", channels))

    async def on_revoked(self, channels: frozenset[int]) -> None:
        await asyncio.sleep(0)
        self.calls.append(("revoked", channels))

    def on_lost(self, channels: frozenset[int]) -> None:
        self.calls.append(("lost", channels))


@asynccontextmanager
async def timed_embedded(clock: ManualClock) -> AsyncIterator[kledger.Client]:
    """A client with its server, by one clock."""
    async with kledger.embedded(None, clock=clock, operation_timeout_ms=SOON_MS) as client:
        yield client


@asynccontextmanager
async def timed_remote(clock: ManualClock) -> AsyncIterator[kledger.Client]:
    """A client of a server, by one clock; the client's own is patched by the fixture."""
    async with (
        Server(native="127.0.0.1:0", clock=clock) as server,
        kledger.connect(
            f"kledger://{server.native_address}", operation_timeout_ms=SOON_MS
        ) as client,
    ):
        yield client


TIMED: dict[str, Callable[[ManualClock], AbstractAsyncContextManager[kledger.Client]]] = {
    "embedded": timed_embedded,
    "remote": timed_remote,
}
