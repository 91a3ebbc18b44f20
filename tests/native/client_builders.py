"""Builders for tests of the client: a scripted broker and a manual clock."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kledger.batches.builder import NewRecord, build_batch
from kledger.ledger import Position
from kledger.native.client.message_decoder import STEPS_PER_TICK_MAX, MessageDecoder
from kledger.native.client.operations import ClientOperations
from kledger.native.client.services import ClientServices
from kledger.runtime.blocking import BlockingRunner, InlinePool
from kledger.runtime.compute_pool import ComputePool
from kledger.runtime.entropy import SeededEntropy
from kledger.runtime.manual_clock import ManualClock
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.subscriptions.model import ALL, Delivery
from tests.native.recording_broker import RecordingBroker


@dataclass
class Rig:
    """The objects that a test uses."""

    services: ClientServices
    broker: RecordingBroker
    clock: ManualClock
    crashes: list[BaseException]

    async def pass_ms(self, ms: int) -> None:
        """Let time pass, and everything happen that is due."""
        await ticks()
        self.clock.advance(ms)
        await ticks()


@asynccontextmanager
async def rig(broker: RecordingBroker | None = None) -> AsyncIterator[Rig]:
    """Nothing may crash in it."""
    broker = broker or RecordingBroker()
    clock = ManualClock(1_000_000)
    crashes: list[BaseException] = []
    supervisor = Supervisor(crashes.append)
    timers = Timers(clock, supervisor)
    services = ClientServices(
        broker=broker,
        clock=clock,
        timers=timers,
        operations=ClientOperations(timers),
        decoder=decoder(supervisor),
        supervisor=supervisor,
        entropy=SeededEntropy(0),
    )
    yield Rig(services, broker, clock, crashes)
    await supervisor.close()
    assert [] == crashes


def decoder(supervisor: Supervisor, pool: BlockingRunner | None = None) -> MessageDecoder:
    """A decoder without threads, unless a pool is given."""
    long_calls = ComputePool(pool or InlinePool(), cost_per_tick_max=STEPS_PER_TICK_MAX)
    return MessageDecoder(long_calls, supervisor)


async def ticks(count: int = 20) -> None:
    """Run that many ticks of the event loop."""
    for _ in range(count):
        await asyncio.sleep(0)


def delivery(
    entry_id: int, *values: bytes | None, records: int = ALL, redelivery_count: int = 0
) -> Delivery:
    """One entry of these values, as a server delivers it."""
    batch = build_batch([NewRecord(value) for value in values])
    return Delivery(Position(5, entry_id), batch, records, redelivery_count)


def damaged(entry_id: int) -> Delivery:
    """One entry of three records that are none."""
    batch = build_batch([NewRecord(b"value")] * 3)
    batch[61] = 0x7E
    return Delivery(Position(5, entry_id), batch, ALL, 0)


def long_delivery(
    entry_id: int, *, count: int, records: int = ALL, is_damaged: bool = False
) -> Delivery:
    """One entry of the values 0 to `count` - 1; the last record of a damaged one is none."""
    batch = build_batch([NewRecord(b"%d" % number) for number in range(count)])
    if is_damaged:
        batch[-6] = 0x7E
    return Delivery(Position(5, entry_id), batch, records, 0)
