"""Items are written in order, in messages of a bounded size."""

import asyncio

from kledger.native.rpc.outbox import ITEM_BYTES, Outbox


async def test_items_leave_in_order_and_no_message_is_larger_than_the_goal() -> None:
    outbox: Outbox[str] = Outbox(1_000)
    for item, size in (("a", 300), ("b", 300), ("c", 300), ("d", 5_000), ("e", 0)):
        outbox.put(item, size)
    assert 5_900 + 5 * ITEM_BYTES == outbox.waiting_bytes
    assert [["a", "b"], ["c"], ["d"], ["e"]] == [await outbox.take() for _ in range(4)]
    assert (0, 0) == (outbox.waiting_bytes, len(outbox))


async def test_many_small_items_are_bounded_too() -> None:
    outbox: Outbox[int] = Outbox(10 * ITEM_BYTES)
    for number in range(25):
        outbox.put(number)
    assert [10, 10, 5] == [len(await outbox.take()) for _ in range(3)]


async def test_writer_waits_for_the_next_item() -> None:
    outbox: Outbox[str] = Outbox(1_000)
    taking = asyncio.ensure_future(outbox.take())
    await asyncio.sleep(0)
    assert not taking.done()
    outbox.put("a")
    assert ["a"] == await taking


async def test_finished_outbox_returns_its_items_and_ignores_new_ones() -> None:
    outbox: Outbox[str] = Outbox(1_000)
    outbox.put("a")
    outbox.finish()
    outbox.put("b")
    assert ["a"] == await outbox.take()
    assert [] == await outbox.take()


async def test_discarded_items_are_not_written_and_not_counted() -> None:
    outbox: Outbox[int] = Outbox(1_000)
    for number in range(5):
        outbox.put(number, 100)
    assert [1, 3] == outbox.discard(lambda number: number % 2 == 1)
    assert [] == outbox.discard(lambda number: number > 9)
    assert (3, 3 * (100 + ITEM_BYTES)) == (len(outbox), outbox.waiting_bytes)
    assert [0, 2, 4] == await outbox.take()
    assert 0 == outbox.waiting_bytes


async def test_finishing_wakes_the_writer() -> None:
    outbox: Outbox[str] = Outbox(1_000)
    taking = asyncio.ensure_future(outbox.take())
    await asyncio.sleep(0)
    outbox.finish()
    assert [] == await taking


async def test_an_item_without_data_replaces_one_of_its_kind_at_the_end() -> None:
    outbox: Outbox[int] = Outbox(1_000)
    for number in (1, 3, 5):
        outbox.replace_last(number, lambda last: last % 2 == 1)
    outbox.put(2)
    outbox.replace_last(7, lambda last: last % 2 == 1)
    assert 3 * ITEM_BYTES == outbox.waiting_bytes
    assert [5, 2, 7] == await outbox.take()
