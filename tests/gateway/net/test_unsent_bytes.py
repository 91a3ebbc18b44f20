"""Fetches wait for room in their order, stalled connections are closed, memory is returned."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from kledger.gateway.config import MIB, GatewayConfig
from kledger.gateway.net.unsent_bytes import CALM_PERIOD_MS, MEASURE_PERIOD_MS, UnsentBytes
from kledger.gateway.net.unsent_state import STALLED_MS
from kledger.runtime.free_memory import PERIOD_MS
from tests.gateway.running import RunningGateway, running_gateway, until

LIMIT = 256 * MIB


class Socket:
    """Takes as many bytes as a test says."""

    def __init__(self, unsent: UnsentBytes, name: str = "slow") -> None:
        self.unsent_bytes = self.taken_bytes = 0
        self.peer_host = name
        self.is_aborted = False
        self._unsent = unsent

    def write(self, size: int) -> None:
        self.unsent_bytes += size
        self._unsent.measure(self)

    def take(self, size: int) -> None:
        """Take bytes without a call, as a transport does."""
        self.unsent_bytes -= size
        self.taken_bytes += size

    def abort(self) -> None:
        self.is_aborted = True


class Trim:
    """Counts how often memory was given back."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture(name="gateway")
async def make_gateway() -> AsyncIterator[RunningGateway]:
    async with running_gateway(GatewayConfig(queued_max_response_bytes=LIMIT)) as gateway:
        yield gateway


@pytest.fixture(name="trim")
def make_trim() -> Trim:
    return Trim()


@pytest.fixture(name="unsent")
async def make_unsent(gateway: RunningGateway, trim: Trim) -> AsyncIterator[UnsentBytes]:
    unsent = UnsentBytes(gateway.services, give_back=trim)
    yield unsent
    unsent.close()


async def after(gateway: RunningGateway, ms: int, condition: Callable[[], bool]) -> None:
    """Advance the clock, and run the event loop until the condition holds."""
    await asyncio.sleep(0)
    gateway.clock.advance(ms)
    await until(condition)


def wait(unsent: UnsentBytes, socket: Socket, resumed: list[str]) -> None:
    assert not unsent.has_room(socket)
    unsent.wait(socket, lambda: resumed.append(socket.peer_host))


async def test_fetches_go_on_in_their_order_when_others_have_taken(
    gateway: RunningGateway, unsent: UnsentBytes
) -> None:
    slow, resumed = Socket(unsent), list[str]()
    slow.write(LIMIT)
    for name in ("first", "second"):
        wait(unsent, Socket(unsent, name), resumed)
    slow.take(LIMIT)
    late = Socket(unsent, "late")
    assert not unsent.has_room(late), "it must not overtake waiting fetches"
    await after(gateway, MEASURE_PERIOD_MS, lambda: len(resumed) == 2)
    assert ["first", "second"] == resumed
    assert unsent.has_room(late)


async def test_stalled_connections_are_closed_only_when_there_is_no_room(
    gateway: RunningGateway, unsent: UnsentBytes
) -> None:
    small, large = Socket(unsent), Socket(unsent)
    small.write(LIMIT // 4)
    large.write(LIMIT // 2 + 1)
    gateway.clock.advance(10 * STALLED_MS)
    good = Socket(unsent, "good")
    assert unsent.has_room(good)
    assert not large.is_aborted
    small.write(LIMIT // 4)
    assert unsent.has_room(good), "no fetch waits for stalled connections"
    assert (True, False) == (large.is_aborted, small.is_aborted)
    assert 1 == gateway.services.metrics.snapshot()["slow_readers_closed"]


async def test_a_stalled_connection_is_closed_so_that_others_go_on(
    gateway: RunningGateway, unsent: UnsentBytes
) -> None:
    slow = [Socket(unsent) for _ in range(4)]
    for each in slow:
        each.write(LIMIT // 4)
    resumed: list[str] = []
    wait(unsent, Socket(unsent, "good"), resumed)
    await after(gateway, STALLED_MS, lambda: bool(resumed))
    assert 1 == sum(each.is_aborted for each in slow)


async def test_a_connection_with_unsent_bytes_waits_and_blocks_no_other(
    gateway: RunningGateway, unsent: UnsentBytes
) -> None:
    slow, resumed = Socket(unsent), list[str]()
    slow.write(LIMIT // 2)
    wait(unsent, slow, resumed)
    assert unsent.has_room(Socket(unsent, "good"))
    slow.take(LIMIT // 2)
    await after(gateway, MEASURE_PERIOD_MS, lambda: bool(resumed))
    assert ["slow"] == resumed


async def test_sockets_are_looked_at_before_fetches_are_cut(
    gateway: RunningGateway, unsent: UnsentBytes
) -> None:
    """A transport does not say that it has written: what it held long ago does not count."""
    socket = Socket(unsent)
    socket.write(LIMIT // 2)
    socket.take(LIMIT // 2)
    gateway.clock.advance(MEASURE_PERIOD_MS)
    assert LIMIT // 8 == unsent.fetch_bytes_max()


async def test_a_closed_connection_neither_counts_nor_is_resumed(
    gateway: RunningGateway, unsent: UnsentBytes
) -> None:
    slow, gone, other, resumed = Socket(unsent), Socket(unsent), Socket(unsent), list[str]()
    slow.write(LIMIT)
    wait(unsent, gone, resumed)
    wait(unsent, other, resumed)
    unsent.forget(gone)
    unsent.forget(slow)
    await after(gateway, MEASURE_PERIOD_MS, lambda: bool(resumed))
    assert (["slow"], 0) == (resumed, unsent.state.total)


async def test_resumed_fetch_may_close_a_waiting_one(
    gateway: RunningGateway, unsent: UnsentBytes
) -> None:
    """Its next request needs room at once; a KeyError kept all others waiting."""
    slow, first, second, resumed = Socket(unsent), Socket(unsent), Socket(unsent), list[str]()
    slow.write(LIMIT)
    assert not unsent.has_room(first)
    unsent.wait(first, lambda: unsent.forget(second))
    wait(unsent, second, resumed)
    wait(unsent, Socket(unsent, "third"), resumed)
    slow.take(LIMIT)
    await after(gateway, MEASURE_PERIOD_MS, lambda: bool(resumed))
    assert ["third"] == resumed


async def test_freed_memory_is_given_back_at_once_and_then_after_a_period(
    gateway: RunningGateway, unsent: UnsentBytes, trim: Trim
) -> None:
    socket = Socket(unsent)

    async def fill_and_take() -> None:
        gateway.clock.advance(CALM_PERIOD_MS)
        socket.write(LIMIT)
        await after(gateway, CALM_PERIOD_MS, lambda: unsent.state._peak == LIMIT)
        socket.take(LIMIT)
        await after(gateway, CALM_PERIOD_MS, lambda: not unsent.state.holders)

    await fill_and_take()
    await until(lambda: trim.count == 1)
    await fill_and_take()
    assert 1 == trim.count
    await after(gateway, PERIOD_MS, lambda: trim.count == 2)


async def test_a_connection_is_idle_when_nothing_is_taken_for_as_long_as_it_may_be(
    gateway: RunningGateway, unsent: UnsentBytes
) -> None:
    idle_ms = gateway.services.config.connections_max_idle_ms
    socket = Socket(unsent)
    socket.write(100)
    gateway.clock.advance(idle_ms - 1)
    assert not unsent.is_idle(socket)
    gateway.clock.advance(1)
    assert unsent.is_idle(socket)
