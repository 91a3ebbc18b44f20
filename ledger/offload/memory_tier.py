"""Memory tier: an offloader whose copies are in memory, with faults that a test injects.

Rule: a fault is used by the first call of its kind that begins after it was armed. A call that
loses its answer has done its work. A copy appears piece by piece, and is whole when its call ends;
what a broken attempt wrote stays until it is deleted.
Must not know: the store on top.
"""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Literal, TypeAlias
from uuid import UUID

from kledger.ledger.engine.base import Buffer
from kledger.ledger.errors import Corrupt, InvalidArgument, NonRecoverable, TierUnavailable
from kledger.ledger.offload.offloader import LedgerOffloader, OffloadSource

TierCall: TypeAlias = Literal["offload", "open", "read", "close", "delete"]
Fault: TypeAlias = Callable[[], Awaitable[None]]
PIECE_BYTES = 1 << 10
"""Bytes that `offload` reads at once: several pieces for most ledgers of a test."""


class TierHold:
    """One call, held until the test releases it or lets it fail."""

    def __init__(self, *, is_stubborn: bool = False) -> None:
        self._reached = asyncio.Event()
        self._released = asyncio.Event()
        self._error: Exception | None = None
        self._is_stubborn = is_stubborn

    async def reached(self) -> None:
        """Wait until the call is held."""
        await self._reached.wait()

    def release(self) -> None:
        """Let the call continue."""
        self._released.set()

    def fail(self, error: Exception | None = None) -> None:
        """Let the call fail."""
        self._error = error or TierUnavailable("a test lets the tier fail")
        self._released.set()

    async def pass_through(self) -> None:
        """Hold the call."""
        self._reached.set()
        while not self._released.is_set():
            try:
                await self._released.wait()
            except asyncio.CancelledError:
                if not self._is_stubborn:
                    raise
        if self._error is not None:
            raise self._error


class MemoryTier:
    """The tier.

    Attributes:
        copies: entries by ledger id and attempt, whole or not.
        calls: begun so far, by their kind.
        is_down: whether every call fails.
        open_count: opened copies that were not closed.
    """

    def __init__(self, name: str = "memory", location: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.location = dict(location or {"bucket": "memory"})
        self.copies: dict[tuple[int, UUID], list[bytes]] = {}
        self.calls: Counter[TierCall] = Counter()
        self.is_down = False
        self.open_count = 0
        self._whole: set[tuple[int, UUID]] = set()
        self._before: defaultdict[TierCall, deque[Fault]] = defaultdict(deque)
        self._after: defaultdict[TierCall, deque[Fault]] = defaultdict(deque)

    @property
    def ledger_ids(self) -> list[int]:
        """Ledgers of all copies, whole or not, ascending; one with two copies is in it twice."""
        return sorted(ledger_id for ledger_id, _ in self.copies)

    def add_copy(self, ledger_id: int, attempt: UUID, entries: Sequence[bytes]) -> None:
        """Put a whole copy there, as an earlier process has."""
        self.copies[ledger_id, attempt] = [*entries]
        self._whole.add((ledger_id, attempt))

    # Faults

    def fail_next(self, call: TierCall, error: Exception | None = None) -> None:
        """Let the next call fail before it does anything; of `offload`, after its first piece."""
        self._before[call].append(_raiser(error))

    def lose_answer_of_next(self, call: TierCall, error: Exception | None = None) -> None:
        """Let the next call do its work and fail then."""
        self._after[call].append(_raiser(error))

    def hold_next(self, call: TierCall, *, is_stubborn: bool = False) -> TierHold:
        """Hold the next call before it does anything; `offload`, after its first piece.

        Args:
            call: its kind.
            is_stubborn: whether it goes on after a cancellation, as code of others may.
        """
        hold = TierHold(is_stubborn=is_stubborn)
        self._before[call].append(hold.pass_through)
        return hold

    # LedgerOffloader

    async def offload(
        self, source: OffloadSource, attempt: UUID, location: Mapping[str, str]
    ) -> None:
        """See `LedgerOffloader`."""
        self._check(location)
        entries = self.copies[source.ledger_id, attempt] = []
        is_begun = False
        while len(entries) < source.entries:
            entries += map(bytes, await source.read(len(entries), bytes_max=PIECE_BYTES))
            if not is_begun:
                await self._begin("offload")
                is_begun = True
        await self._end("offload")
        self._whole.add((source.ledger_id, attempt))

    async def open(
        self, ledger_id: int, attempt: UUID, location: Mapping[str, str]
    ) -> "MemoryCopy":
        """See `LedgerOffloader`."""
        self._check(location)
        await self._begin("open")
        if (ledger_id, attempt) not in self.copies:
            raise NonRecoverable(f"there is no copy of ledger {ledger_id}, attempt {attempt}")
        if (ledger_id, attempt) not in self._whole:
            raise Corrupt(f"the copy of ledger {ledger_id}, attempt {attempt}, is not whole")
        await self._end("open")
        key = ledger_id, attempt
        self.open_count += 1
        return MemoryCopy(len(self.copies[key]), partial(self._read, key), self._close)

    async def delete(self, ledger_id: int, attempt: UUID, location: Mapping[str, str]) -> None:
        """See `LedgerOffloader`."""
        self._check(location)
        await self._begin("delete")
        self.copies.pop((ledger_id, attempt), None)
        self._whole.discard((ledger_id, attempt))
        await self._end("delete")

    # Inside

    async def _read(self, key: tuple[int, UUID], first: int, end: int) -> list[bytes]:
        """Return entries of a copy."""
        await self._begin("read")
        entries = self.copies.get(key)
        if entries is None:
            raise NonRecoverable(f"the copy of ledger {key[0]}, attempt {key[1]}, was deleted")
        await self._end("read")
        return entries[first:end]

    async def _close(self) -> None:
        await self._begin("close")
        self.open_count -= 1

    def _check(self, location: Mapping[str, str]) -> None:
        if dict(location) != self.location:
            raise InvalidArgument(f"location: expected {self.location}, got {dict(location)}")

    async def _begin(self, call: TierCall) -> None:
        self.calls[call] += 1
        await _next_tick()  # as over a network, no call ends in the tick in which it begins
        if self.is_down:
            raise TierUnavailable("the tier is down")
        if self._before[call]:
            await self._before[call].popleft()()

    async def _end(self, call: TierCall) -> None:
        if self._after[call]:
            await self._after[call].popleft()()


class MemoryCopy:
    """An opened copy in memory."""

    def __init__(
        self,
        entries: int,
        read_range: Callable[[int, int], Awaitable[list[bytes]]],
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Open one.

        Args:
            entries: how many it has.
            read_range: returns the entries from the first id up to the second, which is exclusive.
            close: notes its end.
        """
        self.entries = entries
        self._read_range = read_range
        self._close = close

    async def read(self, first: int, *, end: int, bytes_max: int) -> Sequence[Buffer]:
        """See `TieredLedger`."""
        entries = await self._read_range(first, end)
        left = bytes_max
        for count, entry in enumerate(entries):
            left -= len(entry)
            if left < 0 and count:
                return entries[:count]
        return entries

    async def close(self) -> None:
        """See `TieredLedger`."""
        if self._close is not None:
            await self._close()


async def _next_tick() -> None:
    tick: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(tick.set_result, None)
    await tick


def _raiser(error: Exception | None) -> Fault:
    async def fail() -> None:
        raise error or TierUnavailable("a test lets the tier fail")

    return fail


class MemoryTiers:
    """An `OffloaderFactory` of one memory tier, whose URL is `memory:` and its name."""

    def __init__(self, tier: MemoryTier) -> None:
        self._tier = tier

    def from_url(self, url: str) -> LedgerOffloader:
        """See `OffloaderFactory`."""
        if url != f"memory:{self._tier.name}":
            raise InvalidArgument(f"url: expected memory:{self._tier.name}, got {url!r}")
        return self._tier

    def from_location(self, name: str, location: Mapping[str, str]) -> LedgerOffloader | None:
        """See `OffloaderFactory`."""
        return self._tier if name == self._tier.name else None
