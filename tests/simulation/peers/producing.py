"""Producing: transactional producers, what they were answered, and what must be in the partitions.

Rule: a producer follows answers as a real one does. It asks again where an answer says so or is
lost, and any other error is a broken invariant: no producer does anything wrong here.
Must not know: which broker leads or coordinates what, but by the numbers of shards.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from kledger.batches.builder import BatchProducer, NewRecord, build_batch
from kledger.batches.reader import iterate_batches, iterate_records, read_is_commit
from kledger.gateway.coordinator.coordinator_shards_state import shard_of
from kledger.gateway.coordinator.shard_counts import COORDINATOR_SHARD_COUNT
from kledger.gateway.coordinator.transactions.txn_state import (
    NO_PRODUCER,
    InitProducerId,
    ProducerIdAndEpoch,
)
from kledger.gateway.handlers import k28_txn_offset_commit
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k28_txn_offset_commit import TxnOffsetCommitRequest
from kledger.offsets import CommittedOffset, TopicPartition
from kledger.topics import AppendResult, PartitionLog
from tests.gateway.coordinator.shell_words import at
from tests.simulation.clock import SimulatedClock
from tests.simulation.invariants import check
from tests.simulation.peers.brokers import BROKER_IDS, PARTITIONS, TOPIC, PeerBroker, SimulatedPeers

PRODUCERS = ("old-a", "old-b", "new-c", "new-d")
"""Transactional ids; those that begin with `new` use the protocol of KIP-890."""
GROUPS = ("group-a", "group-b", "group-c")
TIMEOUT_MS = 900_000
COMMITS = 0.6
GIVES_UP = 0.05
AGAIN_MS = (1, 20, 300, 1_000)
RETRIABLE = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}

Answer = TypeVar("Answer")


@dataclass(slots=True, eq=False)
class Attempt:
    """One transaction.

    Attributes:
        name: the transactional id.
        offsets: of acknowledged records, by partition.
        values: of acknowledged records, by partition, in their order.
        unknown: values that were sent and not acknowledged.
        committed: offsets that it commits, by group.
        outcome: what its producer has asked for; None: nothing yet.
        is_confirmed: whether its producer was answered that it has ended so.
        is_given_up: its producer does not go on, and the next one aborts it.
    """

    name: str
    offsets: dict[int, list[int]] = field(default_factory=dict)
    values: dict[int, list[bytes]] = field(default_factory=dict)
    unknown: set[bytes] = field(default_factory=set)
    committed: dict[str, int] = field(default_factory=dict)
    outcome: bool | None = None
    is_confirmed: bool = False
    is_given_up: bool = False


class Lost(Exception):
    """A request was lost with its broker; what it did is not known."""


class Producers:
    """All producers of a run."""

    def __init__(self, peers: SimulatedPeers, clock: SimulatedClock, random: Random) -> None:
        self.attempts: list[Attempt] = []
        self.busy: set[str] = set()
        self._peers = peers
        self._clock = clock
        self._random = random
        self._sent = 0

    # One producer

    async def run(self, name: str) -> None:
        """Run some transactions, one after the other."""
        self.busy.add(name)
        try:
            producer = await self.initialise(name)
            sequences: dict[int, int] = {}
            for _ in range(self._random.randint(1, 4)):
                attempt = Attempt(name)
                self.attempts.append(attempt)
                ended = await self._transaction(name, producer, sequences, attempt)
                if ended is None:
                    return
                if ended != producer:
                    producer, sequences = ended, {}
        finally:
            self.busy.discard(name)

    async def initialise(self, name: str) -> ProducerIdAndEpoch:
        async def call() -> tuple[ErrorCode, ProducerIdAndEpoch]:
            coordinator = self._coordinator(name)
            asked = InitProducerId(name, TIMEOUT_MS, NO_PRODUCER)
            return await self._within(coordinator, coordinator.transactions.initialise(asked))

        return await self._until_done(f"initialise {name}", call)

    async def _transaction(
        self,
        name: str,
        producer: ProducerIdAndEpoch,
        sequences: dict[int, int],
        attempt: Attempt,
    ) -> ProducerIdAndEpoch | None:
        """Write and end a transaction; return the producer of the next, None: it gives up."""
        random, is_new = self._random, name.startswith("new")
        partitions = random.sample(range(PARTITIONS), random.randint(1, PARTITIONS))
        groups = random.sample(GROUPS, random.randint(0, len(GROUPS)))
        if not is_new:
            await self._add(name, producer, partitions, groups)
        for partition in partitions:
            for _ in range(random.randint(1, 2)):
                await self._produce(name, producer, partition, sequences, attempt)
        for group in groups:
            await self._commit_offset(name, producer, group, attempt)
        if random.random() < GIVES_UP:
            attempt.is_given_up = True
            return None
        return await self._end(name, producer, attempt, is_new=is_new)

    async def _add(
        self,
        name: str,
        producer: ProducerIdAndEpoch,
        partitions: list[int],
        groups: list[str],
    ) -> None:
        async def call() -> tuple[ErrorCode, None]:
            coordinator = self._coordinator(name)
            adding = coordinator.transactions.add(
                name,
                producer,
                partitions=[TopicPartition(TOPIC, each) for each in partitions],
                groups=groups,
                is_v2=False,
            )
            return await self._within(coordinator, adding), None

        await self._until_done(f"add to {name}", call)

    async def _produce(
        self,
        name: str,
        producer: ProducerIdAndEpoch,
        partition: int,
        sequences: dict[int, int],
        attempt: Attempt,
    ) -> None:
        self._sent += 1
        value = b"%d" % self._sent
        attempt.unknown.add(value)
        sequence = sequences.get(partition, 0)
        batch = build_batch(
            [NewRecord(value, timestamp=self._clock.now_ms())],
            producer=BatchProducer(*producer, sequence, is_transactional=True),
        )

        async def call() -> tuple[ErrorCode, int]:
            leader = self._broker(partition)
            version = 12 if name.startswith("new") else 11
            return await self._within(leader, _append(leader, name, partition, batch, version))

        offset = await self._until_done(f"produce {name} into {partition}", call)
        sequences[partition] = sequence + 1
        attempt.unknown.discard(value)
        attempt.offsets.setdefault(partition, []).append(offset)
        attempt.values.setdefault(partition, []).append(value)

    async def _commit_offset(
        self, name: str, producer: ProducerIdAndEpoch, group: str, attempt: Attempt
    ) -> None:
        self._sent += 1
        value = self._sent
        offsets = {place_of(name): at(value, commit_ms=self._clock.now_ms())}

        async def call() -> tuple[ErrorCode, None]:
            broker = self._coordinator(group)
            return await self._within(broker, _commit(broker, name, producer, group, offsets)), None

        attempt.committed[group] = value
        await self._until_done(f"offset of {name} in {group}", call)

    async def _end(
        self, name: str, producer: ProducerIdAndEpoch, attempt: Attempt, *, is_new: bool
    ) -> ProducerIdAndEpoch:
        is_commit = self._random.random() < COMMITS

        async def call() -> tuple[ErrorCode, ProducerIdAndEpoch]:
            coordinator = self._coordinator(name)
            attempt.outcome = is_commit
            ending = coordinator.transactions.end(name, producer, is_commit=is_commit, is_v2=is_new)
            return await self._within(coordinator, ending)

        after = await self._until_done(f"end {name}", call)
        attempt.is_confirmed = True
        return after if is_new else producer

    # Requests

    def _broker(self, number: int) -> PeerBroker:
        broker = self._peers.running.get(BROKER_IDS[number % len(BROKER_IDS)])
        if broker is None:
            raise Lost
        return broker

    def _coordinator(self, key: str) -> PeerBroker:
        """Return the broker that coordinates a transactional id, or a group."""
        return self._broker(shard_of(key, COORDINATOR_SHARD_COUNT))

    async def _within(self, broker: PeerBroker, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Await what a broker does; the answer of one that ends meanwhile is lost."""
        task = asyncio.get_running_loop().create_task(work)
        waited: list[asyncio.Future[Any]] = [task, broker.ended]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if broker.ended.done():
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # whatever it was, the client does not get it
            raise Lost
        if self._peers.network.is_lost():
            raise Lost
        return task.result()

    async def _until_done(
        self, what: str, call: Callable[[], Awaitable[tuple[ErrorCode, Answer]]]
    ) -> Answer:
        while True:
            try:
                error, answer = await call()
            except Lost:
                pass
            else:
                if error is ErrorCode.NONE:
                    return answer
                check(error in RETRIABLE, f"{what}: {error!r}")
            await self._clock.sleep(self._random.choice(AGAIN_MS))

    # What must hold

    def check_stable(self) -> None:
        """Check that no last stable offset is behind a record of an open transaction."""
        for broker in self._peers.running.values():
            for partition, log in open_logs(broker).items():
                for each in self.attempts:
                    if each.outcome is None and not each.is_given_up:
                        first = min(each.offsets.get(partition, [log.high_watermark]))
                        check(
                            log.last_stable_offset <= first,
                            f"{partition}: last stable offset {log.last_stable_offset}, "
                            f"expected at most {first}, where a transaction of {each.name} is open",
                        )

    async def check_ended(self) -> None:
        """Check that everything has ended as its producer was answered; nothing is under way."""
        for broker in self._peers.running.values():
            for record in broker.transactions.records():
                check(record.state.is_idle, f"{record.transactional_id} has not ended: {record}")
        for partition in range(PARTITIONS):
            broker = self._broker(partition)
            topic = broker.registry.get(TOPIC)
            assert topic is not None
            log = await topic.open_partition(partition)
            check(
                log.last_stable_offset == log.high_watermark,
                f"{partition}: a transaction is open from {log.last_stable_offset} on",
            )
            self._check_committed(partition, await committed_values(log))
        for group in GROUPS:
            for name in PRODUCERS:
                self._check_offset(group, name)

    def _check_committed(self, partition: int, found: list[bytes]) -> None:
        check(len(found) == len(set(found)), f"{partition}: twice: {found}")
        for each in self.attempts:
            values = each.values.get(partition, [])
            visible = [value for value in found if value in {*values, *each.unknown}]
            if each.outcome and each.is_confirmed:
                check(visible == values, f"{partition}, {each}: committed, found {visible}")
            elif each.outcome is not True:
                check(not visible, f"{partition}, {each}: not committed, found {visible}")

    def _check_offset(self, group: str, name: str) -> None:
        offsets = self._coordinator(group).groups.offsets
        place = place_of(name)
        check(not offsets.is_unstable(group, place), f"{group}: an offset of {name} is pending")
        found = offsets.committed(group, place)
        expected: list[int | None] = [None]
        for each in self.attempts:
            if each.name == name and group in each.committed and each.outcome:
                new = each.committed[group]
                expected = [new] if each.is_confirmed else [*expected, new]
        offset = None if found is None else found.offset
        check(offset in expected, f"{group}, {name}: offset {offset}, expected {expected}")


def place_of(name: str) -> TopicPartition:
    """Return the partition of which one producer alone commits offsets."""
    return TopicPartition(TOPIC, 10 + PRODUCERS.index(name))


def open_logs(broker: PeerBroker) -> dict[int, PartitionLog]:
    topic = broker.registry.get(TOPIC)
    return {} if topic is None else {each.index: each for each in topic.open_partitions()}


async def _append(
    broker: PeerBroker, name: str, partition: int, batch: bytearray, version: int
) -> tuple[ErrorCode, int]:
    """Verify and append a batch as Produce does."""
    topic = broker.registry.get(TOPIC)
    assert topic is not None
    log = await topic.open_partition(partition)
    while True:
        admitted = broker.verification.admit(name, [(0, log, memoryview(batch))], version)
        if isinstance(admitted, dict):
            break
        await admitted
    if error := admitted.get(0, ErrorCode.NONE):
        return error, -1
    appended: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()

    def done(result: AppendResult) -> None:
        if not appended.done():  # its client has not lost the connection
            appended.set_result(result)

    at_once = log.append_nowait(memoryview(bytearray(batch)), done, is_verified=0 in admitted)
    result = at_once or await appended
    if result.error is not None:
        raise result.error
    return ErrorCode.NONE, result.base_offset


async def _commit(
    broker: PeerBroker,
    name: str,
    producer: ProducerIdAndEpoch,
    group: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
) -> ErrorCode:
    """Store offsets as TxnOffsetCommit does."""
    services = SimpleNamespace(
        transactions=broker.transactions,
        groups=broker.groups,
        remote_transactions=broker.remote,
        supervisor=broker.supervisor,
    )
    context = SimpleNamespace(services=services, version=5 if name.startswith("new") else 4)
    request = TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id=-1,
        member_id="",
    )
    return await k28_txn_offset_commit._store(cast(Any, context), request, dict(offsets))


async def committed_values(log: PartitionLog) -> list[bytes]:
    """Return what a read_committed consumer gets of a whole log."""
    found: list[bytes] = []
    open_ones: dict[int, list[bytes]] = {}
    offset = log.log_start_offset
    while offset < log.last_stable_offset:
        result = await log.read(offset, 1)
        for header, batch in iterate_batches(b"".join(result.chunks)):
            if header.is_control:
                values = open_ones.pop(header.producer_id, [])
                found += values if read_is_commit(batch) else []
            else:
                values = open_ones.setdefault(header.producer_id, [])
                values += [bytes(each.value or b"") for each in iterate_records(batch)]
            offset = header.last_offset + 1
    aborted = {first for _, first in log.aborted_transactions(0, log.last_stable_offset)}
    check(not open_ones, f"{log.index}: {open_ones} without a marker below the last stable offset")
    check(len(aborted) == len(log.aborted_transactions(0, log.last_stable_offset)), "aborted twice")
    return found
