"""Words that the contract's tests share."""

import asyncio
from collections.abc import Iterable, Sequence

import kledger

SOON_MS = 60_000
"""The time limit of a test that hangs; a passing test never waits for it."""
QUIET_MS = 50
"""Time in which what must not happen would have been seen."""


def values(count: int, *, first: int = 0) -> list[bytes]:
    """Return as many different values."""
    return [b"%d" % number for number in range(first, first + count)]


async def send(
    client: kledger.Client, topic: str, wanted: Iterable[bytes], *, key: bytes | None = None
) -> list[kledger.MessageId]:
    """Send these at once; return their ids."""
    async with await client.create_producer(topic) as producer:
        return await asyncio.gather(*(producer.send(value, key=key) for value in wanted))


async def receive(consumer: kledger.Consumer, count: int) -> list[kledger.Message]:
    """Receive as many."""
    async with asyncio.timeout(SOON_MS / 1000):
        return [await consumer.receive() for _ in range(count)]


async def receive_values(consumer: kledger.Consumer, count: int) -> list[bytes | None]:
    """Receive `count` messages and return their values."""
    return [message.value for message in await receive(consumer, count)]


async def divided(consumers: Sequence[kledger.Consumer], count: int) -> list[list[kledger.Message]]:
    """Receive as many from all of them together; return what each of them got."""
    found: list[list[kledger.Message]] = [[] for _ in consumers]
    async with asyncio.timeout(SOON_MS / 1000):
        while sum(map(len, found)) < count:
            for consumer, own in zip(consumers, found, strict=True):
                own.extend(await consumer.batch_receive(count, timeout_ms=QUIET_MS))
    return found


async def is_quiet(consumer: kledger.Consumer) -> bool:
    """Return whether no message arrives."""
    try:
        await consumer.receive(timeout_ms=QUIET_MS)
    except kledger.Timeout:
        return True
    return False


async def turn_loop(count: int = 30) -> None:
    """Run the event loop, so that due timers fire."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until_backlog(client: kledger.Client, topic: str, name: str, expected: int) -> None:
    """Return when a subscription has this backlog."""
    deadline = asyncio.get_running_loop().time() + SOON_MS / 1000
    while (found := (await client.subscription_stats(topic, name)).backlog) != expected:
        assert asyncio.get_running_loop().time() < deadline, f"backlog {found}, not {expected}"
        await asyncio.sleep(0)
