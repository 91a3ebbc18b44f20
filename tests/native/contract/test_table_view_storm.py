"""A table view while writers, transactions, deletions, new partitions and lost links go on.

One number, the seed, draws everything. Each write has a number that only grows, and each key is in
one partition. After a refresh the view is not older than what was acknowledged before the call; a
key never goes back; when everybody rests, the view equals a fold over everything, and so does a new
one.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

import pytest

import kledger
from kledger.batches.builder import NewRecord, build_batch
from kledger.gateway.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kledger.gateway.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kledger.testing import Server
from tests.gateway.running import produce
from tests.gateway.txn_client import TxnClient
from tests.gateway.wire_client import WireClient
from tests.native.contract.words import SOON_MS, turn_loop
from tests.native.muted_proxy import MutedProxy, muted_proxy

SOON = SOON_MS / 1000
TOPIC = "t"
WRITERS = 3
PARTITIONS_MAX = 4
STEPS = 60


class Storm:
    """The writers, the view, and what they must agree on."""

    def __init__(
        self,
        client: kledger.Client,
        kafka: WireClient,
        writers: list[WireClient],
        proxy: MutedProxy | None,
        seed: int,
    ) -> None:
        self.random = Random(seed)
        self.client = client
        self.kafka = kafka
        self.proxy = proxy
        self.idle = writers
        self.writing: set[asyncio.Task[None]] = set()
        self.partition_count = 1
        self.number = 0
        self.sent: dict[bytes, int] = {}  # the last number of each key
        self.removals: dict[bytes, int] = {}  # the last removal that was sent
        self.acknowledged: dict[bytes, int] = {}
        self.table: dict[bytes, int | None] = {}  # acknowledged; None: removed
        self.kept: dict[bytes, int | None] = {}  # the same since the last deletion of records
        self.seen: dict[bytes, int] = {}  # by the listener
        self.went_back: list[tuple[bytes, bytes]] = []
        self.producer = TxnClient(kafka)

    async def run(self) -> None:
        await self.client.create_topic(TOPIC)
        assert 0 == await self.producer.init()
        self.view = await self.client.create_table_view(TOPIC)
        await self.view.for_each_and_listen(self._on_update)
        steps = [self.write] * 6 + [self.refresh] * 6 + [self.transact] * 2
        steps += [self.rest, self.delete_records, self.grow, self.cut]
        for _ in range(STEPS):
            await self.random.choice(steps)()
            await turn_loop(self.random.choice((0, 1, 5, 20)))
        await self.rest()

    async def write(self) -> None:
        """Begin to write some records to one partition."""
        if self.idle:
            task = asyncio.ensure_future(self._write(self.idle.pop()))
            self.writing.add(task)
            task.add_done_callback(self.writing.discard)

    async def refresh(self) -> None:
        """Refresh, with what was acknowledged before as the measure."""
        acknowledged = dict(self.acknowledged)
        await self._refreshed()
        assert [] == self.went_back
        for key, number in acknowledged.items():
            value = self.view.get(key)
            if value is None:
                assert self.removals.get(key, -1) >= number, f"{key!r} is missing, written {number}"
            else:
                assert int(value) >= number, f"{key!r} is {value!r}, written {number}"

    async def transact(self) -> None:
        """Write in a transaction; meanwhile the end of the partition does not move."""
        await self._written()
        await self.producer.add(0)
        writes = [self._next_write(0, name=b"txn") for _ in range(self.random.randint(1, 3))]
        for key, number, value in writes:
            assert 0 == await self.producer.produce(value or b"", key=key)
            self.sent[key] = number
        is_committed = self.random.random() < 0.5
        await self._refreshed()
        assert 0 == await self.producer.end(commit=is_committed)
        while not await self._is_stable():
            await turn_loop(1)
        if is_committed:
            self._acknowledge(writes)

    async def rest(self) -> None:
        """Compare everything when nobody writes."""
        await self._written()
        await self._refreshed()
        assert [] == self.went_back
        assert _present(self.table) == dict(self.view.items())
        while True:
            try:
                async with await self.client.create_table_view(TOPIC) as again:
                    assert _present(self.kept) == dict(again.items())
                return
            except kledger.Unavailable:  # a link was just cut
                continue

    async def delete_records(self) -> None:
        """Delete everything that the view has read."""
        await self._written()
        await self._refreshed()
        partitions = [
            DeleteRecordsPartition(partition_index=each, offset=-1)
            for each in range(self.partition_count)
        ]
        topic = DeleteRecordsTopic(name=TOPIC, partitions=partitions)
        await self.kafka.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=SOON_MS), 2)
        self.kept.clear()

    async def grow(self) -> None:
        if self.partition_count < PARTITIONS_MAX:
            self.partition_count += 1
            was_lost = False
            while True:
                try:
                    await self.client.create_partitions(TOPIC, self.partition_count)
                    return
                except kledger.Unavailable:  # a link was just cut, and the answer with it
                    was_lost = True
                except kledger.InvalidArgument:
                    assert was_lost, "they were added without an answer"
                    return

    async def cut(self) -> None:
        if self.proxy is not None:
            self.proxy.cut()

    async def _write(self, client: WireClient) -> None:
        for _ in range(self.random.randint(1, 5)):
            partition = self.random.randrange(self.partition_count)
            # A key has one writer, so that its numbers arrive in order.
            name = b"%d" % id(client)
            count = self.random.choice((1, 2, 30))
            writes = [self._next_write(partition, name=name) for _ in range(count)]
            records = [NewRecord(value, key, timestamp=1) for key, _, value in writes]
            records.append(NewRecord(b"without a key", timestamp=1))
            response = await client.ask(produce({partition: bytes(build_batch(records))}), 9)
            assert 0 == response.responses[0].partition_responses[0].error_code
            self._acknowledge(writes)
        self.idle.append(client)

    def _next_write(self, partition: int, *, name: bytes) -> tuple[bytes, int, bytes | None]:
        self.number += 1
        key = b"%s-%d-%d" % (name, partition, self.random.randrange(5))
        if self.random.random() < 0.2:
            self.removals[key] = self.number
            return key, self.number, self.random.choice((b"", None))
        return key, self.number, b"%d" % self.number

    def _acknowledge(self, writes: list[tuple[bytes, int, bytes | None]]) -> None:
        for key, number, value in writes:
            self.acknowledged[key] = number
            self.table[key] = self.kept[key] = number if value else None

    def _on_update(self, key: bytes, value: bytes | None) -> None:
        if value is not None:
            if int(value) < self.seen.get(key, -1):  # what a listener raises is only logged
                self.went_back.append((key, value))
            self.seen[key] = int(value)

    async def _refreshed(self) -> None:
        async with asyncio.timeout(SOON):
            while True:
                try:
                    await self.view.refresh()
                    return
                except kledger.Unavailable:  # a link was just cut
                    continue

    async def _written(self) -> None:
        while self.writing:
            await asyncio.gather(*self.writing)
            await turn_loop(1)

    async def _is_stable(self) -> bool:
        """Whether no transaction is open in partition 0."""
        ends: list[int] = []
        for isolation_level in (0, 1):
            asked = ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(timestamp=-1)])
            request = ListOffsetsRequest(isolation_level=isolation_level, topics=[asked])
            (found,) = (await self.kafka.ask(request, 7)).topics[0].partitions
            ends.append(found.offset)
        return len(set(ends)) == 1


def _present(table: dict[bytes, int | None]) -> dict[bytes, bytes]:
    return {key: b"%d" % number for key, number in table.items() if number is not None}


@asynccontextmanager
async def scene(transport: str, seed: int) -> AsyncIterator[Storm]:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        proxy: MutedProxy | None = None
        if transport == "embedded":
            embedded = await enter(kledger.embedded(None, kafka="127.0.0.1:0"))
            client: kledger.Client = embedded
            address = embedded.kafka_address
        else:
            server = await enter(Server(native="127.0.0.1:0"))
            proxy = await enter(muted_proxy(int(server.native_address.rsplit(":", 1)[1])))
            client = await enter(kledger.connect(f"kledger://127.0.0.1:{proxy.port}"))
            address = server.kafka_address
        host, port = address.rsplit(":", 1)
        kafka, *writers = [await enter(WireClient(host, int(port))) for _ in range(WRITERS + 1)]
        yield Storm(client, kafka, writers, proxy, seed)


@pytest.mark.parametrize("transport", ["embedded", "remote"])
@pytest.mark.parametrize("seed", range(3))
async def test_view_equals_a_fold_over_what_was_acknowledged(transport: str, seed: int) -> None:
    async with scene(transport, seed) as storm:
        await storm.run()
        assert len(storm.seen) > 5


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["embedded", "remote"])
@pytest.mark.parametrize("seed", range(100, 160))
async def test_view_equals_a_fold_for_long(transport: str, seed: int) -> None:
    async with scene(transport, seed) as storm:
        await storm.run()
