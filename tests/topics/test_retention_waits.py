"""What retention waits for: durable cursors, groups, nothing; and what DeleteRecords does."""

import asyncio
from uuid import UUID

import pytest

from kledger.batches.header import read_header
from kledger.ledger import EARLIEST, Cursor, Position, StoreConfig
from kledger.ledger.testing import FaultyEngine
from kledger.topics.errors import TopicsError
from kledger.topics.keys import PartitionKeys
from kledger.topics.partition.partition_log import PartitionLog
from kledger.topics.partition.records import encode_log_start
from tests.batches.words import batch
from tests.topics.words import SMALL_SEGMENTS, TopicStore, append, open_topics

COUNT = 30
WAITS_FOR = "kledger.retention.waits.for"
TOO_OLD = {**SMALL_SEGMENTS, "retention.ms": "10"}
TOO_MUCH = {**SMALL_SEGMENTS, "retention.bytes": "0"}


async def fill(opened: TopicStore, configs: dict[str, str]) -> tuple[PartitionLog, list[Position]]:
    """Append batches of one record, which retention may remove; return their positions."""
    log = await opened.log(configs=configs)
    places = []
    for index in range(COUNT):
        position = (await append(log, batch(str(index) * 30))).position
        assert position is not None
        places.append(position)
    opened.clock.advance(100)
    return log, places


async def first_unacknowledged(cursor: Cursor) -> int:
    """Return the offset of the first batch that a cursor still reads."""
    await cursor.rewind()
    entries = await cursor.read(1)
    return read_header(entries[0].buffer).base_offset if entries else COUNT


@pytest.mark.parametrize("configs", [TOO_OLD, TOO_MUCH])
async def test_unacknowledged_records_of_a_durable_cursor_are_kept(configs: dict[str, str]) -> None:
    async with open_topics() as opened:
        log, places = await fill(opened, configs)
        cursor = await log.managed_ledger.open_cursor("slow", initial=EARLIEST)
        await log.enforce_retention()
        assert 0 == log.log_start_offset
        await cursor.mark_delete(places[14])
        await log.enforce_retention()
        assert 0 < log.log_start_offset <= 15
        assert places[14].ledger_id <= log.managed_ledger.ledgers[0].ledger_id
        assert 15 == await first_unacknowledged(cursor)
        await cursor.mark_delete(places[-1])
        await log.enforce_retention()
        assert (COUNT, 0) == (log.log_start_offset, log.size_bytes)


async def test_deleting_the_subscription_releases_its_records() -> None:
    async with open_topics() as opened:
        log, _ = await fill(opened, TOO_OLD)
        await log.managed_ledger.open_cursor("slow", initial=EARLIEST)
        await log.managed_ledger.delete_cursor("slow")
        await log.enforce_retention()
        assert COUNT == log.log_start_offset


async def test_non_durable_cursor_does_not_delay_retention() -> None:
    async with open_topics() as opened:
        log, _ = await fill(opened, TOO_OLD)
        cursor = await log.managed_ledger.new_non_durable_cursor(EARLIEST)
        await log.enforce_retention()
        assert COUNT == log.log_start_offset == await first_unacknowledged(cursor)


@pytest.mark.parametrize("waits_for", ["", "groups"])
async def test_topic_that_does_not_wait_moves_cursors(waits_for: str) -> None:
    async with open_topics() as opened:
        log, _ = await fill(opened, {**TOO_OLD, WAITS_FOR: waits_for})
        cursor = await log.managed_ledger.open_cursor("slow", initial=EARLIEST)
        await log.enforce_retention()
        assert (COUNT, 0) == (log.log_start_offset, cursor.backlog)


async def test_setting_can_be_changed_at_any_time() -> None:
    async with open_topics() as opened:
        log, _ = await fill(opened, TOO_OLD)
        await log.managed_ledger.open_cursor("slow", initial=EARLIEST)
        await opened.registry.enforce_retention()
        assert 0 == log.log_start_offset
        await opened.registry.alter_configs("orders", {WAITS_FOR: ""})
        await opened.registry.enforce_retention()
        assert COUNT == log.log_start_offset


@pytest.mark.parametrize("waits_for", ["groups", "groups,subscriptions", "subscriptions"])
async def test_uncommitted_records_stay_in_topics_that_wait_for_groups(
    waits_for: str,
) -> None:
    async with open_topics() as opened:
        log, _ = await fill(opened, {**TOO_OLD, WAITS_FOR: waits_for})
        asked: list[tuple[str, UUID, int]] = []

        def committed(*place: object) -> int:
            asked.append(place)  # type: ignore[arg-type]
            return 15

        await opened.registry.enforce_retention(committed)
        is_kept = "groups" in waits_for
        assert ([("orders", log.topic_id, 0)] if is_kept else []) == asked
        assert is_kept == (0 < log.log_start_offset <= 15)
        await opened.registry.enforce_retention()  # no group has committed anything
        assert COUNT == log.log_start_offset


async def test_open_ledger_is_not_closed_while_it_has_unacknowledged_entries() -> None:
    async with open_topics() as opened:
        log = await opened.log(configs={"retention.ms": "10"})
        position = (await append(log, batch("a"))).position
        assert position is not None
        cursor = await log.managed_ledger.open_cursor("slow", initial=EARLIEST)
        opened.clock.advance(100)
        for _ in range(3):
            await log.enforce_retention()
        assert [position.ledger_id] == [each.ledger_id for each in log.managed_ledger.ledgers]
        await cursor.mark_delete(position)
        await log.enforce_retention()
        assert (1, 0) == (log.log_start_offset, log.size_bytes)


@pytest.mark.parametrize("before", [1, 7, 13, 29, COUNT])
async def test_deleted_records_never_wait_and_are_not_delivered(before: int) -> None:
    """Within a ledger nothing is removed, but deleted records are not delivered."""
    async with open_topics() as opened:
        log, places = await fill(opened, SMALL_SEGMENTS)
        slow = await log.managed_ledger.open_cursor("slow", initial=EARLIEST)
        fast = await log.managed_ledger.open_cursor("fast", initial=EARLIEST)
        await fast.mark_delete(places[19])
        await log.delete_records(before)
        assert before == log.log_start_offset == await first_unacknowledged(slow)
        assert max(before, 20) == await first_unacknowledged(fast)


async def test_log_start_in_an_unreadable_entry_does_not_move() -> None:
    """The log began at 3, the cursor stayed at 0 and delivered what DeleteRecords had removed."""
    engine = FaultyEngine(None)
    async with open_topics(engine, store_config=StoreConfig(cache_bytes=0)) as opened:
        log, _ = await fill(opened, SMALL_SEGMENTS)
        cursor = await log.managed_ledger.open_cursor("slow", initial=EARLIEST)
        engine.fail_next("read")
        with pytest.raises(TopicsError, match="read"):
            await log.delete_records(3)
        assert 0 == log.log_start_offset == await first_unacknowledged(cursor)
        await log.delete_records(3)
        assert 3 == log.log_start_offset == await first_unacknowledged(cursor)


@pytest.mark.parametrize("is_deleted_by_a_crash", [True, False])
async def test_log_start_within_a_batch_keeps_its_later_records(
    is_deleted_by_a_crash: bool,
) -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine, is_closed_cleanly=not is_deleted_by_a_crash) as opened:
        log = await opened.log()
        await append(log, batch("a"))
        position = (await append(log, batch("b", "c", "d"))).position
        assert position is not None
        cursor = await log.managed_ledger.open_cursor("slow", initial=EARLIEST)
        await log.delete_records(2)
        assert frozenset({1, 2}) == cursor.batch_indexes(position)
    async with open_topics(engine) as again:
        cursor = (await again.log()).managed_ledger.cursors["slow"]
        assert frozenset({1, 2}) == cursor.batch_indexes(position)
        assert 1 == cursor.backlog


async def test_crash_after_the_log_start_moves_cursors_at_the_next_start() -> None:
    engine = FaultyEngine(None)
    synced = StoreConfig(durability="fsync")
    async with open_topics(engine, store_config=synced, is_closed_cleanly=False) as opened:
        log, _ = await fill(opened, SMALL_SEGMENTS)
        await log.managed_ledger.open_cursor("slow", initial=EARLIEST)
        await opened.store.flush()
        engine.delay_next("commit", 0)
        hold = engine.hold_next("commit")  # after the log start
        deleting = asyncio.ensure_future(log.delete_records(3))
        await hold.reached()
        engine.drop_unsynced()
        await asyncio.gather(deleting, return_exceptions=True)
    async with open_topics(engine) as again:
        log = await again.log()
        assert 3 == log.log_start_offset
        assert 3 == await first_unacknowledged(log.managed_ledger.cursors["slow"])


@pytest.mark.parametrize("failures", [1, 2])
async def test_cursors_that_an_opening_could_not_move_are_moved_by_retention(failures: int) -> None:
    """They stayed before the log start until the next opening, and delivered removed records."""
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        log, _ = await fill(opened, SMALL_SEGMENTS)
        await log.managed_ledger.open_cursor("slow", initial=EARLIEST)
        log_start_key = PartitionKeys(log.topic_id, 0).log_start
    async with open_topics(engine, store_config=StoreConfig(cache_bytes=0)) as again:
        # As a crash leaves it, between the row of the log start and the cursors.
        await again.store.put_rows([(log_start_key, encode_log_start(3))])
        engine.delay_next("read", 0)  # of the end, which opening needs
        engine.fail_next("read")
        log = await again.log()
        for _ in range(failures - 1):
            engine.fail_next("read")
            await log.enforce_retention()
        cursor = log.managed_ledger.cursors["slow"]
        assert 3 == log.log_start_offset
        assert 0 == await first_unacknowledged(cursor)
        await log.enforce_retention()
        assert 3 == await first_unacknowledged(cursor)


async def test_partition_with_an_unreadable_beginning_is_opened() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        log, _ = await fill(opened, SMALL_SEGMENTS)
        await log.managed_ledger.open_cursor("slow", initial=EARLIEST)
        await log.delete_records(7)
    async with open_topics(engine) as again:
        engine.delay_next("read", 0)  # of the end, which opening needs
        engine.fail_next("read")
        assert 7 == (await again.log()).log_start_offset
