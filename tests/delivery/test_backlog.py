"""How many records are unacknowledged, however the others were acknowledged."""

import pytest

import kledger.delivery.backlog
from kledger.delivery.backlog import count_backlog
from kledger.ledger import EARLIEST, LATEST, Entry, Position
from tests.batches.words import batch
from tests.topics.words import append, open_topics

SIZES = (3, 1, 4, 2, 5)


async def test_acknowledged_entries_and_parts_of_entries_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kledger.delivery.backlog, "READ_ENTRIES_MAX", 2)
    async with open_topics() as opened:
        log = await opened.log(configs={"internal.segment.bytes": "150"})
        cursor = await log.managed_ledger.open_cursor("s", initial=EARLIEST)
        assert 0 == await count_backlog(log, cursor, opened.clock)
        at: list[Position] = []
        for size in SIZES:
            result = await append(log, batch(*"abcde"[:size]))
            assert result.position is not None
            at.append(result.position)
        assert len({each.ledger_id for each in at}) > 1
        assert 15 == await count_backlog(log, cursor, opened.clock)
        await cursor.delete(at[2])
        assert 11 == await count_backlog(log, cursor, opened.clock)
        await cursor.delete_batch_index(at[4], [0, 3], 5)
        assert 9 == await count_backlog(log, cursor, opened.clock)
        await cursor.delete(at[0])
        assert 6 == await count_backlog(log, cursor, opened.clock)
        await cursor.mark_delete(at[3])
        assert 3 == await count_backlog(log, cursor, opened.clock)
        await cursor.mark_delete(at[4])
        assert 0 == await count_backlog(log, cursor, opened.clock)


async def test_records_before_the_log_start_do_not_count() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        cursor = await log.managed_ledger.open_cursor("s", initial=EARLIEST)
        at = [(await append(log, batch(*"ab"))).position for _ in range(4)]
        await cursor.delete([each for each in at[1:3] if each is not None])
        assert 4 == await count_backlog(log, cursor, opened.clock)
        await log.delete_records(3)
        assert 2 == await count_backlog(log, cursor, opened.clock)


async def test_batch_that_begins_before_the_log_start_counts_in_part() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        cursor = await log.managed_ledger.open_cursor("s", initial=EARLIEST)
        at = (await append(log, batch(*"abcdef"))).position
        assert at is not None
        await cursor.delete_batch_index(at, [0, 4], 6)
        assert 4 == await count_backlog(log, cursor, opened.clock)
        await log.delete_records(3)
        assert 2 == await count_backlog(log, cursor, opened.clock)


async def test_only_entries_up_to_the_last_acknowledged_are_read() -> None:
    """The length of a backlog does not matter when nothing behind it is acknowledged."""
    async with open_topics() as opened:
        log = await opened.log()
        cursor = await log.managed_ledger.open_cursor("s", initial=EARLIEST)
        for _ in range(50):
            await append(log, batch("a"))
        entries = await log.managed_ledger.read_entries(EARLIEST, 2)
        await cursor.delete(entries[1].position)
        reads = []
        read = log.managed_ledger.read_entries

        async def counted(
            start: Position, count: int, upto: Position = LATEST, *, bytes_max: int | None = None
        ) -> list[Entry]:
            found = await read(start, count, upto, bytes_max=bytes_max)
            reads.append(len(found))
            return found

        log.managed_ledger.read_entries = counted  # type: ignore[method-assign, assignment]
        assert 49 == await count_backlog(log, cursor, opened.clock)
        assert sum(reads) <= 3
