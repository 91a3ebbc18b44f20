"""The guarantees of a table view."""

import asyncio
import logging
from collections.abc import Callable

import pytest

import kledger
from kledger.ledger.testing import ManualClock
from tests.native.contract.words import SOON_MS, turn_loop, values

SOON = SOON_MS / 1000
Update = tuple[bytes, bytes | None]


async def put(client: kledger.Client, topic: str, **values_of: bytes | None) -> None:
    """Send the value of each key, one after the other."""
    async with await client.create_producer(topic) as producer:
        for key, value in values_of.items():
            await producer.send(value, key=key)


async def until(is_met: Callable[[], bool]) -> None:
    """Wait for a condition that background work makes true."""
    deadline = asyncio.get_running_loop().time() + SOON
    while not is_met():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0)


def into(seen: list[Update]) -> Callable[[bytes, bytes | None], None]:
    """Return a listener that notes its updates."""
    return lambda key, value: seen.append((key, value))


# The table


async def test_row_133_initial_load_has_everything_that_was_sent_before(
    client: kledger.Client, topic: str
) -> None:
    producer = await client.create_producer(topic, max_pending=2_000)
    for number in range(2_000):
        producer.send_nowait(b"%d" % number, key=b"k%d" % (number % 500))
    await producer.flush()
    view = await client.create_table_view(topic)
    assert {b"k%d" % (number % 500): b"%d" % number for number in range(2_000)} == dict(
        view.items()
    )
    assert (500, b"1999", None) == (len(view), view.get("k499"), view.get(b"k500"))
    assert b"k0" in view
    assert "k0" in view
    assert "k500" not in view


async def test_snapshots_do_not_change_with_the_view(client: kledger.Client, topic: str) -> None:
    await put(client, topic, a=b"1", b=b"2")
    view = await client.create_table_view(topic)
    keys, held, items = view.keys(), view.values(), view.items()
    iterating = iter(view)
    await put(client, topic, a=b"3", c=b"4", b=None)
    await view.refresh()
    assert {b"a": b"3", b"c": b"4"} == dict(view.items())
    assert {b"a", b"b"} == keys == set(iterating)
    assert [b"1", b"2"] == sorted(held)
    assert {(b"a", b"1"), (b"b", b"2")} == items


async def test_row_134_last_value_of_a_key_stays_and_an_empty_one_removes_it(
    client: kledger.Client, topic: str
) -> None:
    view = await client.create_table_view(topic)
    assert 0 == len(view)
    await put(client, topic, a=b"1", b=b"1", c=b"1")
    await put(client, topic, a=b"2", b=b"", c=None, d=None)
    await view.refresh()
    assert {b"a": b"2"} == dict(view.items())
    await put(client, topic, b=b"3")
    await view.refresh()
    assert {b"a": b"2", b"b": b"3"} == dict(view.items())
    again = await client.create_table_view(topic)
    assert dict(view.items()) == dict(again.items())


async def test_messages_without_a_key_change_nothing(client: kledger.Client, topic: str) -> None:
    async with await client.create_producer(topic) as producer:
        await producer.send(b"1", key=b"")
        await producer.send(b"2")
    view = await client.create_table_view(topic)
    assert {b"": b"1"} == dict(view.items())


async def test_last_message_of_each_key_is_kept_on_request(
    client: kledger.Client, topic: str
) -> None:
    await put(client, topic, a=b"1", b=b"2")
    view = await client.create_table_view(topic, keep_messages=True)
    message = view.get_message("b")
    assert message is not None
    assert (b"b", b"2", topic) == (message.key, message.value, message.topic)
    await put(client, topic, b=None)
    await view.refresh()
    assert view.get_message("b") is None
    assert view.get_message("never") is None
    plain = await client.create_table_view(topic)
    with pytest.raises(kledger.InvalidArgument, match="keep_messages"):
        plain.get_message("a")


async def test_view_needs_a_topic(client: kledger.Client) -> None:
    with pytest.raises(kledger.TopicNotFound):
        await client.create_table_view("nowhere")
    with pytest.raises(kledger.InvalidArgument):
        await client.create_table_view("")
    with pytest.raises(kledger.InvalidArgument):
        await client.create_table_view("orders", partition_refresh_ms=0)
    await client.create_topic("orders")
    with pytest.raises(kledger.InvalidArgument, match="should_keep_left"):
        await client.create_table_view("orders", strategy=max)  # type: ignore[arg-type]


async def test_records_read_so_far_are_shown_while_a_view_loads(
    client: kledger.Client, topic: str
) -> None:
    producer = await client.create_producer(topic, max_pending=3_000)
    for number in range(3_000):
        producer.send_nowait(b"v", key=b"%d" % number)
    await producer.flush()
    counts: list[int] = []
    view = await client.create_table_view(topic, on_load=counts.append)
    assert counts == sorted(counts)
    assert 3_000 == counts[-1]
    await put(client, topic, a=b"1")
    await view.refresh()
    assert 3_000 == counts[-1], "it is loaded"


async def test_on_load_that_raises_is_not_called_again(
    client: kledger.Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    await put(client, topic, a=b"1", b=b"2")
    calls: list[int] = []

    def raising(count: int) -> None:
        calls.append(count)
        raise ValueError("nobody looks")

    with caplog.at_level(logging.ERROR, "kledger.native.client.table_view"):
        view = await client.create_table_view(topic, on_load=raising)
    assert (2, 1, 1) == (len(view), len(calls), len(caplog.records))


# Listeners


async def test_row_135_listeners_get_later_updates_and_for_each_what_is_there(
    client: kledger.Client, topic: str
) -> None:
    await put(client, topic, a=b"1", b=b"1")
    view = await client.create_table_view(topic)
    now: list[Update] = []
    later: list[Update] = []
    both: list[Update] = []
    await view.for_each(into(now))
    view.listen(into(later))
    await view.for_each_and_listen(into(both))
    assert [(b"a", b"1"), (b"b", b"1")] == sorted(now) == sorted(both)
    assert [] == later
    for value in (b"2", b"3", None):
        await put(client, topic, a=value)
    await view.refresh()
    assert [(b"a", b"2"), (b"a", b"3"), (b"a", None)] == later
    assert later == both[2:]
    assert 2 == len(now)


async def test_listener_may_be_a_coroutine_function_and_is_awaited_in_order(
    client: kledger.Client, topic: str
) -> None:
    view = await client.create_table_view(topic)
    seen: list[tuple[str, bytes]] = []

    async def listener(key: bytes, _value: bytes | None) -> None:
        seen.append(("begin", key))
        await turn_loop(3)
        seen.append(("end", key))

    view.listen(listener)
    async with await client.create_producer(topic) as producer:
        await asyncio.gather(*(producer.send(b"v", key=b"same") for _ in range(3)))
    await view.refresh()
    assert 3 * [("begin", b"same"), ("end", b"same")] == seen


async def test_for_each_and_listen_loses_no_update_and_has_none_twice(
    client: kledger.Client, topic: str
) -> None:
    """A producer goes on while the listener gets what is there, and that takes long."""
    producer = await client.create_producer(topic)
    await producer.send(b"0", key=b"k")
    view = await client.create_table_view(topic)
    producing = True

    async def produce() -> int:
        number = 0
        while producing:
            number += 1
            await producer.send(b"%d" % number, key=b"k")
        return number

    work = asyncio.ensure_future(produce())
    seen: list[list[int]] = []
    for _ in range(20):
        own: list[int] = []
        seen.append(own)

        async def listener(_key: bytes, value: bytes | None, own: list[int] = own) -> None:
            await turn_loop(5)
            own.append(int(value or b"-1"))

        await view.for_each_and_listen(listener)
        await turn_loop(5)
    producing = False
    last = await work
    await view.refresh()
    for own in seen:
        assert list(range(own[0], last + 1)) == own


async def test_listener_that_raises_is_logged_and_called_again(
    client: kledger.Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    view = await client.create_table_view(topic)
    seen: list[Update] = []

    def raising(_key: bytes, _value: bytes | None) -> None:
        raise ValueError("not today")

    async def cancelled(_key: bytes, _value: bytes | None) -> None:
        raise asyncio.CancelledError

    for each in (raising, cancelled, into(seen)):
        view.listen(each)
    with caplog.at_level(logging.WARNING, "kledger.native.client.table_view"):
        await put(client, topic, a=b"1", b=b"2")
        await view.refresh()
    assert [(b"a", b"1"), (b"b", b"2")] == sorted(seen)
    assert 2 == sum("not today" in (each.exc_text or "") for each in caplog.records)
    assert 2 == sum("cancelled" in each.getMessage() for each in caplog.records)


async def test_listener_may_add_a_listener(client: kledger.Client, topic: str) -> None:
    view = await client.create_table_view(topic)
    seen: list[Update] = []

    async def adding(_key: bytes, value: bytes | None) -> None:
        if value == b"1":
            await view.for_each_and_listen(into(seen))

    view.listen(adding)
    await put(client, topic, a=b"1")
    await put(client, topic, a=b"2")
    await view.refresh()
    assert [(b"a", b"1"), (b"a", b"2")] == seen


async def test_cancelled_for_each_and_listen_leaves_no_listener(
    client: kledger.Client, topic: str
) -> None:
    await put(client, topic, a=b"1")
    view = await client.create_table_view(topic)
    seen: list[Update] = []
    begun = asyncio.Event()

    async def listener(key: bytes, value: bytes | None) -> None:
        seen.append((key, value))
        begun.set()
        await asyncio.Event().wait()

    listening = asyncio.ensure_future(view.for_each_and_listen(listener))
    await begun.wait()
    listening.cancel()
    await asyncio.wait([listening])
    await put(client, topic, a=b"2")
    await asyncio.wait_for(view.refresh(), SOON)
    assert [(b"a", b"1")] == seen


# Refreshing


async def test_row_136_refresh_shows_everything_that_was_acknowledged_before(
    client: kledger.Client, topic: str
) -> None:
    views = [await client.create_table_view(topic) for _ in range(3)]
    async with await client.create_producer(topic) as producer:
        for number in range(50):
            await producer.send(b"%d" % number, key=b"k%d" % (number % 7))
            view = views[number % 3]
            await view.refresh()
            assert b"%d" % number == view.get(b"k%d" % (number % 7))


async def test_many_refreshes_wait_at_a_time(client: kledger.Client, topic: str) -> None:
    view = await client.create_table_view(topic)
    async with await client.create_producer(topic) as producer:

        async def write_and_read(number: int) -> None:
            await producer.send(b"v", key=b"%d" % number)
            await view.refresh()
            assert b"%d" % number in view

        await asyncio.wait_for(asyncio.gather(*map(write_and_read, range(100))), SOON)


async def test_cancelled_refresh_disturbs_no_other(client: kledger.Client, topic: str) -> None:
    view = await client.create_table_view(topic)
    released = asyncio.Event()

    async def slow(_key: bytes, _value: bytes | None) -> None:
        await released.wait()

    view.listen(slow)
    await put(client, topic, a=b"1")
    refreshing = [asyncio.ensure_future(view.refresh()) for _ in range(3)]
    await turn_loop()
    refreshing[1].cancel()
    released.set()
    done = await asyncio.wait_for(asyncio.gather(*refreshing, return_exceptions=True), SOON)
    assert [type(None), asyncio.CancelledError, type(None)] == [type(each) for each in done]


async def test_refresh_of_an_empty_topic_returns(client: kledger.Client, topic: str) -> None:
    view = await client.create_table_view(topic)
    await asyncio.wait_for(view.refresh(), SOON)
    assert {} == dict(view.items())


# The pitfalls of table views


async def test_pitfall_ids_of_different_partitions_are_not_compared(client: kledger.Client) -> None:
    """One partition is far ahead; the end of a batch is that of its last record."""
    await client.create_topic("orders", partitions=3)
    by_partition: dict[int, bytes] = {}
    async with await client.create_producer("orders") as producer:
        for number in range(100):
            sent = await producer.send(b"0", key=b"%d" % number)
            by_partition.setdefault(sent.partition, b"%d" % number)
        assert {0, 1, 2} == set(by_partition)
        ahead = by_partition[0]
        await asyncio.gather(*(producer.send(b"%d" % each, key=ahead) for each in range(3_000)))
        view = await client.create_table_view("orders")
        for key in by_partition.values():
            numbers = (producer.send(b"%d" % each, key=key) for each in range(10))
            await asyncio.gather(*numbers)
            await asyncio.wait_for(view.refresh(), SOON)
            assert b"9" == view.get(key)


async def test_pitfall_slow_listener_delays_a_refresh_and_does_not_break_it(
    client: kledger.Client, topic: str
) -> None:
    view = await client.create_table_view(topic)
    released, seen = asyncio.Event(), list[Update]()

    async def slow(key: bytes, value: bytes | None) -> None:
        await released.wait()
        seen.append((key, value))

    view.listen(slow)
    await put(client, topic, a=b"1", b=b"2", c=b"3")
    refreshing = asyncio.ensure_future(view.refresh())
    await turn_loop()
    assert not refreshing.done()
    released.set()
    await asyncio.wait_for(refreshing, SOON)
    assert [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")] == sorted(seen)


async def test_pitfall_listener_that_awaits_a_refresh_is_refused_and_one_that_gets_is_not(
    client: kledger.Client, topic: str
) -> None:
    view = await client.create_table_view(topic)
    got: list[bytes | None] = []
    errors: list[Exception] = []
    refreshing: list[asyncio.Task[None]] = []

    async def listener(key: bytes, _value: bytes | None) -> None:
        got.append(view.get(key))
        refreshing.append(asyncio.ensure_future(view.refresh()))  # without waiting for it
        await view.for_each(lambda _key, _value: None)
        try:
            await view.refresh()
        except kledger.NotAllowed as error:
            errors.append(error)

    await put(client, topic, a=b"1")
    await view.refresh()
    await view.for_each_and_listen(listener)
    await put(client, topic, a=b"2")
    await asyncio.wait_for(view.refresh(), SOON)
    assert [b"1", b"2"] == got
    assert 2 == len(errors)
    await asyncio.wait_for(asyncio.gather(*refreshing), SOON)


async def test_pitfall_busy_producer_does_not_keep_a_view_loading(
    client: kledger.Client, topic: str
) -> None:
    producer = await client.create_producer(topic)
    producing = True

    async def produce() -> None:
        number = 0
        while producing:
            number += 1
            await producer.send(b"%d" % number, key=b"%d" % (number % 10))

    work = asyncio.ensure_future(produce())
    for _ in range(5):
        await turn_loop()
        view = await asyncio.wait_for(client.create_table_view(topic), SOON)
        await asyncio.wait_for(view.refresh(), SOON)
        await view.close()
    producing = False
    await work


# Partitions


async def test_row_137_new_partitions_are_found_by_the_interval_and_by_a_refresh(
    client: kledger.Client, clock: ManualClock
) -> None:
    await client.create_topic("orders")
    view = await client.create_table_view("orders", partition_refresh_ms=1_000)
    other = await client.create_table_view("orders")
    await client.create_partitions("orders", 4)
    async with await client.create_producer("orders") as producer:
        keys = values(20)
        sent = [await producer.send(b"v", key=key) for key in keys]
    assert {0, 1, 2, 3} == {each.partition for each in sent}
    await asyncio.wait_for(other.refresh(), SOON)
    assert set(keys) == other.keys(), "a refresh looks at all partitions of that time"
    await turn_loop()
    assert len(view) < 20
    clock.advance(1_000)
    await until(lambda: len(view) == 20)


# Strategies


def value_of(message: kledger.Message | None) -> bytes | None:
    return None if message is None else message.value


class Largest:
    """Keeps the largest value, and refuses to come back after a removal with less than 10."""

    def __init__(self) -> None:
        self.asked: list[tuple[bytes | None, bytes | None]] = []
        self.skipped: list[tuple[bytes, bytes | None, bytes | None]] = []

    def should_keep_left(self, previous: kledger.Message | None, current: kledger.Message) -> bool:
        self.asked.append((value_of(previous), current.value))
        if current.value == b"fail":
            raise ValueError("cannot compare")
        if not current.value:
            return False
        return int(current.value) < (int(previous.value or 0) if previous else 10)

    def on_skip(
        self, key: bytes, previous: kledger.Message | None, current: kledger.Message
    ) -> None:
        self.skipped.append((key, value_of(previous), current.value))
        raise ValueError("the hook fails, too")


async def test_row_139_strategy_skips_messages_and_has_a_hook(
    client: kledger.Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    strategy, seen = Largest(), list[Update]()
    await put(client, topic, a=b"5")
    view = await client.create_table_view(topic, strategy=strategy)
    assert [] == strategy.asked, "there is nothing to compare the first message with"
    view.listen(into(seen))
    for value in (b"3", b"7", b"", b"8", b"12"):
        await put(client, topic, a=value)
        await view.refresh()
    assert [(b"5", b"3"), (b"5", b"7"), (b"7", b""), (None, b"8"), (None, b"12")] == strategy.asked
    assert [(b"a", b"5", b"3"), (b"a", None, b"8")] == strategy.skipped
    assert [(b"a", b"7"), (b"a", None), (b"a", b"12")] == seen
    assert b"12" == view.get("a")
    with caplog.at_level(logging.ERROR, "kledger.native.client.table_view"):
        await put(client, topic, a=b"fail")
        await view.refresh()
    assert b"fail" == view.get("a"), "applied as without a strategy"
    assert 1 == sum("cannot compare" in (each.exc_text or "") for each in caplog.records)
    message = view.get_message("a")
    assert message is not None
    assert b"fail" == message.value


# Ends


async def test_row_140_closed_view_fails_what_waits_and_what_comes(
    client: kledger.Client, topic: str
) -> None:
    await put(client, topic, a=b"1")
    view = await client.create_table_view(topic)

    async def never(_key: bytes, _value: bytes | None) -> None:
        await asyncio.Event().wait()

    view.listen(never)
    await put(client, topic, a=b"2")
    refreshing = [asyncio.ensure_future(view.refresh()) for _ in range(3)]
    ended = asyncio.ensure_future(view.wait_ended())
    await turn_loop()
    await asyncio.wait_for(view.close(), SOON)
    await view.close()
    await asyncio.wait_for(ended, SOON)
    for each in refreshing:
        with pytest.raises(kledger.AlreadyClosed):
            await each
    with pytest.raises(kledger.AlreadyClosed):
        await view.refresh()
    with pytest.raises(kledger.AlreadyClosed):
        view.listen(never)
    with pytest.raises(kledger.AlreadyClosed):
        await view.for_each_and_listen(never)
    assert b"2" == view.get("a"), "what was read can be read"


async def test_listener_may_close_the_view(client: kledger.Client, topic: str) -> None:
    view = await client.create_table_view(topic)

    async def closing(_key: bytes, _value: bytes | None) -> None:
        await view.close()

    view.listen(closing)
    await put(client, topic, a=b"1")
    with pytest.raises(kledger.AlreadyClosed):
        await asyncio.wait_for(view.refresh(), SOON)
    await asyncio.wait_for(view.close(), SOON)


async def test_client_closes_its_views(topic: str, client: kledger.Client) -> None:
    async with await client.create_table_view(topic) as view:
        await view.refresh()
    with pytest.raises(kledger.AlreadyClosed):
        await view.refresh()


async def test_cancelled_load_leaves_nothing(client: kledger.Client, topic: str) -> None:
    await put(client, topic, a=b"1")
    for count in range(0, 60, 3):
        creating = asyncio.ensure_future(client.create_table_view(topic))
        await turn_loop(count)
        creating.cancel()
        await asyncio.wait([creating])
        if not creating.cancelled():
            await (await creating).close()
    await asyncio.wait_for(client.delete_topic(topic), SOON)


async def test_deleted_topic_ends_a_view(client: kledger.Client, topic: str) -> None:
    await put(client, topic, a=b"1")
    view = await client.create_table_view(topic)
    released = asyncio.Event()

    async def slow(_key: bytes, _value: bytes | None) -> None:
        await released.wait()

    view.listen(slow)
    await put(client, topic, a=b"2")
    refreshing = asyncio.ensure_future(view.refresh())
    await turn_loop()
    await client.delete_topic(topic)
    released.set()
    async with asyncio.timeout(SOON):
        while True:  # the end may reach the view after the answer of the deletion
            try:
                await view.refresh()
            except kledger.TopicNotFound:
                break
    with pytest.raises(kledger.TopicNotFound):
        await asyncio.wait_for(view.wait_ended(), SOON)
    await asyncio.wait([refreshing])
    assert refreshing.exception() is None or isinstance(
        refreshing.exception(), kledger.TopicNotFound
    )
    assert b"2" == view.get("a")


async def test_terminated_topic_is_still_a_table(client: kledger.Client, topic: str) -> None:
    await put(client, topic, a=b"1")
    view = await client.create_table_view(topic)
    await client.terminate(topic)
    await asyncio.wait_for(view.refresh(), SOON)
    later = await asyncio.wait_for(client.create_table_view(topic), SOON)
    assert {b"a": b"1"} == dict(view.items()) == dict(later.items())
