"""The metrics of PIP-269, with its labels."""

import pytest

from kledger.ledger import EARLIEST, LedgerStore, ManagedLedger, ManagedLedgerConfig, StoreConfig
from kledger.ledger.testing import FaultyEngine
from kledger.runtime.metrics import Family
from tests.ledger.words import OpenStore

COUNT = "pulsar_cursor_epoch_increase_count"
LABELS = 'cluster="east",namespace="{}",topic="{}",subscription="c"'


def shown(store: LedgerStore) -> dict[str, int]:
    """What there is of cursors."""
    numbers = store.metrics.snapshot()
    others = ("storage_", "entries_read", "tier_")
    return {name: value for name, value in numbers.items() if not name.startswith(others)}


@pytest.mark.parametrize(
    ("name", "namespace", "topic"),
    [("orders", "public/default", "orders"), ("shop/eu/orders", "shop/eu", "orders")],
)
async def test_revisions_are_counted_and_shown_while_they_run(
    open_store: OpenStore, name: str, namespace: str, topic: str
) -> None:
    store = await open_store(config=StoreConfig(cluster="east"))
    ml = await store.open_managed_ledger(name)
    await ml.add_entry(b"0")
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    labels = LABELS.format(namespace, topic)
    count = f"pulsar_cursor_epoch_increase_count{{{labels}}}"
    state = f"pulsar_cursor_epoch_increase_task_state{{{labels}}}"
    backlog = f"pulsar_subscription_back_log{{{labels}}}"
    assert {count: 0, state: 0, backlog: 1} == shown(store)
    await cursor.rewind()
    await cursor.reset(EARLIEST)
    cursor.revision.start()
    assert {count: 2, state: 1, backlog: 1} == shown(store)
    cursor.revision.end(lambda _: None)
    await cursor.clear_backlog()
    assert {count: 4, state: 0, backlog: 0} == shown(store)
    ml.show_user_metric(cursor, "users", lambda: 7, "who uses it")
    assert 7 == shown(store)[f"users{{{labels}}}"]
    await cursor.close()
    assert {} == shown(store)


async def test_revisions_are_counted_on_when_a_cursor_is_opened_again(
    store: LedgerStore, ml: ManagedLedger
) -> None:
    """It was a gauge of the open cursor: closing the partition set it back to zero."""

    def shown() -> Family:
        return next(each for each in store.metrics.families() if each.name == COUNT)

    cursor = await ml.open_cursor("c")
    await cursor.rewind()
    await cursor.close()
    cursor = await ml.open_cursor("c")
    await cursor.rewind()
    await ml.close()
    ml = await store.open_managed_ledger("orders")
    assert (True, [2]) == (shown().is_counter, [value for _, value in shown().samples])
    await (await ml.open_cursor("c")).rewind()
    assert [3] == [value for _, value in shown().samples]


async def test_a_count_ends_with_its_cursor(store: LedgerStore, ml: ManagedLedger) -> None:
    counts = store._services.revision_counts
    for name in ("a", "b", "c", "never revised"):
        await ml.open_cursor(name)
    for name in ("a", "b", "c"):
        await (await ml.open_cursor(name)).rewind()
    await ml.delete_cursor("a")
    await ml.close()
    assert 2 == len(counts)
    ml = await store.open_managed_ledger("orders")
    assert 0 == (await ml.open_cursor("a")).revision.count.value
    temporary = await ml.new_non_durable_cursor()
    await temporary.rewind()
    await store.delete_managed_ledger("orders")
    assert {} == shown(store)
    assert 0 == len(counts)


async def test_a_managed_ledger_that_is_closed_takes_its_counts_along(store: LedgerStore) -> None:
    ml = await store.open_managed_ledger("orders")
    await (await ml.open_cursor("c")).rewind()
    await ml.close()
    await store.delete_managed_ledger("orders")
    assert 0 == len(store._services.revision_counts)


async def test_cursors_are_shown_under_the_name_that_is_meant(store: LedgerStore) -> None:
    config = ManagedLedgerConfig(shown_as="shop/eu/orders")
    ml = await store.open_managed_ledger("7f3a", config=config)
    await ml.open_cursor("c")
    assert all('namespace="shop/eu",topic="orders"' in name for name in shown(store))
    assert shown(store)


async def test_cursors_that_were_recovered_or_are_not_durable_are_shown_too(
    store: LedgerStore, ml: ManagedLedger, engine: FaultyEngine, open_store: OpenStore
) -> None:
    await ml.open_cursor("c")
    await store.close()
    assert {} == shown(store)
    again = await open_store(engine=engine)
    ml = await again.open_managed_ledger("orders")
    assert 3 == len(shown(again))
    cursor = await ml.new_non_durable_cursor(EARLIEST)
    assert 6 == len(shown(again))
    await cursor.close()
    await ml.delete_cursor("c")
    assert {} == shown(again)
