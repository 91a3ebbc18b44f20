"""A running server, and a command line that connects to it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import kledger
from kledger.native.client.client import Client
from tests.kledger.cli.stores import CommandResult

Capture = pytest.CaptureFixture[str]


class Shell:
    """Runs commands against a server, and does to it what no command does."""

    def __init__(self, address: str, capsys: Capture, noun: str) -> None:
        self.address = address
        self._capsys = capsys
        self._noun = noun

    def __call__(self, *words: object) -> CommandResult:
        return CommandResult(self._capsys, *words, "--native", self.address, noun=self._noun)

    def of(self, noun: str) -> "Shell":
        """Return one for another noun."""
        return Shell(self.address, self._capsys, noun)

    def with_client(self, work: Callable[[Client], Awaitable[None]]) -> None:
        with_client(self.address, work)

    def send(self, topic: str, *values: bytes, key: bytes | None = None) -> None:
        """Send each value in a batch of its own."""

        async def sending(client: Client) -> None:
            async with await client.create_producer(topic, batching=False) as producer:
                for value in values:
                    await producer.send(value, key=key, properties={"h": "1"})

        self.with_client(sending)


def with_client(address: str, work: Callable[[Client], Awaitable[None]]) -> None:
    async def connected() -> None:
        async with asyncio.timeout(60), kledger.connect(f"kledger://{address}") as client:
            await work(client)

    asyncio.run(connected())


def values_of(address: str, topic: str) -> list[bytes | None]:
    """Read everything there is in a topic."""
    found: list[bytes | None] = []

    async def reading(client: Client) -> None:
        async with await client.create_reader(topic, "earliest") as reader:
            while await reader.has_message_available():
                found.append((await reader.read_next(timeout_ms=60_000)).value)

    with_client(address, reading)
    return found
