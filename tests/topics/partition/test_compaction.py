"""Compacted partitions: what readers see before, while and after the beginning is rewritten."""

import asyncio
import math
import re

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.topics.config.topic_config import TopicDefaults
from kledger.topics.errors import (
    CompactionRunning,
    StrategyFailed,
    StrategyNotAllowed,
    TopicStorageFailed,
)
from kledger.topics.io_throttle import IoThrottle
from kledger.topics.partition.partition_compaction import CompactionLimits, CompactionState
from kledger.topics.partition.partition_log import PartitionLog
from tests.batches.words import NOW_MS
from tests.topics.compaction.strategies import open_here
from tests.topics.words import SMALL_SEGMENTS, all_values, append, offsets, open_topics

COMPACTED = {**SMALL_SEGMENTS, "cleanup.policy": "compact"}
LIMITS = CompactionLimits()


async def keyed(log: PartitionLog, *texts: str, timestamp: int = NOW_MS) -> None:
    """Append a batch of its own for each `key=value`."""
    for text in texts:
        key, value = text.encode().split(b"=")
        await append(log, build_batch([NewRecord(value, key=key, timestamp=timestamp)]))


async def test_the_newest_record_of_each_key_stays_at_its_offset() -> None:
    async with open_topics() as topics:
        log = await topics.log(configs=COMPACTED)
        await keyed(log, "a=1", "b=1", "a=2", "c=1", "b=2")
        await log.compact(LIMITS)
        assert [2, 3, 4] == offsets(await log.read(0, 1 << 20))
        assert (0, 5) == (log.log_start_offset, log.high_watermark)
        await keyed(log, "a=3")
        assert [b"2", b"1", b"2", b"3"] == await all_values(log)
        await log.compact(LIMITS)
        assert [b"1", b"2", b"3"] == await all_values(log)


async def test_a_run_in_many_small_steps_keeps_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FaultyEngine(None)
    module = "kledger.topics.partition.partition_compaction"
    monkeypatch.setattr(f"{module}.STEP_ENTRIES", 2)
    monkeypatch.setattr(f"{module}.CHUNK_ENTRIES", 4)
    async with open_topics(engine) as topics:
        log = await topics.log(configs=COMPACTED)
        await keyed(log, *(f"k{n % 7}={n}" for n in range(30)))
        before = engine.calls["commit"]
        await log.compact(LIMITS)
        assert [b"%d" % n for n in range(23, 30)] == await all_values(log)
        assert engine.calls["commit"] - before >= 4, "seven batches were stored two at a time"
        await keyed(log, *(f"k{n % 7}={n}" for n in range(30, 34)))
        await log.compact(LIMITS)
        assert [b"%d" % n for n in range(27, 34)] == await all_values(log)


async def test_ledgers_that_are_compacted_go_and_offsets_go_on() -> None:
    """Nothing but the checkpoint says what the next offset is, then."""
    engine = FaultyEngine(None)
    async with open_topics(engine) as topics:
        log = await topics.log(configs=COMPACTED)
        await keyed(log, *(f"k{n % 3}={n}" for n in range(20)))
        before = log.managed_ledger.ledgers
        await log.managed_ledger.roll_over()
        await log.compact(LIMITS)
        assert [0] == [each.entries for each in log.managed_ledger.ledgers]
        assert len(before) > 2
    async with open_topics(engine) as topics:
        log = await topics.log()
        assert (0, 20) == (log.log_start_offset, log.high_watermark)
        assert [b"17", b"18", b"19"] == await all_values(log)
        assert CompactionState.SUCCESS == log.compaction.status.state
        await keyed(log, "k1=20")
        await log.compact(LIMITS)
        assert [b"17", b"18", b"20"] == await all_values(log)
        await keyed(log, "k3=21")
        assert [17, 18, 20, 21] == offsets(await log.read(0, 1 << 20)) + offsets(
            await log.read(21, 1 << 20)
        )


async def test_what_is_read_twice_and_written_counts_for_the_limit_of_io() -> None:
    async with open_topics() as topics:
        log = await topics.log(configs=COMPACTED)
        await keyed(log, *(f"k{n % 3}={n}" for n in range(20)))
        throttle = IoThrottle(ManualClock(), lambda: math.inf)
        counts = await log.compact(CompactionLimits(throttles=(throttle,)))
        assert counts is not None
        assert 2 * counts.bytes_read + counts.bytes_kept == throttle.taken_bytes


async def commits_until_visible(engine: FaultyEngine, log: PartitionLog) -> int:
    """Compact, and count the commits up to the one that makes it visible."""
    before, replaced = engine.calls["commit"], log.managed_ledger.compacted
    commits: list[int] = []

    def changed() -> None:
        if log.managed_ledger.compacted != replaced and not commits:
            commits.append(engine.calls["commit"] - before)

    log.managed_ledger.add_listener(changed)
    await log.compact(LIMITS)
    return commits[0]


async def test_a_read_of_ledgers_that_are_removed_begins_again_in_what_was_kept() -> None:
    """A read that skipped them, as one of trimmed ledgers does, would skip what was kept."""
    commits = 0
    for is_rehearsal in (True, False):
        engine = FaultyEngine(None)
        async with open_topics(engine) as topics:
            log = await topics.log(configs=COMPACTED)
            await keyed(log, *(f"k{n % 3}={n}" for n in range(20)))
        async with open_topics(engine) as topics:
            log = await topics.log()
            if is_rehearsal:
                commits = await commits_until_visible(engine, log)
                continue
            compacting = asyncio.ensure_future(log.compact(LIMITS))
            for number in range(commits):
                hold = engine.hold_next("commit")
                await hold.reached()
                if number == commits - 1:
                    held_read = engine.hold_next("read")
                    reading = asyncio.ensure_future(log.read(3, 1 << 20))
                    await held_read.reached()
                hold.release()
            await compacting
            assert 4 > len(log.managed_ledger.ledgers), "the ledgers are removed"
            held_read.release()
            assert [17, 18, 19] == offsets(await reading)


@pytest.mark.parametrize("runs_before", [0, 1])
async def test_a_run_that_is_cancelled_as_it_becomes_visible_is_taken_over(
    runs_before: int,
) -> None:
    """Regression: reads found its predecessor replaced for ever, or its ledgers removed."""
    commits = 0
    for is_rehearsal in (True, False):
        engine = FaultyEngine(None)
        async with open_topics(engine) as topics:
            log = await topics.log(configs=COMPACTED)
            await keyed(log, *(f"k{n % 3}={n}" for n in range(20)))
            for _ in range(runs_before):
                await log.compact(LIMITS)
            before = log.managed_ledger.compacted
            await keyed(log, "k1=20")
            if is_rehearsal:
                commits = await commits_until_visible(engine, log)
                continue
            compacting = asyncio.ensure_future(log.compact(LIMITS))
            for number in range(commits):
                hold = engine.hold_next("commit")
                await hold.reached()
                if number == commits - 1:
                    while not compacting.done():  # the first time it aborts what it has written
                        compacting.cancel()
                        await asyncio.sleep(0)
                hold.release()
            assert compacting.cancelled()
            await topics.store.flush()
            assert before != log.managed_ledger.compacted, "it is visible"
            await log.enforce_retention()
            async with asyncio.timeout(60):
                assert [b"17", b"18", b"20"] == await all_values(log)
            assert CompactionState.SUCCESS == log.compaction.status.state


async def test_a_run_begins_only_when_a_removal_has_ended() -> None:
    """Regression: it counted records that were gone when it read them again, and kept others."""
    engine = FaultyEngine(None)
    async with open_topics(engine) as topics:
        configs = {**COMPACTED, "cleanup.policy": "compact,delete", "retention.ms": "1000"}
        log = await topics.log(configs=configs)
        await keyed(log, *(f"k{n % 3}={n}" for n in range(20)))
        await keyed(log, "k9=20", timestamp=NOW_MS + 5000)
        topics.clock.advance(5000)
        hold = engine.hold_next("commit")
        removing = asyncio.ensure_future(log.enforce_retention())
        await hold.reached()
        compacting = asyncio.ensure_future(log.compact(LIMITS))
        for _ in range(10):
            await asyncio.sleep(0)
        did_begin = log.managed_ledger.is_compacting
        hold.release()
        await asyncio.gather(removing, compacting)
        assert not did_begin
        assert b"20" == (await all_values(log))[-1]


async def test_a_run_of_which_nothing_stays_does_not_move_the_horizon() -> None:
    async with open_topics() as topics:
        log = await topics.log(configs=COMPACTED)
        await keyed(log, "a=1", "b=1")
        await log.delete_records(2)
        await log.compact(LIMITS)
        status = log.compaction.status
        assert (CompactionState.SUCCESS, None) == (status.state, status.horizon)


async def test_times_are_found_in_what_was_kept_and_behind_it() -> None:
    async with open_topics() as topics:
        log = await topics.log(configs=COMPACTED)
        for number, text in enumerate(["a=1", "b=1", "a=2", "c=1"]):
            await keyed(log, text, timestamp=NOW_MS + number)
        await log.compact(LIMITS)
        await keyed(log, "d=1", timestamp=NOW_MS + 9)
        found = [await log.offset_for_timestamp(NOW_MS + each) for each in (0, 1, 2, 3, 4, 10)]
        assert [1, 1, 2, 3, 4, None] == [None if each is None else each.offset for each in found]
        newest = await log.max_timestamp_offset()
        assert newest is not None
        assert (NOW_MS + 9, 4) == newest


async def test_a_failure_at_any_step_changes_nothing() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine) as topics:
        log = await topics.log(configs=COMPACTED)
        await keyed(log, "a=1", "b=1", "a=2")
        await log.compact(LIMITS)
        await keyed(log, "b=2", "c=1")
        expected = await all_values(log)
        for count in range(1, 20):
            hold_at = engine.calls["commit"] + count
            failed = False
            task = asyncio.ensure_future(log.compact(LIMITS))
            while not task.done():
                if engine.calls["commit"] == hold_at - 1 and not failed:
                    engine.fail_next("commit")
                    failed = True
                await asyncio.sleep(0)
            if task.exception() is None:
                break
            assert isinstance(task.exception(), TopicStorageFailed)
            assert expected == await all_values(log)
            assert CompactionState.ERROR == log.compaction.status.state
        assert count > 2, "several steps failed"
        assert [b"2", b"2", b"1"] == await all_values(log)


async def test_one_compaction_runs_at_a_time() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine) as topics:
        log = await topics.log(configs=COMPACTED)
        await keyed(log, "a=1", "a=2")
        hold = engine.hold_next("commit")
        running = asyncio.ensure_future(log.compact(LIMITS))
        await hold.reached()
        assert CompactionState.RUNNING == log.compaction.status.state
        with pytest.raises(CompactionRunning):
            await log.compact(LIMITS)
        hold.release()
        await running


async def test_without_the_policy_readers_see_what_was_appended() -> None:
    async with open_topics() as topics:
        log = await topics.log(configs=SMALL_SEGMENTS)
        await keyed(log, "a=1", "b=1", "a=2")
        await log.compact(LIMITS)
        assert [b"1", b"1", b"2"] == await all_values(log)
        await topics.registry.alter_configs("orders", {"cleanup.policy": "compact"})
        assert [b"1", b"2"] == await all_values(log)


async def test_a_policy_that_also_deletes_expires_what_was_kept() -> None:
    """Age is that of the newest record of an interval, as it is that of a segment."""
    async with open_topics() as topics:
        configs = {**COMPACTED, "cleanup.policy": "compact,delete", "retention.ms": "1000"}
        log = await topics.log(configs=configs)
        await keyed(log, "a=1", "b=1")
        await keyed(log, "c=1", "a=2", timestamp=NOW_MS + 800)
        await log.managed_ledger.roll_over()
        await log.compact(LIMITS)
        topics.clock.advance(900)
        await log.enforce_retention()
        assert [b"1", b"1", b"2"] == await all_values(log)
        topics.clock.advance(1000)
        await log.enforce_retention()
        assert (4, 4) == (log.log_start_offset, log.high_watermark)
        assert [] == await all_values(log)


async def test_log_start_stays_while_nothing_is_released() -> None:
    """A consumer may be at an offset whose record was compacted; only retention puts it out."""
    async with open_topics() as topics:
        configs = {**COMPACTED, "cleanup.policy": "compact,delete", "retention.ms": "1000"}
        log = await topics.log(configs=configs)
        await keyed(log, "a=1", "b=1", "a=2")
        await log.managed_ledger.roll_over()
        await log.compact(LIMITS)
        await log.enforce_retention()
        assert 0 == log.log_start_offset
        assert [1, 2] == offsets(await log.read(0, 1 << 20))


async def test_records_before_the_log_start_do_not_come_back() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine) as topics:
        log = await topics.log(configs=COMPACTED)
        await keyed(log, "a=1", "b=1", "c=1", "a=2")
        await log.compact(LIMITS)
        await log.delete_records(2)
        assert [b"1", b"2"] == await all_values(log)
        await keyed(log, "d=1")
        await log.compact(LIMITS)
        assert [b"1", b"2", b"1"] == await all_values(log)
        assert 2 == log.log_start_offset
    async with open_topics(engine) as topics:
        assert [b"1", b"2", b"1"] == await all_values(await topics.log())


async def test_an_empty_partition_has_nothing_to_compact() -> None:
    async with open_topics() as topics:
        log = await topics.log(configs=COMPACTED)
        await log.compact(LIMITS)
        assert CompactionState.NOT_RUN == log.compaction.status.state


async def test_a_deleted_topic_leaves_no_entries() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine) as topics:
        log = await topics.log(configs=COMPACTED)
        await keyed(log, "a=1", "a=2")
        await log.compact(LIMITS)
        compacted = log.managed_ledger.compacted
        assert compacted is not None
        await topics.registry.delete("orders")
        await topics.registry.finish_deletions()
        assert -1 == engine.last_entry(compacted.ledger_id)
        assert [] == topics.store.scan_rows(b"P")


async def test_records_that_come_during_a_run_are_behind_its_horizon() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine) as topics:
        log = await topics.log(configs=COMPACTED)
        await keyed(log, "a=1", "b=1")
        last = log.managed_ledger.last_confirmed_entry
        hold = engine.hold_next("commit")
        compacting = asyncio.ensure_future(log.compact(LIMITS))
        await hold.reached()
        appending = asyncio.ensure_future(keyed(log, "a=2"))
        hold.release()
        await asyncio.gather(compacting, appending)
        assert last == log.compaction.status.horizon
        assert [b"1", b"1", b"2"] == await all_values(log)
        await log.compact(LIMITS)
        assert [b"1", b"2"] == await all_values(log)


async def test_a_tombstone_stays_for_its_time_and_goes_with_the_next_run() -> None:
    """Its time begins with the run that first keeps it, and survives a restart."""
    engine = FaultyEngine(None)
    async with open_topics(engine) as topics:
        log = await topics.log(configs={**COMPACTED, "delete.retention.ms": "1000"})
        await keyed(log, "a=1", "b=1")
        await append(log, build_batch([NewRecord(None, key=b"a", timestamp=NOW_MS)]))
        await keyed(log, "c=1")
        await log.compact(LIMITS)
        assert [b"1", None, b"1"] == await all_values(log)
    for passed_ms, left in ((999, [b"1", None, b"1"]), (1000, [b"1", b"1"])):
        async with open_topics(engine, now_ms=NOW_MS + passed_ms) as topics:
            log = await topics.log()
            await log.compact(LIMITS)
            assert left == await all_values(log)


async def test_a_policy_that_does_not_compact_any_more_shows_what_is_left() -> None:
    """What was removed does not come back; what is appended from now on stays."""
    async with open_topics() as topics:
        log = await topics.log(configs=COMPACTED)
        await keyed(log, *(f"k{n % 3}={n}" for n in range(20)))
        await log.managed_ledger.roll_over()
        await log.compact(LIMITS)
        await topics.registry.alter_configs("orders", {"cleanup.policy": "delete"})
        assert (0, [b"17", b"18", b"19"]) == (log.log_start_offset, await all_values(log))
        await keyed(log, "k0=20", "k0=21")
        assert [b"17", b"18", b"19", b"20", b"21"] == await all_values(log)
        await topics.registry.alter_configs("orders", {"cleanup.policy": "compact"})
        await log.compact(LIMITS)
        assert [b"17", b"19", b"21"] == await all_values(log)


# Strategies

BY_STRATEGIES = CompactionLimits(open_strategy=open_here)
ALLOWED = TopicDefaults(compaction_strategy_modules=("own",))


def by(name: str, **configs: str) -> dict[str, str]:
    """Return settings of a topic whose strategy `open_here` opens."""
    return {**COMPACTED, "compaction.strategy": f"own:{name}", **configs}


async def test_a_strategy_decides_which_record_of_a_key_stays() -> None:
    """In the second run, too, between what the first has kept and what was appended since."""
    async with open_topics(defaults=ALLOWED) as topics:
        log = await topics.log(configs=by("largest"))
        await keyed(log, "a=5", "b=1", "a=3", "b=2", "a=4")
        counts = await log.compact(BY_STRATEGIES)
        assert counts is not None
        assert (2, 1) == (counts.skipped, counts.superseded)
        assert [b"5", b"2"] == await all_values(log)
        await keyed(log, "b=1", "a=6", "c=1")
        assert [b"5", b"2", b"1", b"6", b"1"] == await all_values(log)
        await log.compact(BY_STRATEGIES)
        assert [b"2", b"6", b"1"] == await all_values(log)


async def test_a_strategy_can_be_changed_between_runs() -> None:
    async with open_topics(defaults=ALLOWED) as topics:
        log = await topics.log(configs=by("largest"))
        await keyed(log, "a=5", "a=3")
        await log.compact(BY_STRATEGIES)
        await topics.registry.alter_configs("orders", {"compaction.strategy": None})
        await keyed(log, "a=2")
        await log.compact(BY_STRATEGIES)
        assert [b"2"] == await all_values(log)


@pytest.mark.parametrize("policy", ["compact", "delete"])
async def test_deleted_records_are_not_shown_to_a_strategy(policy: str) -> None:
    """The log begins within a batch; were its first record kept, the key would be lost."""
    async with open_topics(defaults=ALLOWED) as topics:
        log = await topics.log(configs=by("first_one", **{"cleanup.policy": policy}))
        pairs = [(b"a", b"9"), (b"b", b"9"), (b"a", b"1")]
        records = [NewRecord(value, key=key, timestamp=NOW_MS) for key, value in pairs]
        await append(log, build_batch(records))
        await keyed(log, "a=2", "b=1")
        await log.delete_records(2)
        await log.compact(BY_STRATEGIES)
        await topics.registry.alter_configs("orders", {"cleanup.policy": "compact"})
        assert [b"1", b"1"] == await all_values(log)


@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [
        ("own:only_numbers", StrategyFailed, "own:only_numbers failed .* offset 1: ValueError"),
        ("own:Missing", StrategyFailed, "own:Missing cannot be loaded"),
        (
            "other:largest",
            StrategyNotAllowed,
            r"compaction\.strategy: .*\(own\), got other:largest",
        ),
    ],
)
async def test_a_strategy_that_fails_or_is_forbidden_changes_nothing(
    name: str, kind: type[Exception], reason: str
) -> None:
    engine = FaultyEngine(None)
    defaults = TopicDefaults(compaction_strategy_modules=("own", "other"))
    async with open_topics(engine, defaults=defaults) as topics:
        log = await topics.log(configs={**COMPACTED, "compaction.strategy": name})
        await keyed(log, "a=1", "a=x", "a=2")
    async with open_topics(engine, defaults=ALLOWED) as topics:
        log = await topics.log()
        with pytest.raises(kind, match=reason):
            await log.compact(BY_STRATEGIES)
        status = log.compaction.status
        assert (CompactionState.ERROR, None) == (status.state, status.horizon)
        assert re.search(reason, status.error)
        assert [b"1", b"x", b"2"] == await all_values(log)
        assert not log.managed_ledger.is_compacting
