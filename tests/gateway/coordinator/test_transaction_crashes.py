"""Transactions in random order, with crashes anywhere; row 126 of docs/SCENARIOS.md at large.

Compared with a list of requests and their answers: a reported outcome holds; records of both
partitions and the offset of a group appear together or not at all; transactions that were aborted,
timed out or never ended stay invisible; and nothing hangs.
"""

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from kledger.batches.reader import iterate_batches, iterate_records, read_is_commit
from kledger.gateway.config import GatewayConfig
from kledger.ledger.testing import FaultyEngine
from tests.gateway.running import RunningGateway, fetch, running_gateway, until
from tests.gateway.txn_client import NEW, OLD, TxnClient, committed
from tests.gateway.wire_client import WireClient

SWEEP_MS = GatewayConfig().transaction_abort_timed_out_transaction_cleanup_interval_ms
NAMES = ("old", "new")
PARTITIONS = (0, 1)
CONCURRENT = 51


@dataclass
class Attempt:
    """One transaction; `requested` and `is_answered` are about its end."""

    number: int
    name: str
    values: set[tuple[int, bytes]] = field(default_factory=set)
    has_offset: bool = False
    requested: str = "nothing"
    is_answered: bool = False


class Story:
    """The requests and their answers, over all restarts."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.engine = FaultyEngine(None)
        self.attempts: list[Attempt] = []

    async def live(self, *, is_first: bool) -> None:
        """Serve some transactions; the last one is cut off by a crash."""
        async with running_gateway(engine=self.engine) as gateway, gateway.client() as client:
            if is_first:
                await gateway.create_topic(partitions=len(PARTITIONS))
            producers = {name: await began(client, name) for name in NAMES}
            for _ in range(self.random.randrange(4)):
                await self.attempt(gateway, producers[self.random.choice(NAMES)])
            await self.crash_during(gateway, producers[self.random.choice(NAMES)])

    async def crash_during(self, gateway: RunningGateway, producer: TxnClient) -> None:
        moment: Any = self.random.choice(("commit", "sync"))
        for _ in range(self.random.randrange(12)):
            self.engine.delay_next(moment, 0)
        hold = self.engine.hold_next(moment)
        work = asyncio.ensure_future(self.attempt(gateway, producer))
        reaching = asyncio.ensure_future(hold.reached())
        await asyncio.wait([work, reaching], return_when=asyncio.FIRST_COMPLETED)
        self.engine.drop_unsynced()
        for each in (work, reaching):
            each.cancel()
        await asyncio.gather(work, reaching, return_exceptions=True)

    async def attempt(self, gateway: RunningGateway, producer: TxnClient) -> None:
        """Run one transaction with random parts; record what was acknowledged."""
        one = Attempt(len(self.attempts) + 1, producer.transactional_id)
        self.attempts.append(one)
        is_old = one.name == "old"
        partitions = self.random.sample(PARTITIONS, self.random.randint(1, 2))
        if is_old:
            assert {0} == set((await producer.add(*partitions)).values())
        for partition in partitions * self.random.randint(1, 2):
            value = b"%d-%d" % (one.number, len(one.values))
            version = 11 if is_old else 12
            assert 0 == await producer.produce(value, partition=partition, version=version)
            one.values.add((partition, value))
        if self.random.random() < 0.7:
            if is_old:
                assert 0 == await producer.add_group(one.name)
            version = 4 if is_old else 5
            assert 0 == await producer.commit_offset(one.name, one.number, version=version)
            one.has_offset = True
        await self.end(gateway, producer, one)

    async def end(self, gateway: RunningGateway, producer: TxnClient, one: Attempt) -> None:
        chance = self.random.random()
        if chance < 0.15:
            one.requested = "timeout"
            await timed_out(gateway, one.name)
            assert 0 == await producer.init(
                producer_id=producer.producer_id, producer_epoch=producer.epoch, timeout_ms=5_000
            )
        elif chance < 0.25:
            one.requested = "another"
            producer.__dict__.update((await began(producer.client, one.name)).__dict__)
        else:
            one.requested = "commit" if chance < 0.7 else "abort"
            version = OLD if one.name == "old" else NEW
            error = CONCURRENT
            while error == CONCURRENT:
                error = await producer.end(commit=one.requested == "commit", version=version)
            assert 0 == error
        one.is_answered = True

    async def check(self) -> None:
        """Look at everything, in a life without a crash."""
        async with running_gateway(engine=self.engine) as gateway, gateway.client() as client:
            for name in NAMES:
                await began(client, name)
            await until(lambda: all(each.state.is_idle for each in records(gateway)))
            seen = {(index, value) for index in PARTITIONS for value in await values(client, index)}
            offsets = dict.fromkeys(NAMES, -1)
            for one in self.attempts:
                visible = one.values & seen
                if one.requested == "commit" and (one.is_answered or visible):
                    assert one.values == visible, f"{one} is seen in part"
                    if one.has_offset:
                        offsets[one.name] = one.number
                else:
                    assert set() == visible, f"{one} is seen"
            assert seen <= {each for one in self.attempts for each in one.values}
            for name in NAMES:
                expected = 0, offsets[name]
                assert expected == await committed(client, name, require_stable=True)
            await self.attempt(gateway, await began(client, "old"))


def records(gateway: RunningGateway) -> list[Any]:
    return gateway.services.transactions.records()


async def began(client: WireClient, name: str) -> TxnClient:
    """A new producer; what is in its way is aborted first."""
    producer = TxnClient(client, name)
    error = CONCURRENT
    while error == CONCURRENT:
        error = await producer.init(timeout_ms=5_000)
    assert 0 == error
    return producer


async def timed_out(gateway: RunningGateway, name: str) -> None:
    for _ in range(2):
        gateway.clock.advance(SWEEP_MS)
        await asyncio.sleep(0)
    record = gateway.services.transactions.record
    await until(lambda: (found := record(name)) is not None and found.state.is_idle)


async def values(client: WireClient, partition: int) -> list[bytes]:
    """Read as a read_committed consumer does; the log must be stable to its end."""
    request = fetch({partition: 0}, isolation_level=1)
    (found,) = (await client.ask(request, 12)).responses[0].partitions
    assert (0, found.high_watermark) == (found.error_code, found.last_stable_offset)
    starts = sorted((one.first_offset, one.producer_id) for one in found.aborted_transactions)
    aborted: set[int] = set()
    seen = []
    for header, batch in iterate_batches(bytes(found.records)):
        while starts and starts[0][0] <= header.base_offset:
            aborted.add(starts.pop(0)[1])
        if header.is_control:
            if not read_is_commit(batch):
                aborted.discard(header.producer_id)
        elif header.producer_id not in aborted:
            seen += [bytes(each.value or b"") for each in iterate_records(batch)]
    return seen


@pytest.mark.parametrize("seed", range(12))
async def test_transactions_hold_over_crashes(seed: int) -> None:
    story = Story(seed)
    for life in range(4):
        await story.live(is_first=life == 0)
    await story.check()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1_000, 1_100))
async def test_transactions_hold_over_crashes_at_length(seed: int) -> None:
    story = Story(seed)
    for life in range(8):
        await story.live(is_first=life == 0)
    await story.check()
