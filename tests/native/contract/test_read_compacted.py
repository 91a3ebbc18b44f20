"""`read_compacted`: the last message of each key up to the horizon, then the log."""

from collections.abc import Sequence

import pytest

import kledger
from tests.native.contract.words import is_quiet, receive, receive_values, until_backlog

Sent = Sequence[tuple[bytes | None, bytes | None]]


async def send_pairs(
    client: kledger.Client, topic: str, pairs: Sent, *, batching: bool = False
) -> list[kledger.MessageId]:
    """Send keys and values in order; without batching each is an entry of its own."""
    async with await client.create_producer(topic, batching=batching) as producer:
        sent = [producer.send_nowait(value or b"", key=key) for key, value in pairs]
        return [await each for each in sent]


async def compacted_topic(
    client: kledger.Client, pairs: Sent, *, batching: bool = False
) -> list[kledger.MessageId]:
    """Send to a new topic `prices`, and compact it."""
    await client.create_topic("prices")
    ids = await send_pairs(client, "prices", pairs, batching=batching)
    await client.compact("prices")
    return ids


PAIRS: Sent = [(b"a", b"1"), (b"b", b"2"), (None, b"no key"), (b"a", b"3"), (b"c", b"4")]
KEPT = [b"2", b"3", b"4"]


@pytest.mark.parametrize("batching", [False, True])
async def test_a_reader_gets_what_was_kept_and_then_the_log(
    client: kledger.Client, batching: bool
) -> None:
    ids = await compacted_topic(client, PAIRS, batching=batching)
    tail = await send_pairs(client, "prices", [(b"a", b"5"), (b"a", b"6")])
    reader = await client.create_reader("prices", "earliest", read_compacted=True)
    found = [await reader.read_next() for _ in range(5)]
    assert [*KEPT, b"5", b"6"] == [each.value for each in found]
    assert [ids[1], ids[3], ids[4], *tail] == [each.id for each in found]
    assert [each.offset for each in (ids[1], ids[3], ids[4], *tail)] == [
        each.offset for each in found
    ]
    assert not await reader.has_message_available()
    raw = await client.create_reader("prices", "earliest")
    assert [value for _, value in (*PAIRS, (b"a", b"5"), (b"a", b"6"))] == [
        (await raw.read_next()).value for _ in range(7)
    ]


@pytest.mark.parametrize("batching", [False, True])
@pytest.mark.parametrize("kind", ["exclusive", "failover"])
async def test_a_subscription_reaches_the_end(
    client: kledger.Client, kind: str, batching: bool
) -> None:
    await compacted_topic(client, PAIRS, batching=batching)
    await send_pairs(client, "prices", [(b"d", b"5")])
    consumer = await client.subscribe(
        "prices", "s", consumer_type=kind, initial_position="earliest", read_compacted=True
    )
    messages = await receive(consumer, 4)
    assert [*KEPT, b"5"] == [each.value for each in messages]
    for message in reversed(messages):
        await consumer.acknowledge(message)
    assert await is_quiet(consumer)
    await until_backlog(client, "prices", "s", 0)
    stats = await client.subscription_stats("prices", "s")
    assert (0, 0) == (stats.backlog, stats.unacknowledged)


@pytest.mark.parametrize("batching", [False, True])
async def test_only_what_is_unacknowledged_is_delivered_again(
    client: kledger.Client, batching: bool
) -> None:
    await compacted_topic(client, PAIRS, batching=batching)
    consumer = await client.subscribe(
        "prices", "s", initial_position="earliest", read_compacted=True
    )
    first, second, third = await receive(consumer, 3)
    await consumer.acknowledge(second)
    await consumer.redeliver_unacknowledged()
    again = await receive(consumer, 2)
    assert [first.id, third.id] == [each.id for each in again]
    assert [1, 1] == [each.redelivery_count for each in again]
    await consumer.close()
    consumer = await client.subscribe("prices", "s", read_compacted=True)
    assert [first.id, third.id] == [each.id for each in await receive(consumer, 2)]
    assert await is_quiet(consumer)


@pytest.mark.parametrize("batching", [False, True])
async def test_seek_by_id_by_time_to_the_beginning_and_the_end(
    client: kledger.Client, batching: bool
) -> None:
    ids = await compacted_topic(client, PAIRS, batching=batching)
    consumer = await client.subscribe(
        "prices", "s", initial_position="earliest", read_compacted=True
    )
    reader = await client.create_reader("prices", "earliest", read_compacted=True)
    messages = await receive(consumer, 3)
    time_ms = messages[1].publish_timestamp
    since = [each.value for each in messages if each.publish_timestamp >= time_ms]
    for target, inclusive, expected in (
        (ids[3], True, KEPT[1:]),
        (ids[3], False, KEPT[2:]),
        (ids[2], True, KEPT[1:]),
        (ids[0], False, KEPT),
        (time_ms, True, since),
        ("earliest", True, KEPT),
        ("latest", True, []),
    ):
        await consumer.seek(target, inclusive=inclusive)
        await reader.seek(target, inclusive=inclusive)
        assert expected == await receive_values(consumer, len(expected)), target
        assert expected == [(await reader.read_next()).value for _ in expected], target
        assert await is_quiet(consumer)
        assert not await reader.has_message_available()


@pytest.mark.parametrize("batching", [False, True])
async def test_keys_whose_last_value_is_empty_are_left_out(
    client: kledger.Client, batching: bool
) -> None:
    await compacted_topic(
        client, [(b"a", b"1"), (b"b", b"2"), (b"a", b""), (b"c", b"")], batching=batching
    )
    consumer = await client.subscribe(
        "prices", "s", initial_position="earliest", read_compacted=True
    )
    (message,) = await receive(consumer, 1)
    assert b"2" == message.value
    assert await is_quiet(consumer)
    await consumer.acknowledge(message)
    await until_backlog(client, "prices", "s", 0)
    reader = await client.create_reader("prices", "earliest", read_compacted=True)
    assert b"2" == (await reader.read_next()).value
    assert not await reader.has_message_available()
    await send_pairs(client, "prices", [(b"b", b"")])
    assert b"" == (await reader.read_next()).value, "behind the horizon it is a message"
    plain = await client.subscribe("prices", "plain", initial_position="earliest")
    assert [b"1", b"2", b"", b"", b""] == await receive_values(plain, 5)


async def test_consumer_that_has_got_a_key_gets_its_removal(client: kledger.Client) -> None:
    """The removal is compacted between two messages that a reader gets."""
    await compacted_topic(client, [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
    consumer = await client.subscribe(
        "prices", "s", initial_position="earliest", read_compacted=True, receiver_queue_size=1
    )
    first = await consumer.receive()
    await send_pairs(client, "prices", [(b"a", b""), (b"b", b"4")])
    await client.compact("prices")
    state = {first.key: first.value}
    while (message := await consumer.receive()).value != b"4":
        state[message.key] = message.value
    assert b"" == state[b"a"]


async def test_other_types_are_refused(client: kledger.Client) -> None:
    await client.create_topic("prices")
    for kind in ("shared", "key_shared"):
        with pytest.raises(kledger.InvalidArgument, match="expected an exclusive or failover"):
            await client.subscribe("prices", "s", consumer_type=kind, read_compacted=True)
    await client.subscribe("prices", "f", consumer_type="failover", read_compacted=True)
    with pytest.raises(kledger.ConsumerBusy, match="reads compacted"):
        await client.subscribe("prices", "f", consumer_type="failover")


async def test_ledgers_that_were_removed_are_read_from_what_was_kept(
    client: kledger.Client,
) -> None:
    """With `cleanup.policy=compact` the ledgers of the log go after a compaction."""
    await client.create_topic(
        "prices", config={"cleanup.policy": "compact", "segment.bytes": "1048576"}
    )
    sent = [b"%d " % number * 50_000 for number in range(30)]
    await send_pairs(
        client, "prices", [(b"k%d" % (number % 7), value) for number, value in enumerate(sent)]
    )
    consumer = await client.subscribe(
        "prices", "s", initial_position="earliest", read_compacted=True
    )
    (first,) = await receive(consumer, 1)
    assert sent[0] == first.value
    await consumer.acknowledge(first)
    await consumer.close()
    await client.compact("prices")
    raw = await client.create_reader("prices", "earliest")
    assert sent[0] != (await raw.read_next()).value, "ledgers were removed"
    consumer = await client.subscribe("prices", "s", read_compacted=True)
    messages = await receive(consumer, 7)
    assert sent[-7:] == [each.value for each in messages]
    for message in messages:
        await consumer.acknowledge(message)
    await until_backlog(client, "prices", "s", 0)
    reader = await client.create_reader("prices", "earliest", read_compacted=True)
    assert sent[-7:] == [(await reader.read_next()).value for _ in range(7)]
    await reader.seek(messages[3].id)
    assert sent[-4:] == [(await reader.read_next()).value for _ in range(4)]
    view = await client.create_table_view("prices")
    assert {b"k%d" % (number % 7): sent[number] for number in range(23, 30)} == dict(view.items())


@pytest.mark.parametrize("batching", [False, True])
@pytest.mark.parametrize("keep_messages", [False, True])
async def test_row_138_view_is_the_same_before_and_after_a_compaction(
    client: kledger.Client, batching: bool, keep_messages: bool
) -> None:
    await client.create_topic("prices")
    pairs: Sent = [*PAIRS, (b"c", b""), (b"d", b"7"), (b"d", b"8")]
    await send_pairs(client, "prices", pairs, batching=batching)
    before = await client.create_table_view("prices", keep_messages=keep_messages)
    await client.compact("prices")
    after = await client.create_table_view("prices", keep_messages=keep_messages)
    raw = await client.create_table_view("prices", read_compacted=False)
    expected = {b"a": b"3", b"b": b"2", b"d": b"8"}
    assert [expected] * 3 == [dict(each.items()) for each in (before, after, raw)]
    await send_pairs(client, "prices", [(b"b", b"")])
    for each in (before, after, raw):
        await each.refresh()
        assert {b"a": b"3", b"d": b"8"} == dict(each.items())
