"""Builders of the forwarder's tests: a source and a target whose every step can be held."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.reader import iterate_records
from kledger.ledger import Buffer, Cursor, LedgerError, ManagedLedger, Position
from kledger.native.errors import InvalidArgument, KledgerError, Unavailable
from kledger.native.forwarder.forwarder_state import Failure, ForwardLimits, SourceEntry
from kledger.native.forwarder.source import CursorSource
from kledger.subscriptions.model import ALL

SECONDS_MAX = 120
LIMITS = ForwardLimits(
    entries_in_flight_max=5, bytes_in_flight_max=50, read_entries_max=3, backoff_min_ms=100,
    backoff_max_ms=500,
)  # fmt: skip
RETRIED = Failure(Unavailable("later"), is_final=False)
FINAL = Failure(InvalidArgument("never"), is_final=True)


def source_entry(number: int, size: int = 1) -> SourceEntry:
    return SourceEntry(Position(7, number), b"%d" % number * size, ALL, 1)


def at(number: int) -> Position:
    return Position(7, number)


async def until(condition: Callable[[], bool]) -> None:
    """Run the event loop until a condition holds; threads of the store may be slow."""
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():  # noqa: ASYNC110 (ticks of the loop, no time)
            await asyncio.sleep(0)


async def ticks(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def one(value: bytes) -> bytearray:
    return build_batch([NewRecord(value)])


def values_of(data: Buffer) -> list[bytes | None]:
    return [record.value for record in iterate_records(data)]


def value_of(data: Buffer) -> bytes:
    [value] = values_of(data)
    assert value is not None
    return value


async def add_batches(ml: ManagedLedger, values: list[bytes]) -> list[Position]:
    return await asyncio.gather(*(ml.add_entry(bytes(one(value))) for value in values))


class Gate:
    """A gate: open until a test closes it, then it passes one caller at a time."""

    def __init__(self) -> None:
        self.is_open = True
        self.waiting: list[asyncio.Future[None]] = []

    def close(self) -> None:
        self.is_open = False

    def open(self) -> None:
        self.is_open = True
        while self.let_one():
            pass

    def let_one(self) -> bool:
        """Pass the longest waiting caller; False if none waits."""
        self.waiting = [each for each in self.waiting if not each.done()]
        if self.waiting:
            self.waiting.pop(0).set_result(None)
            return True
        return False

    async def enter(self) -> None:
        if not self.is_open:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.waiting.append(waiter)
            await waiter


class HeldSource(CursorSource):
    """A cursor whose reads can be held before they begin, and before they return."""

    def __init__(self, cursor: Cursor) -> None:
        super().__init__(cursor)
        self.cursor = cursor
        self.beginning = Gate()
        self.handing = Gate()
        self.rewind_count = 0
        self.read_failures: list[LedgerError] = []
        self.mark_failures: list[LedgerError] = []

    async def rewind(self) -> int:
        self.rewind_count += 1
        return await super().rewind()

    async def read_or_wait(self, count: int, bytes_max: int) -> list[SourceEntry]:
        await self.beginning.enter()
        if self.read_failures:
            raise self.read_failures.pop(0)
        entries = await super().read_or_wait(count, bytes_max)
        await self.handing.enter()
        return entries

    async def mark_delete(self, entry: SourceEntry, number: int) -> None:
        if self.mark_failures:
            raise self.mark_failures.pop(0)
        await super().mark_delete(entry, number)


class ListTarget:
    """Takes batches into a list; keeps the promises of a target.

    `batches` are appended in the order in which the sends began; a send waits at `answering`
    before it is confirmed.
    """

    def __init__(self, sends_in_flight_max: int = 3) -> None:
        self.sends_in_flight_max = sends_in_flight_max
        self.batches: list[Buffer] = []
        self.answering = Gate()
        self.refused: dict[bytes, KledgerError] = {}
        self.start_failures: list[KledgerError] = []
        self.start_count = 0
        self.is_closed = False
        self._failure: KledgerError | None = None

    @property
    def values(self) -> list[bytes]:
        return [value_of(batch) for batch in self.batches]

    async def start(self) -> None:
        self.start_count += 1
        if self.start_failures:
            raise self.start_failures.pop(0)
        self._failure = None

    async def send(self, batch: Buffer) -> None:
        error = self._failure or self.refused.pop(value_of(batch), None)
        if error is None:
            self.batches.append(batch)
        else:
            self._failure = Unavailable("one before it failed")
        await self.answering.enter()
        if error is not None:
            raise error

    async def close(self) -> None:
        self.is_closed = True


class Preparing:
    """A hook whose calls are held for chosen values, and do not heed that they are cancelled.

    The key of its result identifies the call.
    """

    def __init__(self) -> None:
        self.held: dict[bytes, asyncio.Future[None]] = {}
        self.calls: list[bytes] = []

    def hold(self, value: bytes) -> "asyncio.Future[None]":
        """The next call for this value waits for what is returned, and fails when that does."""
        self.held[value] = asyncio.get_running_loop().create_future()
        return self.held[value]

    async def __call__(self, entry: SourceEntry) -> Buffer | None:
        value = value_of(entry.data)
        call = len(self.calls)
        self.calls.append(value)
        if (held := self.held.pop(value, None)) is not None:
            while not held.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.shield(held)
            held.result()
        return build_batch([NewRecord(value, b"%d" % call)])


def call_of(batch: Buffer) -> int:
    """Return which call of the hook a batch comes from."""
    [record] = iterate_records(batch)
    assert record.key is not None
    return int(record.key)
