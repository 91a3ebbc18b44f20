"""A closed handle is freed with its last reference, and its cursors with it.

It was in cycles with its reader, its timer and its cursors: ten thousand partitions that were
closed stayed in memory until a collection of everything, which holds up the loop for seconds.
"""

import asyncio

from kledger.ledger import EARLIEST, LATEST, LedgerStore, ManagedLedger, Position
from kledger.ledger.config import ManagedLedgerConfig
from kledger.ledger.errors import LedgerError
from tests.freed import Freed, without_collection
from tests.ledger.words import SMALL, add_all, numbers

ROLLING = ManagedLedgerConfig(max_rollover_ms=1_000_000, max_entries_per_ledger=4)


async def used(store: LedgerStore, freed: Freed) -> ManagedLedger:
    """A handle of which everything was used."""
    ml = await store.open_managed_ledger("orders", config=ROLLING)
    freed.watch(ml=ml)
    await add_all(ml, numbers(0, 9))
    await ml.read_entries(EARLIEST, 10)
    await ml.find_newest_matching(lambda entry: entry.position < Position(1, 2))
    ml.listen(lambda: None)()
    return ml


async def woken() -> None:
    """Let woken tasks run."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_closed_handle_is_freed(store: LedgerStore) -> None:
    with without_collection() as freed:
        ml = await used(store, freed)
        await ml.close()
        del ml
        assert [] == freed.left()


async def test_a_closed_handle_is_freed_with_its_cursors(store: LedgerStore) -> None:
    with without_collection() as freed:
        ml = await used(store, freed)
        cursor = await ml.open_cursor("c", initial=EARLIEST)
        entries = await cursor.read(4)
        await cursor.delete([entry.position for entry in entries[1:]])
        await cursor.reset_to_time(0)
        ahead = await ml.new_non_durable_cursor(LATEST)
        waiting = asyncio.ensure_future(ahead.read_or_wait(1))
        await woken()
        closed = await ml.open_cursor("closed")
        await closed.close()
        freed.watch(cursor=cursor, ahead=ahead, closed=closed)
        await ml.close()
        await asyncio.wait([waiting])
        assert isinstance(waiting.exception(), LedgerError)
        del ml, cursor, ahead, closed, waiting, entries
        await woken()
        assert [] == freed.left()


async def test_an_opening_of_a_cursor_is_freed_when_it_is_closed(ml: ManagedLedger) -> None:
    """The registry keeps the last handle of a durable cursor, which can be opened again."""
    with without_collection() as freed:
        await add_all(ml, numbers(0, 9))
        first = await ml.open_cursor("c", initial=EARLIEST)
        await first.mark_delete((await first.read(1))[0].position)
        other = await ml.new_non_durable_cursor()
        freed.watch(first=first, other=other)
        await first.close()
        await other.close()
        await ml.open_cursor("c")
        del first, other
        assert [] == freed.left()


async def test_a_handle_is_freed_after_its_deletion(store: LedgerStore) -> None:
    with without_collection() as freed:
        ml = await used(store, freed)
        await ml.open_cursor("c")
        await store.delete_managed_ledger("orders")
        del ml
        await woken()
        assert [] == freed.left()


async def test_a_handle_is_freed_when_another_takes_over(store: LedgerStore) -> None:
    with without_collection() as freed:
        ml = await used(store, freed)
        await ml.open_cursor("c")
        await store.open_managed_ledger("orders", config=SMALL)
        del ml
        await woken()
        assert [] == freed.left()


async def test_cached_entries_can_go_with_it(store: LedgerStore) -> None:
    ml = await store.open_managed_ledger("orders", config=SMALL)
    await add_all(ml, numbers(0, 9))
    assert store.cached_bytes
    await ml.close()
    assert store.cached_bytes, "it may be opened again soon"
    ml.evict_cached()
    assert 0 == store.cached_bytes
