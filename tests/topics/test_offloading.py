"""Copies of topics in the tier: runs, manifests, primary copies, and what goes with a topic."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.ledger import Position, StoreConfig
from kledger.ledger.store import TIER_CALL_TIMEOUT_MS
from kledger.ledger.testing import FaultyEngine
from kledger.runtime.tasks import Supervisor
from kledger.topics.errors import InvalidConfig, NoTier, OffloadRunning, TopicStorageFailed
from kledger.topics.offloading import Offloading, OffloadState, TopicOffload
from kledger.topics.partition.partition_log import PartitionLog
from kledger.topics.topic import Topic
from tests.batches.words import NOW_MS, batch
from tests.topics.test_partition_transactions import mark, submit
from tests.topics.tier_words import MemoryFolder, MemoryFolders
from tests.topics.words import TopicStore, all_values, append, open_topics, values

TWO_ENTRIES = {"internal.segment.bytes": "140"}
"""Batches of one record: a ledger has two of them."""
COLD = StoreConfig(durability="os", cache_bytes=0)


@dataclass
class TieredTopics:
    """Topics over a tier in memory."""

    opened: TopicStore
    tier: MemoryFolders
    offloading: Offloading

    async def topic(self, name: str = "orders", **configs: str) -> Topic:
        """Make a topic of one partition, or change it."""
        registry = self.opened.registry
        given = {key.replace("_", "."): text for key, text in configs.items()}
        if registry.get(name) is None:
            return await registry.create(name, partitions=1, configs={**TWO_ENTRIES, **given})
        return await registry.alter_configs(name, given)

    async def filled(self, count: int = 7, **configs: str) -> PartitionLog:
        """Make a topic, and append that many batches of one record."""
        log = await (await self.topic(**configs)).open_partition(0)
        for number in range(count):
            await append(log, batch(f"{number}"))
        return log

    async def offload(self, name: str = "orders", until: Position | None = None) -> TopicOffload:
        """Offload a topic; return when that has ended."""
        topic = self.opened.registry.get(name)
        assert topic is not None
        self.offloading.start(topic, until)
        return await self.ended(topic)

    async def ended(self, topic: Topic) -> TopicOffload:
        """Wait until no run is under way."""
        while True:
            status = await self.offloading.status(topic)
            if status.state is not OffloadState.RUNNING:
                return status
            await asyncio.sleep(0)


@asynccontextmanager
async def tiered_topics(
    engine: FaultyEngine | None = None, tier: MemoryFolders | None = None
) -> AsyncIterator[TieredTopics]:
    tier = tier or MemoryFolders()
    async with open_topics(engine or FaultyEngine(None), tier=tier, store_config=COLD) as opened:
        supervisor = Supervisor(containment=opened.store.containment)
        yield TieredTopics(
            opened, tier, Offloading(opened.registry, opened.store, opened.clock, supervisor)
        )
        await supervisor.close()


def listed(folder: MemoryFolder) -> list[tuple[int, int]]:
    """First and last offset of each ledger in the manifest."""
    assert folder.manifest is not None
    return [(each["first_offset"], each["last_offset"]) for each in folder.manifest["ledgers"]]


async def test_all_closed_ledgers_are_offloaded_and_listed() -> None:
    async with tiered_topics() as tiered:
        log = await tiered.filled(7)
        assert OffloadState.NOT_RUN is (await tiered.offloading.status(tiered_topic(tiered))).state
        status = await tiered.offload()
        infos = log.managed_ledger.ledgers
        assert [True, True, True, False] == [info.offloaded for info in infos]
        assert TopicOffload(
            state=OffloadState.SUCCESS, error="", ledgers_left=0,
            ends=(Position(infos[-1].ledger_id, 0),),
        ) == status  # fmt: skip
        folder = tiered.tier.only
        topic = tiered_topic(tiered)
        assert f"public/default/orders-{topic.id.hex}/0" == folder.location["folder"]
        assert [(0, 1), (2, 3), (4, 5)] == listed(folder)
        assert folder.manifest is not None
        assert ("orders", topic.id.hex, 0, 1) == tuple(
            folder.manifest[key] for key in ("topic", "topic_id", "partition", "version")
        )
        first = folder.manifest["ledgers"][0]
        assert (infos[0].ledger_id, 2, infos[0].size, NOW_MS, NOW_MS, []) == tuple(
            first[key]
            for key in (
                "ledger_id",
                "entries",
                "bytes",
                "first_timestamp",
                "last_timestamp",
                "aborted",
            )
        )
        assert infos[0].offload is not None
        name = f"{infos[0].offload.attempt}-ledger-{infos[0].ledger_id}"
        assert {"data": name, "index": f"{name}-index"} == first["objects"]
        assert [b"%d" % n for n in range(7)] == await all_values(log)
        assert 6 == log.managed_ledger.read_counts.tier


def tiered_topic(tiered: TieredTopics, name: str = "orders") -> Topic:
    topic = tiered.opened.registry.get(name)
    assert topic is not None
    return topic


async def test_the_last_ledger_of_a_terminated_topic_is_offloaded() -> None:
    async with tiered_topics() as tiered:
        log = await tiered.filled(3)
        last = await log.terminate()
        status = await tiered.offload()
        assert (OffloadState.SUCCESS, 0) == (status.state, status.ledgers_left)
        assert (last.successor,) == status.ends
        assert [True, True] == [info.offloaded for info in log.managed_ledger.ledgers]
        assert [b"%d" % n for n in range(3)] == await all_values(log)


async def test_a_topic_of_a_namespace_has_its_folder() -> None:
    async with tiered_topics() as tiered:
        await tiered.opened.registry.create_namespace("shop/eu")
        topic = await tiered.topic("shop/eu/orders")
        log = await topic.open_partition(0)
        for _ in range(3):
            await append(log, batch())
        await tiered.offload("shop/eu/orders")
        assert f"shop/eu/orders-{topic.id.hex}/0" == tiered.tier.only.location["folder"]
        assert tiered.tier.only.manifest is not None
        assert "shop/eu/orders" == tiered.tier.only.manifest["topic"]


async def test_offload_up_to_a_position() -> None:
    async with tiered_topics() as tiered:
        log = await tiered.filled(7)
        second = log.managed_ledger.ledgers[1].ledger_id
        status = await tiered.offload(until=Position(second, 1))
        assert (1 + 1, (Position(second, 0),)) == (status.ledgers_left, status.ends)
        assert [(0, 1)] == listed(tiered.tier.only)
        status = await tiered.offload(until=Position(99, 0))
        assert OffloadState.ERROR is status.state
        assert status.error.startswith("partition 0: orders-0: ")


async def test_timestamps_are_the_smallest_and_largest_of_the_records() -> None:
    async with tiered_topics() as tiered:
        log = await (await tiered.topic()).open_partition(0)
        for times in ((50, 10, 90), (60, 20), (70,)):
            records = [NewRecord(b"v", timestamp=NOW_MS - each) for each in times]
            await append(log, build_batch(records, codec=4))
        await append(log, batch())
        await tiered.offload()
        assert tiered.tier.only.manifest is not None
        found = [
            (each["first_timestamp"] - NOW_MS, each["last_timestamp"] - NOW_MS)
            for each in tiered.tier.only.manifest["ledgers"]
        ]
        assert (-90, -10) == found[0]


async def test_only_ledgers_below_the_last_stable_offset_are_offloaded() -> None:
    async with tiered_topics() as tiered:
        log = await tiered.filled(3)
        await submit(log, 0)
        for _ in range(3):
            await append(log, batch())
        assert 3 == log.last_stable_offset
        assert 2 == (await tiered.offload()).ledgers_left
        assert [(0, 1)] == listed(tiered.tier.only)
        await mark(log, commit=False)
        assert 0 == (await tiered.offload()).ledgers_left
        manifest = tiered.tier.only.manifest
        assert manifest is not None
        aborted = [{"producer_id": 9, "first_offset": 3, "last_offset": 7}]
        first, *others = [each["aborted"] for each in manifest["ledgers"]]
        assert [] == first
        assert [aborted] * len(others) == others
        assert others


async def test_thresholds_and_lag_are_looked_at_in_rounds() -> None:
    async with tiered_topics() as tiered:
        log = await tiered.filled(7, kledger_offload_deletion_lag_ms="1000")
        await tiered.offloading.run_due()
        assert [] == list(tiered.tier.used())
        size = log.managed_ledger.ledgers[0].size
        await tiered.topic(kledger_offload_threshold_bytes=str(size))
        await tiered.offloading.run_due()
        assert [(0, 1), (2, 3)] == listed(tiered.tier.only)
        await tiered.topic(kledger_offload_threshold_seconds="0")
        await tiered.offloading.run_due()
        assert [(0, 1), (2, 3), (4, 5)] == listed(tiered.tier.only)
        tiered.opened.clock.advance(1000)
        await tiered.offloading.run_due()
        assert not any(info.primary_deleted for info in log.managed_ledger.ledgers)
        tiered.opened.clock.advance(1)
        await tiered.offloading.run_due()
        assert [True, True, True, False] == [
            info.primary_deleted for info in log.managed_ledger.ledgers
        ]
        assert [b"%d" % n for n in range(7)] == await all_values(log)


async def test_policies_of_a_namespace_hold_for_its_topics() -> None:
    async with tiered_topics() as tiered:
        await tiered.filled(5)
        await tiered.opened.registry.alter_namespace_configs(
            "public/default", {"kledger.offload.threshold.bytes": "0"}
        )
        await tiered.offloading.run_due()
        assert [(0, 1), (2, 3)] == listed(tiered.tier.only)


async def test_changed_read_priority_holds_at_once() -> None:
    async with tiered_topics() as tiered:
        log = await tiered.filled(5)
        await tiered.offload()
        await all_values(log)
        assert (1, 4) == (
            log.managed_ledger.read_counts.primary,
            log.managed_ledger.read_counts.tier,
        )
        await tiered.topic(kledger_data_read_priority="bookkeeper-first")
        await all_values(log)
        assert (6, 4) == (
            log.managed_ledger.read_counts.primary,
            log.managed_ledger.read_counts.tier,
        )


@pytest.mark.parametrize(
    ("configs", "kept"),
    [
        ({}, [True, True, True, True]),
        ({"local.retention.ms": "1000"}, [False, False, False, True]),
        ({"local.retention.ms": "6000"}, [True, True, True, True]),
        ({"local.retention.bytes": "0"}, [False, False, False, True]),
        ({"local.retention.bytes": "150"}, [False, False, True, True]),
        ({"local.retention.bytes": "-1"}, [True, True, True, True]),
    ],
)
async def test_kafkas_words_offload_at_once_and_delete_primaries(
    configs: Mapping[str, str], kept: list[bool]
) -> None:
    async with tiered_topics() as tiered:
        given = {"remote.storage.enable": "true", "retention.ms": "-1", **configs}
        log = await tiered.filled(7, **given)
        tiered.opened.clock.advance(5000)
        await tiered.offloading.run_due()
        infos = log.managed_ledger.ledgers
        assert [(0, 1), (2, 3), (4, 5)] == listed(tiered.tier.only)
        assert kept == [not info.primary_deleted for info in infos]
        assert 2 * kept.index(True) == log.offload.local_start_offset
        assert 5 == log.offload.latest_tiered_offset
        assert [b"%d" % n for n in range(7)] == await all_values(log)


async def test_disabled_copying_keeps_what_is_in_the_tier() -> None:
    async with tiered_topics() as tiered:
        log = await tiered.filled(3, remote_storage_enable="true")
        await tiered.offloading.run_due()
        await tiered.topic(remote_log_copy_disable="true")
        for _ in range(2):
            await append(log, batch())
        await tiered.offloading.run_due()
        assert [(0, 1)] == listed(tiered.tier.only)


async def test_retention_removes_both_copies_and_the_manifest_follows() -> None:
    async with tiered_topics() as tiered:
        log = await tiered.filled(7)
        await tiered.offload()
        await log.delete_records(3)
        await settled(tiered)
        assert [(2, 3), (4, 5)] == listed(tiered.tier.only)
        assert 3 == log.log_start_offset
        assert [b"3", b"4", b"5", b"6"] == await all_values(log)
        await log.delete_records(7)
        await settled(tiered)
        assert [] == list(tiered.tier.used())


async def settled(tiered: TieredTopics) -> None:
    """Wait until nothing more is done in the background."""
    for _ in range(200):
        await asyncio.sleep(0)
        await tiered.opened.store.flush()


async def test_a_deleted_topic_leaves_nothing_in_the_tier() -> None:
    async with tiered_topics() as tiered:
        await tiered.filled(5)
        await tiered.offload()
        old = tiered.tier.only
        await tiered.opened.registry.delete("orders")
        await tiered.filled(3)
        await tiered.offload()
        await tiered.opened.registry.finish_deletions()
        await settled(tiered)
        assert ([], {}) == (old.ledger_ids, old.objects)
        assert [(0, 1)] == listed(tiered.tier.only)


async def test_a_dead_tier_does_not_lose_the_deletion_of_a_manifest() -> None:
    async with tiered_topics() as tiered:
        await tiered.filled(5)
        await tiered.offload()
        tiered.tier.set_down(is_down=True)
        await tiered.opened.registry.delete("orders")
        await tiered.opened.registry.finish_deletions()
        assert tiered.tier.only.manifest is not None
        engine, tier = tiered.opened.engine, tiered.tier
    tier.set_down(is_down=False)
    assert isinstance(engine, FaultyEngine)
    async with tiered_topics(engine, tier) as again:
        await again.opened.registry.finish_deletions()
        await settled(again)
        assert [] == list(again.tier.used())


async def test_a_manifest_that_was_not_written_is_mended_by_the_next_round() -> None:
    async with tiered_topics() as tiered:
        log = await tiered.filled(5)
        await tiered.offload()
        tiered.tier.set_down(is_down=True)
        await log.delete_records(2)
        await settled(tiered)
        assert [(0, 1), (2, 3)] == listed(tiered.tier.only)
        engine, tier = tiered.opened.engine, tiered.tier
    tier.set_down(is_down=False)
    assert isinstance(engine, FaultyEngine)
    async with tiered_topics(engine, tier) as again:
        topic = tiered_topic(again)
        assert not topic.is_open(0)
        await again.offloading.run_due()
        assert [(2, 3)] == listed(again.tier.only)
        before = again.tier.only.writes
        await topic.close_partition(0)
        await again.offloading.run_due()
        assert not topic.is_open(0), "nothing was due"
        assert before == again.tier.only.writes


async def test_a_manifest_whose_store_hangs_is_given_up_in_time() -> None:
    """Else no round could mend it, and the removal of a deleted topic would wait for ever."""
    async with tiered_topics() as tiered:
        log = await tiered.filled(5)
        await tiered.offload()
        tiered.tier.only.hangs = True
        await log.delete_records(2)
        await tiered.tier.only.wait_hanging()
        assert not log.offload.is_settled
        tiered.opened.clock.advance(TIER_CALL_TIMEOUT_MS)
        async with asyncio.timeout(60):
            while not log.offload.is_settled:  # noqa: ASYNC110 (nothing is called then)
                await asyncio.sleep(0)
        tiered.tier.only.hangs = False
        await tiered.offloading.run_due()
        assert [(2, 3)] == listed(tiered.tier.only)
        tiered.tier.only.hangs = True
        await tiered.opened.registry.delete("orders")
        await tiered.tier.only.wait_hanging()
        tiered.opened.clock.advance(TIER_CALL_TIMEOUT_MS)
        await settled(tiered)
        assert tiered.tier.only.manifest is not None
        tiered.tier.only.hangs = False
        await tiered.opened.registry.finish_deletions()
        assert [] == [each for each in tiered.tier.used() if each.objects]


async def test_closed_partitions_are_opened_when_something_is_due() -> None:
    async with tiered_topics() as tiered:
        log = await tiered.filled(5, kledger_offload_threshold_seconds="10")
        topic = tiered_topic(tiered)
        await log.close()
        await topic.close_partition(0)
        await tiered.offloading.run_due()
        assert not topic.is_open(0)
        tiered.opened.clock.advance(10_000)
        await tiered.offloading.run_due()
        assert [(0, 1), (2, 3)] == listed(tiered.tier.only)[:2]


async def test_failed_run_says_why_and_can_be_repeated() -> None:
    async with tiered_topics() as tiered:
        log = await tiered.filled(5)
        folder = tiered.tier.below(f"public/default/orders-{tiered_topic(tiered).id.hex}/0")
        folder.fail_next("offload")
        status = await tiered.offload()
        assert (OffloadState.ERROR, 1) == (status.state, status.ledgers_left)
        assert "partition 0: a test lets the tier fail" == status.error
        assert None is folder.manifest
        assert OffloadState.SUCCESS is (await tiered.offload()).state
        assert [(0, 1), (2, 3)] == listed(folder)
        assert [b"%d" % n for n in range(5)] == await all_values(log)


async def test_two_runs_of_one_topic_at_once() -> None:
    async with tiered_topics() as tiered:
        log = await tiered.filled(5)
        topic = tiered_topic(tiered)
        folder = tiered.tier.below(f"public/default/orders-{topic.id.hex}/0")
        hold = folder.hold_next("offload")
        tiered.offloading.start(topic)
        await hold.reached()
        with pytest.raises(OffloadRunning):
            tiered.offloading.start(topic)
        with pytest.raises(OffloadRunning):
            await log.offload.copy(None, log.last_stable_position)
        await tiered.offloading.run_due()
        assert OffloadState.RUNNING is (await tiered.offloading.status(topic)).state
        hold.release()
        assert OffloadState.SUCCESS is (await tiered.ended(topic)).state


async def test_dead_tier_fails_reads_of_what_only_it_has() -> None:
    async with tiered_topics() as tiered:
        log = await tiered.filled(5, kledger_offload_deletion_lag_ms="0")
        await tiered.offload()
        tiered.opened.clock.advance(1)
        await tiered.offloading.run_due()
        tiered.tier.set_down(is_down=True)
        result = await log.read(0, 1 << 20)
        assert isinstance(result.error, TopicStorageFailed)
        assert result.error.args[0] == "the tier is down"
        assert [b"4"] == values(await log.read(4, 1 << 20))


async def test_settings_of_a_topic_can_be_changed_after_the_tier_was_taken_away() -> None:
    async with tiered_topics() as tiered:
        await tiered.filled(3, remote_storage_enable="true")
        engine = tiered.opened.engine
    async with open_topics(engine) as again:
        await again.registry.alter_configs("orders", {"retention.ms": "5"})
        await again.registry.alter_configs("orders", {"remote.storage.enable": None})
        with pytest.raises(InvalidConfig):
            await again.registry.alter_configs("orders", {"remote.storage.enable": "true"})


async def test_status_of_a_round_has_every_partition() -> None:
    async with tiered_topics() as tiered:
        registry = tiered.opened.registry
        configs = {**TWO_ENTRIES, "kledger.offload.threshold.bytes": "0"}
        topic = await registry.create("orders", partitions=2, configs=configs)
        for index in range(2):
            log = await topic.open_partition(index)
            for _ in range(3):
                await append(log, batch())
        tiered.tier.below(f"public/default/orders-{topic.id.hex}/0").is_down = True
        await tiered.offloading.run_due()
        status = await tiered.offloading.status(topic)
        assert (OffloadState.ERROR, "partition 0: the tier is down", 1) == (
            status.state, status.error, status.ledgers_left,
        )  # fmt: skip


async def test_partitions_that_are_being_offloaded_are_not_idle() -> None:
    async with tiered_topics() as tiered:
        log = await tiered.filled(5)
        topic = tiered_topic(tiered)
        hold = tiered.tier.below(f"public/default/orders-{topic.id.hex}/0").hold_next("offload")
        tiered.offloading.start(topic)
        await hold.reached()
        assert log.is_awaited
        hold.release()
        await tiered.ended(topic)
        assert not log.is_awaited


async def test_without_a_tier_nothing_is_offloaded() -> None:
    async with open_topics() as opened:
        log = await opened.log(configs=TWO_ENTRIES)
        topic = opened.registry.get("orders")
        assert topic is not None
        supervisor = Supervisor(containment=opened.store.containment)
        offloading = Offloading(opened.registry, opened.store, opened.clock, supervisor)
        with pytest.raises(NoTier, match=r"offload\.url is not set"):
            offloading.start(topic)
        with pytest.raises(NoTier):
            await log.offload.copy(None, log.last_stable_position)
        with pytest.raises(InvalidConfig, match=r"offload\.url"):
            await opened.registry.alter_configs("orders", {"remote.storage.enable": "true"})
        with pytest.raises(InvalidConfig):
            await opened.registry.create("x", configs={"remote.storage.enable": "true"})
        await offloading.run_due()


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ({"cleanup.policy": "compact"}, "unsupported for the compacted topics"),
        ({"local.retention.ms": "-1"}, "Value must not be -1 as retention.ms value is set as"),
        ({"retention.ms": "5", "local.retention.ms": "6"}, "must not be more than retention.ms"),
        ({"retention.bytes": "5", "local.retention.bytes": "6"}, "more than retention.bytes"),
    ],
)
async def test_contradictions_are_refused_as_in_kafka(
    configs: Mapping[str, str], words: str
) -> None:
    async with tiered_topics() as tiered:
        with pytest.raises(InvalidConfig, match=words):
            await tiered.topic(**{"remote.storage.enable": "true", **configs})
        await tiered.topic(**configs)
