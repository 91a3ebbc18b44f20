"""Clients: their requests, one function for each that a seed may draw.

Rule: a client follows answers as a real one does, and notes what was acknowledged.
Must not know: which broker answers.
"""

import asyncio
from collections.abc import Callable, Sequence

from kledger.gateway.coordinator.coordinator_shards_state import LOADING
from kledger.gateway.coordinator.group_messages import RequestingMember
from kledger.gateway.coordinator.transactions.txn_state import (
    NO_PRODUCER,
    InitProducerId,
    ProducerIdAndEpoch,
)
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import LedgerError
from kledger.offsets import CommittedOffset, TopicPartition
from tests.gateway.coordinator.consumer_words import command
from tests.gateway.coordinator.consumer_words import join_command as consumer_join
from tests.gateway.coordinator.group_words import join_command, sync_command
from tests.gateway.coordinator.shell_words import at
from tests.simulation.coordinators.brokers import KINDS, SHARDS, Broker, Shard
from tests.simulation.coordinators.offsets_model import Attempt, Outcome, Write
from tests.simulation.coordinators.scene import (
    GROUPS,
    MEMBERS,
    RETRIABLE,
    SETTLED_MS,
    TRANSACTIONAL_IDS,
    Member,
    Scene,
    transactional_partition,
)
from tests.simulation.invariants import InvariantBroken, check

TOOL = RequestingMember("", -1)
LONG_MS = 1_800_000
TIMEOUT_MS = 900_000
COMMITS = 0.7
REJOINS = 0.2


def commit(scene: Scene) -> None:
    """Commit an offset of a group without members."""
    group_id, partition = scene.random.choice(GROUPS), scene.random.randrange(2)
    scene.start(f"commit {group_id}-{partition}", _commit(scene, group_id, partition))


async def _commit(scene: Scene, group_id: str, partition: int) -> None:
    value = scene.clients.next_value()
    offset = {TopicPartition("t", partition): _offset(scene, value)}
    model = scene.clients.value(group_id, partition)

    async def call(broker: Broker) -> tuple[ErrorCode, None]:
        write = model.send(value)
        error = await broker.groups.offsets.commit(group_id, TOOL, list(offset.items()))
        _note(scene, write, error)
        check(error in {ErrorCode.NONE, *RETRIABLE}, f"commit of {group_id}: {error!r}")
        return error, None

    await scene.ask("groups", group_id, call)


def _note(scene: Scene, write: Write, error: ErrorCode) -> None:
    """Note the outcome of a write; it is not known when the store has stopped."""
    if error is ErrorCode.NONE:
        write.outcome = Outcome.ACKNOWLEDGED
    elif not scene.store.is_fenced:
        write.outcome = Outcome.REFUSED


def _offset(scene: Scene, value: int) -> CommittedOffset:
    return at(value, commit_ms=scene.clock.now_ms())


def delete_group(scene: Scene) -> None:
    """Delete a group in which there are no transactions."""
    group_id = scene.random.choice([each for each in GROUPS if each.startswith("tool")])
    scene.start(f"delete {group_id}", _delete_group(scene, group_id))


async def _delete_group(scene: Scene, group_id: str) -> None:
    models = [scene.clients.value(group_id, partition) for partition in range(2)]

    async def call(broker: Broker) -> tuple[ErrorCode, None]:
        is_empty = all(None in model.choices() for model in models)
        writes = [model.send(None) for model in models]
        (error,) = await broker.groups.offsets.delete_groups([group_id])
        if error is ErrorCode.GROUP_ID_NOT_FOUND:
            check(is_empty, f"{group_id} has offsets and was not found")
        for write in writes:
            _note(scene, write, error)
        return error, None

    await scene.ask("groups", group_id, call)


# Transactions


def transaction(scene: Scene) -> None:
    """Run a transaction that commits offsets of some groups."""
    number = scene.random.randrange(len(TRANSACTIONAL_IDS))
    name = TRANSACTIONAL_IDS[number]
    if name not in scene.busy:
        scene.busy.add(name)
        partition = transactional_partition(number)
        scene.start(f"transaction {name}", _transaction(scene, name, partition))


async def _transaction(scene: Scene, name: str, partition: int) -> None:
    try:
        attempt = scene.clients.transactions[name].begin()
        producer = await _initialise(scene, name)
        for _ in range(scene.random.randint(1, 3)):
            if producer is None or not await _fill(scene, name, producer, attempt, partition):
                return
            producer = await _end(scene, name, producer, attempt)
            attempt = scene.clients.transactions[name].begin()
    finally:
        scene.busy.discard(name)


async def _initialise(scene: Scene, name: str) -> ProducerIdAndEpoch | None:
    async def call(broker: Broker) -> tuple[ErrorCode, ProducerIdAndEpoch]:
        return await broker.transactions.initialise(InitProducerId(name, TIMEOUT_MS, NO_PRODUCER))

    answer = await scene.ask("transactions", name, call)
    if answer is None:
        return None
    error, producer = answer
    check(not error, f"initialise {name}: {error!r}")
    return producer


async def _fill(
    scene: Scene, name: str, producer: ProducerIdAndEpoch, attempt: Attempt, partition: int
) -> bool:
    groups = [each for each in GROUPS if each.startswith("app") and scene.random.random() < 0.7]
    touched = {TopicPartition("t", partition)}

    async def add(broker: Broker) -> tuple[ErrorCode, None]:
        error = await broker.transactions.add(
            name, producer, partitions=touched, groups=groups, is_v2=True
        )
        return error, None

    answer = await scene.ask("transactions", name, add)
    if answer is None:
        return False
    check(not answer[0], f"add to {name}: {answer[0]!r}")
    for group_id in groups:
        value = scene.clients.next_value()
        offsets = {TopicPartition("t", partition): _offset(scene, value)}

        async def send(
            broker: Broker,
            group_id: str = group_id,
            offsets: dict[TopicPartition, CommittedOffset] = offsets,
        ) -> tuple[ErrorCode, None]:
            error = await broker.transactions.commit_offsets(
                name, producer, group_id=group_id, sender=TOOL, offsets=offsets
            )
            return error, None

        answer = await scene.ask("transactions", name, send, tries=3, also=("groups", group_id))
        if answer is not None:
            check(not answer[0], f"offsets of {name}, {group_id}: {answer[0]!r}")
            attempt.values[group_id] = value
    return True


async def _end(
    scene: Scene, name: str, producer: ProducerIdAndEpoch, attempt: Attempt
) -> ProducerIdAndEpoch | None:
    is_commit = scene.random.random() < COMMITS

    async def call(broker: Broker) -> tuple[ErrorCode, ProducerIdAndEpoch]:
        attempt.may_commit = is_commit
        return await broker.transactions.end(name, producer, is_commit=is_commit, is_v2=True)

    answer = await scene.ask("transactions", name, call)
    if answer is None:
        return None
    error, after = answer
    check(not error, f"end {name}: {error!r}")
    attempt.has_ended = True
    return after


# Members


def member(scene: Scene) -> None:
    """Let the member of a group do what comes next."""
    one = scene.clients.members[scene.random.choice(MEMBERS)]
    if one.group_id not in scene.busy:
        scene.busy.add(one.group_id)
        work = _consumer if one.group_id.startswith("consumer") else _classic
        scene.start(f"member of {one.group_id}", work(scene, one), may_cancel=False)


async def _classic(scene: Scene, one: Member) -> None:
    try:
        if one.is_stable and scene.random.random() < REJOINS:
            one.is_joined = one.is_stable = False
        if not one.is_joined:
            await _join(scene, one)
        elif not one.is_stable:
            await _sync(scene, one)
        else:
            await _heartbeat(scene, one)
    finally:
        scene.busy.discard(one.group_id)


async def _join(scene: Scene, one: Member) -> None:
    async def call(broker: Broker) -> tuple[ErrorCode, tuple[str, int]]:
        asked = join_command(
            one.member_id,
            group_id=one.group_id,
            session_timeout_ms=LONG_MS,
            rebalance_timeout_ms=60_000,
        )
        joined = await broker.groups.join(asked)
        return joined.error, (joined.member_id, joined.generation)

    answer = await scene.ask("groups", one.group_id, call)
    if answer is None:
        return
    error, (member_id, generation) = answer
    if error is ErrorCode.NONE:
        one.member_id, one.generation, one.is_joined = member_id, generation, True
        return
    check(error is ErrorCode.UNKNOWN_MEMBER_ID, f"join of {one}: {error!r}")
    check(not one.is_stored, f"{one} was acknowledged, and is unknown")
    one.member_id = ""


async def _sync(scene: Scene, one: Member) -> None:
    async def call(broker: Broker) -> tuple[ErrorCode, bytes]:
        asked = sync_command(
            one.member_id,
            one.generation,
            group_id=one.group_id,
            assignments={one.member_id: b"all"},
        )
        synced = await broker.groups.sync(asked)
        return synced.error, synced.assignment

    answer = await scene.ask("groups", one.group_id, call)
    if answer is None:
        one.is_joined = False
    elif answer[0] is ErrorCode.NONE:
        check(answer[1] == b"all", f"{one}: got {answer[1]!r}")
        one.is_stable = one.is_stored = True
    else:
        expected = {
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.REBALANCE_IN_PROGRESS,
        }
        check(answer[0] in expected, f"sync of {one}: {answer[0]!r}")
        is_lost = one.is_stored and answer[0] is ErrorCode.UNKNOWN_MEMBER_ID
        check(not is_lost, f"{one} was acknowledged, and is unknown")
        one.is_joined = False


async def _heartbeat(scene: Scene, one: Member) -> None:
    async def call(broker: Broker) -> tuple[ErrorCode, None]:
        sender = RequestingMember(one.member_id, one.generation)
        error = broker.groups.heartbeat(one.group_id, sender)
        refusal = broker.groups.error(one.group_id)
        # Heartbeats are answered while a shard is loaded; its members need not know.
        return refusal if refusal is LOADING and not error else error, None

    answer = await scene.ask("groups", one.group_id, call)
    check(answer is None or not answer[0], f"heartbeat of {one}: {answer}")


async def _consumer(scene: Scene, one: Member) -> None:
    try:
        is_joining = not one.is_stable or scene.random.random() < REJOINS
        one.member_id = f"{one.group_id}-1"

        async def call(broker: Broker) -> tuple[ErrorCode, int]:
            asked = (
                consumer_join(one.member_id, "t", group_id=one.group_id)
                if is_joining
                else command(one.member_id, one.generation, group_id=one.group_id)
            )
            result = await broker.groups.consumer_heartbeat(asked)
            return result.error, result.epoch

        answer = await scene.ask("groups", one.group_id, call)
        if answer is None:
            one.is_stable = False
            return
        error, epoch = answer
        check(not error, f"heartbeat of {one}: {error!r}")
        one.generation, one.is_stable = epoch, True
    finally:
        scene.busy.discard(one.group_id)


# Shards


def move(scene: Scene) -> None:
    """Move some shards to a broker, perhaps the one that has them."""
    random, kind = scene.random, scene.random.choice(KINDS)
    numbers = sorted(random.sample(range(SHARDS), random.choice((1, 1, 1, 2, SHARDS))))
    target = random.choice(scene.cluster.brokers)
    work = _move(scene, [(kind, number) for number in numbers], target)
    scene.start(f"move {kind} {numbers} to {target.name}", work)


async def _move(scene: Scene, drawn: Sequence[Shard], target: Broker) -> None:
    """Move those of the shards that do not move already."""
    shards = [shard for shard in drawn if not scene.cluster.shards[shard].is_moving]
    try:
        if shards:
            await scene.cluster.move(shards, target)
    except LedgerError as error:
        if not scene.faults.count and not scene.store.is_fenced:
            raise InvariantBroken(f"shards {shards} were not moved: {error}") from error


async def finish_everything(scene: Scene) -> None:
    """Let every shard be attached and no transaction be open; nothing fails and nothing moves."""
    for kind in KINDS:
        for broker in scene.cluster.brokers:
            shards = [
                shard
                for shard, each in scene.cluster.shards.items()
                if shard[0] == kind and (each.owner or scene.cluster.brokers[0]) is broker
            ]
            if shards:
                await scene.cluster.move(shards, broker)
    await scene.clock.sleep(SETTLED_MS)
    scene.check_completed()
    for name in TRANSACTIONAL_IDS:
        producer = await _initialise(scene, name)
        check(producer or scene.store.is_fenced, f"nobody initialises {name}")
    await scene.clock.sleep(SETTLED_MS)
    scene.check_completed()


ACTIONS: dict[str, tuple[Callable[[Scene], None], float]] = {
    "commit": (commit, 8),
    "delete group": (delete_group, 1),
    "transaction": (transaction, 6),
    "member": (member, 8),
    "move": (move, 6),
}
"""The actions and their usual weights."""


async def pause(scene: Scene) -> None:
    """Let some time pass, or none."""
    dice = scene.random.random()
    if dice < 0.3:
        return
    if dice < 0.7:
        await asyncio.sleep(0)
    else:
        await scene.clock.sleep(scene.random.choice((1, 1, 3, 10, 100, 1000)))
