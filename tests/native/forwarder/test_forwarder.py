"""The forwarder over a cursor and a list: failures are retried, and no record is lost."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kledger.batches.errors import CorruptBatch
from kledger.ledger import (
    EARLIEST,
    Corrupt,
    LedgerStore,
    ManagedLedger,
    ManagedLedgerConfig,
    StorageFailed,
)
from kledger.ledger.testing import ManualClock
from kledger.native.errors import InvalidArgument, Unavailable
from kledger.native.forwarder.forwarder import Forwarder, PrepareEntry, prepare_unchanged
from kledger.native.forwarder.forwarder_state import ForwardLimits, Phase, SourceEntry
from tests.native.forwarder.builders import (
    HeldSource,
    ListTarget,
    Preparing,
    add_batches,
    ticks,
    until,
    value_of,
)

LIMITS = ForwardLimits(read_entries_max=2, entries_in_flight_max=3)


class Forwarding:
    """A running forwarder with its source and its target."""

    def __init__(self, ml: ManagedLedger, source: HeldSource) -> None:
        self.ml = ml
        self.source = source
        self.clock = ManualClock()
        self.target = ListTarget()
        self.forwarder = Forwarder("orders-0", source, self.target, clock=self.clock, limits=LIMITS)
        self.running: asyncio.Future[None] | None = None

    def run(self, prepare: PrepareEntry = prepare_unchanged) -> "asyncio.Future[None]":
        self.forwarder = Forwarder(
            "orders-0", self.source, self.target,
            clock=self.clock, prepare=prepare, limits=LIMITS,
        )  # fmt: skip
        self.running = asyncio.ensure_future(self.forwarder.run())
        return self.running

    @property
    def is_done(self) -> bool:
        return self.source.cursor.mark_delete_position == self.ml.last_confirmed_entry

    async def backed_off(self, ms: int) -> None:
        """Wait until it waits, and let that time pass, but not before it is over."""
        state = self.forwarder.state
        await until(lambda: state.phase is Phase.WAITING and self.clock.sleeper_count == 1)
        self.clock.advance(ms - 1)
        await ticks()
        assert Phase.WAITING is state.phase
        self.clock.advance(1)
        await until(lambda: state.phase is Phase.RUNNING or state.phase is Phase.SETTLING)

    async def ends(self) -> None:
        await until(lambda: self.is_done)
        self.forwarder.close()
        assert self.running is not None
        await self.running


@pytest.fixture
async def forwarding() -> AsyncIterator[Forwarding]:
    async with LedgerStore.open(None) as store:
        config = ManagedLedgerConfig(max_entries_per_ledger=2)
        ml = await store.open_managed_ledger("orders", config=config)
        await add_batches(ml, [b"%d" % number for number in range(6)])
        cursor = await ml.open_cursor("c", initial=EARLIEST)
        yield Forwarding(ml, HeldSource(cursor))


ALL_SIX = [b"0", b"1", b"2", b"3", b"4", b"5"]


async def test_stored_and_new_entries_are_forwarded(forwarding: Forwarding) -> None:
    forwarding.run()
    await until(lambda: forwarding.is_done)
    assert ALL_SIX == forwarding.target.values
    await add_batches(forwarding.ml, [b"6"])
    await forwarding.ends()
    assert [*ALL_SIX, b"6"] == forwarding.target.values
    assert (7, 1) == (forwarding.forwarder.state.forwarded_count, forwarding.source.rewind_count)
    assert forwarding.target.is_closed
    assert forwarding.source.cursor.is_closed


async def test_acknowledged_entries_are_not_forwarded_by_the_next_run(
    forwarding: Forwarding,
) -> None:
    forwarding.run()
    await forwarding.ends()
    cursor = await forwarding.ml.open_cursor("c")
    forwarding.source = HeldSource(cursor)
    await add_batches(forwarding.ml, [b"6"])
    forwarding.run()
    await forwarding.ends()
    assert [*ALL_SIX, b"6"] == forwarding.target.values


async def test_a_refused_batch_is_resent_before_later_ones(
    forwarding: Forwarding,
) -> None:
    forwarding.target.refused[b"1"] = Unavailable("no room")
    forwarding.run()
    await forwarding.backed_off(100)
    await forwarding.ends()
    assert ALL_SIX == forwarding.target.values
    assert 2 == forwarding.source.rewind_count == forwarding.target.start_count


@pytest.mark.parametrize("failure", ["read", "start", "mark", "prepare"])
async def test_failures_are_retried_and_nothing_is_sent_twice(
    forwarding: Forwarding, failure: str
) -> None:
    prepare = Preparing()
    match failure:
        case "read":
            forwarding.source.read_failures.append(StorageFailed("no luck"))
        case "start":
            forwarding.target.start_failures.append(Unavailable("not there"))
        case "mark":
            forwarding.source.mark_failures.append(StorageFailed("no luck"))
        case "prepare":
            prepare.hold(b"1").set_exception(OSError("no schema"))
    forwarding.run(prepare)
    await forwarding.backed_off(100)
    await forwarding.ends()
    assert ALL_SIX == forwarding.target.values


async def test_delays_grow_while_every_send_fails(forwarding: Forwarding) -> None:
    forwarding.target.start_failures += [Unavailable("not there")] * 3
    forwarding.run()
    for ms in (100, 200, 400):
        await forwarding.backed_off(ms)
    await forwarding.ends()
    assert 4 == forwarding.target.start_count


async def test_a_final_failure_ends_it_behind_what_was_confirmed(forwarding: Forwarding) -> None:
    forwarding.target.refused[b"2"] = InvalidArgument("too large")
    with pytest.raises(InvalidArgument, match="too large"):
        await forwarding.run()
    assert [b"0", b"1"] == forwarding.target.values
    cursor = await forwarding.ml.open_cursor("c")
    assert 4 == cursor.backlog
    assert forwarding.target.is_closed


async def test_an_entry_that_is_no_batch_ends_it(forwarding: Forwarding) -> None:
    async def prepare(entry: SourceEntry) -> bytearray | None:
        raise CorruptBatch("cut off")

    with pytest.raises(InvalidArgument, match="cut off") as raised:
        await forwarding.run(prepare)
    [note] = raised.value.__notes__
    assert note.startswith("forwarding orders-0: cannot prepare ")


async def test_an_unreadable_source_ends_it(forwarding: Forwarding) -> None:
    forwarding.source.read_failures.append(Corrupt("damaged"))
    with pytest.raises(Corrupt):
        await forwarding.run()


async def test_a_terminated_source_ends_it_when_everything_is_forwarded(
    forwarding: Forwarding,
) -> None:
    await forwarding.ml.terminate()
    await forwarding.run()
    assert ALL_SIX == forwarding.target.values
    assert 0 == (await forwarding.ml.open_cursor("c")).backlog


async def test_entries_can_be_changed_and_left_out(forwarding: Forwarding) -> None:
    async def odd_ones(entry: SourceEntry) -> bytearray | None:
        return copied if int(value_of(copied := bytearray(entry.data))) % 2 else None

    forwarding.run(odd_ones)
    await forwarding.ends()
    assert [b"1", b"3", b"5"] == forwarding.target.values


async def test_a_slow_entry_blocks_later_ones_within_the_limits(
    forwarding: Forwarding,
) -> None:
    prepare = Preparing()
    slow = prepare.hold(b"0")
    forwarding.run(prepare)
    await until(lambda: len(prepare.calls) == LIMITS.entries_in_flight_max)
    await ticks(50)
    assert ([b"0", b"1", b"2"], []) == (prepare.calls, forwarding.target.values)
    slow.set_result(None)
    await forwarding.ends()
    assert ALL_SIX == forwarding.target.values


async def test_a_reset_while_it_waits_for_entries_forwards_them_again(
    forwarding: Forwarding,
) -> None:
    forwarding.run()
    await until(lambda: forwarding.is_done)
    await forwarding.source.cursor.reset(EARLIEST)
    await until(lambda: len(forwarding.target.batches) == 12)
    await forwarding.ends()
    assert ALL_SIX * 2 == forwarding.target.values


async def test_close_waits_for_what_was_sent(forwarding: Forwarding) -> None:
    forwarding.target.answering.close()
    running = forwarding.run()
    await until(lambda: len(forwarding.target.answering.waiting) == 3)
    forwarding.forwarder.close()
    await ticks(50)
    assert not running.done()
    forwarding.target.answering.open()
    await running
    assert [b"0", b"1", b"2"] == forwarding.target.values
    assert 3 == (await forwarding.ml.open_cursor("c")).backlog


async def test_close_does_not_wait_for_a_rewind(forwarding: Forwarding) -> None:
    """The server may be away for hours."""
    began = asyncio.Event()

    async def start() -> None:
        began.set()
        await asyncio.Event().wait()

    forwarding.target.start = start  # type: ignore[method-assign]
    running = forwarding.run()
    await began.wait()
    forwarding.forwarder.close()
    await running


async def test_a_cancelled_run_closes_its_links(forwarding: Forwarding) -> None:
    forwarding.target.answering.close()
    running = forwarding.run()
    await until(lambda: bool(forwarding.target.answering.waiting))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert forwarding.target.is_closed
    assert forwarding.source.cursor.is_closed


async def test_an_unexpected_exception_ends_the_run(forwarding: Forwarding) -> None:
    """It ends the run and is not retried."""

    async def mark_delete(entry: SourceEntry, number: int) -> None:
        raise ZeroDivisionError

    forwarding.source.mark_delete = mark_delete  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        await forwarding.run()
