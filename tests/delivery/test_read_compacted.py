"""Subscriptions that read compacted: where targets lead, deleted records, retention, backlog."""

from collections.abc import Mapping

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.delivery.model import RecordPosition, SeekTarget
from kledger.delivery.subscribed_partition import SubscribedPartition
from kledger.ledger import Position
from kledger.ledger.testing import FaultyEngine
from kledger.subscriptions.subscription import Subscription
from kledger.topics.partition.partition_compaction import CompactionLimits
from tests.batches.words import NOW_MS
from tests.delivery.partitions import partition_directory
from tests.topics.words import SMALL_SEGMENTS, TopicStore, append

LIMITS = CompactionLimits(memory_bytes_max=1 << 20)
KEPT = ["0:2", "1:2", "2:2", "3:2", "4:0", "4:1", "4:2"]
BOTH_POLICIES = {"cleanup.policy": "compact,delete", **SMALL_SEGMENTS}


async def fill(opened: TopicStore, configs: Mapping[str, str] | None = None) -> list[Position]:
    """Append five batches of three records, and compact them: of a and b only the last is kept."""
    log = await opened.log(configs=configs)
    positions = []
    for number in range(5):
        at_ms = NOW_MS + number * 1_000
        keys = (b"a", b"b", b"k%d" % number)
        result = await append(
            log, build_batch([NewRecord(b"v" * 90, key=key, timestamp=at_ms) for key in keys])
        )
        assert result.position is not None
        positions.append(result.position)
    await log.managed_ledger.roll_over()
    await log.compact(LIMITS)
    return positions


async def records_of(subscription: Subscription, positions: list[Position]) -> list[str]:
    """Return what is unacknowledged, as number of the batch and index of the record."""
    return [
        f"{positions.index(each.position)}:{index}"
        for each in await subscription.peek(99)
        for index in range(3)
        if each.records >> index & 1
    ]


async def opened_at(
    partition: SubscribedPartition, target: SeekTarget, *, is_inclusive: bool = True
) -> Subscription:
    return await partition.open_subscription(
        f"at {target}",
        target,
        is_inclusive=is_inclusive,
        is_durable=False,
        reads_compacted=True,
    )


@pytest.mark.parametrize("configs", [None, BOTH_POLICIES], ids=["with the log", "without it"])
async def test_targets_lead_to_kept_records(configs: dict[str, str] | None) -> None:
    async with partition_directory() as (opened, partitions):
        positions = await fill(opened, configs)
        partition = await partitions.open("orders", 0)
        for target, is_inclusive, first in (
            ("earliest", True, 0),
            ("latest", True, 7),
            (RecordPosition(positions[1], 0), True, 1),
            (RecordPosition(positions[1], 2), True, 1),
            (RecordPosition(positions[1], 2), False, 2),
            (RecordPosition(positions[1]), True, 1),
            (RecordPosition(positions[1]), False, 2),
            (RecordPosition(positions[4], 0), False, 5),
            (RecordPosition(positions[4]), False, 7),
            (RecordPosition(Position(0, 0)), True, 0),
            (NOW_MS, True, 0),
            (NOW_MS + 1_500, True, 2),
            (NOW_MS + 4_000, True, 4),
            (NOW_MS + 4_001, True, 7),
        ):
            subscription = await opened_at(partition, target, is_inclusive=is_inclusive)
            assert KEPT[first:] == await records_of(subscription, positions), target
            await subscription.close()


async def deleted(partition: SubscribedPartition, positions: list[Position]) -> list[list[str]]:
    """Return what subscriptions have that are opened at several targets, or were there before."""
    found = []
    for target in ("earliest", RecordPosition(positions[0], 0), 0):
        subscription = await opened_at(partition, target)
        found.append(await records_of(subscription, positions))
        await subscription.close()
    known = partition.subscriptions.get("s")
    assert known is not None
    return [*found, await records_of(known, positions)]


@pytest.mark.parametrize("configs", [None, BOTH_POLICIES], ids=["with the log", "without it"])
async def test_deleted_records_are_not_kept(configs: dict[str, str] | None) -> None:
    engine = FaultyEngine(None)
    async with partition_directory(engine) as (opened, partitions):
        positions = await fill(opened, configs)
        partition = await partitions.open("orders", 0)
        await partition.open_subscription("s", "earliest", reads_compacted=True)
        await partition.log.delete_records(13)
        assert [KEPT[5:]] * 4 == await deleted(partition, positions)
    async with partition_directory(engine) as (opened, partitions):
        partition = await partitions.open("orders", 0)
        assert [KEPT[5:]] * 4 == await deleted(partition, positions), "after a restart"
        await append(partition.log, build_batch([NewRecord(b"new", key=b"a", timestamp=NOW_MS)]))
        await partition.log.compact(LIMITS)
        subscription = await opened_at(partition, "earliest")
        first, *_ = await subscription.peek(9)
        assert positions[4] == first.position


async def test_what_retention_removes_from_the_log_stays_compacted() -> None:
    """As Pulsar: the policy is `delete`, and a compaction is a client's wish."""
    engine = FaultyEngine(None)
    configs = {"retention.bytes": "0", **SMALL_SEGMENTS}
    async with partition_directory(engine) as (opened, partitions):
        positions = await fill(opened, configs)
        partition = await partitions.open("orders", 0)
        await partition.open_subscription("s", "earliest", reads_compacted=True)
        await partition.log.enforce_retention()
        assert 15 == partition.log.log_start_offset
        assert [KEPT] * 4 == await deleted(partition, positions)
    async with partition_directory(engine) as (opened, partitions):
        partition = await partitions.open("orders", 0)
        assert 15 == partition.log.log_start_offset
        assert [KEPT] * 4 == await deleted(partition, positions), "after a restart"


async def test_skipping_and_clearing_count_kept_records() -> None:
    async with partition_directory() as (opened, partitions):
        positions = await fill(opened, BOTH_POLICIES)
        partition = await partitions.open("orders", 0)
        subscription = await partition.open_subscription("s", "earliest", reads_compacted=True)
        assert 15 == await partition.backlog(subscription), "removed ones count until then"
        await subscription.skip(2)
        assert KEPT[2:] == await records_of(subscription, positions)
        await subscription.skip(3)
        assert KEPT[5:] == await records_of(subscription, positions)
        assert 2 == await partition.backlog(subscription)
        await partition.clear_backlog(subscription)
        assert 0 == await partition.backlog(subscription)
        assert [] == await records_of(subscription, positions)
