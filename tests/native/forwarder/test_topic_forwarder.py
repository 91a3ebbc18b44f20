"""Topics that are forwarded from broker to broker: all partitions, failures, restarts."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from kledger.batches.builder import BatchProducer, NewRecord, build_batch
from kledger.batches.compression import Codec
from kledger.batches.reader import iterate_records
from kledger.batches.record import Record
from kledger.ledger import Buffer
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.native.broker import TopicInfo
from kledger.native.errors import (
    InvalidArgument,
    KledgerError,
    NotAllowed,
    Timeout,
    TopicNotFound,
    TopicTerminated,
    Unavailable,
)
from kledger.native.forwarder.batch_copy import copy_batch
from kledger.native.forwarder.forwarder_state import SourceEntry
from kledger.native.forwarder.topic_forwarder import ForwardRequest, TopicForwarder
from kledger.runtime.clock import SystemClock
from kledger.runtime.entropy import SystemEntropy
from tests.native.forwarder.builders import SECONDS_MAX, until
from tests.native.serving import Serving, serving, ticks
from tests.topics.words import append

REQUEST = ForwardRequest(source="orders", target="copy", subscription="f", start="earliest")


@pytest.fixture
async def here() -> AsyncIterator[Serving]:
    async with serving() as opened:
        yield opened


@pytest.fixture
async def there() -> AsyncIterator[Serving]:
    async with serving() as opened:
        yield opened


def forwarder(here: Serving, there: Serving, **more: object) -> TopicForwarder:
    request = more.pop("request", REQUEST)
    return TopicForwarder(
        request,  # type: ignore[arg-type]
        here.service,
        there.service,
        clock=more.pop("clock", SystemClock()),  # type: ignore[arg-type]
        entropy=SystemEntropy(),
        **more,  # type: ignore[arg-type]
    )


async def records(serving_: Serving, topic: str = "copy", index: int = 0) -> list[Record]:
    log = await serving_.log(topic, index=index)
    found = await log.read(
        log.log_start_offset, 1 << 20, read_committed=False, first_batch_always=True
    )
    return [record for chunk in found.chunks for record in iterate_records(chunk)]


async def values(serving_: Serving, topic: str = "copy", index: int = 0) -> list[str]:
    return [(record.value or b"-").decode() for record in await records(serving_, topic, index)]


async def forward_all(forwarding: TopicForwarder) -> None:
    await forwarding.open()
    await forwarding.run(until_caught_up=True)


async def test_partitions_keep_their_order_and_number(here: Serving, there: Serving) -> None:
    await here.log("orders", partitions=2)
    await here.append("a", "b")
    await here.append("c", index=1)
    await here.append("d")
    await forward_all(forwarder(here, there))
    assert (["a", "b", "d"], ["c"]) == (await values(there), await values(there, index=1))
    info = await there.service.lookup("copy", create=False)
    assert 2 == info.partition_count


async def test_records_are_the_same_on_the_other_side(here: Serving, there: Serving) -> None:
    """Key, value, headers, timestamps and partition of every record, of any producer."""
    sent = [
        NewRecord(b"one", b"k", 1_700_000_000_500, (("h", b"1"), ("h", None)), 1),
        NewRecord(None, b"k", 1_700_000_000_100),
    ]
    log = await here.log("orders", partitions=2, index=1)
    producer = BatchProducer(9, 0, 0)
    for codec in (Codec.NONE, Codec.LZ4):
        result = await append(log, build_batch(sent, codec=codec))
        assert result.error is None
    assert (await append(log, build_batch(sent, producer=producer))).error is None
    await forward_all(forwarder(here, there))
    assert await records(here, "orders", 1) == await records(there, "copy", 1)


async def test_the_next_run_continues_where_this_one_ended(here: Serving, there: Serving) -> None:
    await here.append("a")
    await forward_all(forwarder(here, there))
    await here.append("b")
    await forward_all(forwarder(here, there))
    await forward_all(forwarder(here, there))
    assert ["a", "b"] == await values(there)
    stats = await here.service.subscription_stats("orders", "f")
    assert (0, ()) == (stats.backlog, stats.consumers)


async def test_from_latest_forwards_later_messages(here: Serving, there: Serving) -> None:
    await here.append("old")
    request = ForwardRequest(source="orders", target="copy", subscription="f", start="latest")
    forwarding = forwarder(here, there, request=request)
    await forwarding.open()
    await here.append("new")
    running = asyncio.ensure_future(forwarding.run())
    await until(lambda: forwarding.forwarded_count == 1)
    forwarding.close()
    await running
    assert ["new"] == await values(there)


class Away:
    """A broker whose first lookups fail with `failures`."""

    def __init__(self, there: Serving, failures: list[KledgerError]) -> None:
        self._service = there.service
        self._failures = failures
        self.asked = asyncio.Event()

    async def lookup(self, topic: str, *, create: bool) -> TopicInfo:
        self.asked.set()
        if self._failures:
            raise self._failures.pop(0)
        return await self._service.lookup(topic, create=create)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)


def forwarder_to(away: Away, here: Serving, clock: ManualClock) -> TopicForwarder:
    return TopicForwarder(
        replace(REQUEST, start="latest"), here.service, away,
        clock=clock, entropy=SystemEntropy(),
    )  # fmt: skip


async def test_unavailable_target_is_waited_for(
    here: Serving, there: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    """Records that arrive meanwhile are forwarded, whatever `start` is."""
    await here.append("old")
    clock = ManualClock()
    away = Away(there, [Unavailable("refused"), Timeout("silent"), Unavailable("refused")])
    forwarding = forwarder_to(away, here, clock)
    opening = asyncio.ensure_future(forwarding.open())
    await until(lambda: "the target copy is not available: refused" in caplog.text)
    await ticks()
    await here.append("new")
    while not opening.done():
        clock.advance(100)
        await ticks()
    await opening
    assert 3 == caplog.text.count("the target copy is not available")
    running = asyncio.ensure_future(forwarding.run())
    await until(lambda: forwarding.forwarded_count == 1)
    forwarding.close()
    await running
    assert ["new"] == await values(there)


async def test_waiting_for_a_target_ends_with_the_forwarder(here: Serving, there: Serving) -> None:
    await here.append("a")
    away = Away(there, [Unavailable("refused")] * 1_000)
    forwarding = forwarder_to(away, here, ManualClock())
    opening = asyncio.ensure_future(forwarding.open())
    await away.asked.wait()
    forwarding.close()
    await opening
    await forwarding.run()
    opening = asyncio.ensure_future(forwarder_to(away, here, ManualClock()).open())
    await ticks()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening


async def test_target_that_cannot_be_is_not_waited_for(here: Serving, there: Serving) -> None:
    await here.append("a")
    away = Away(there, [NotAllowed("another version")])
    with pytest.raises(NotAllowed):
        await forwarder_to(away, here, ManualClock()).open()
    assert [] == await here.service.subscriptions("orders")


async def test_only_unacknowledged_records_are_forwarded(here: Serving, there: Serving) -> None:
    await here.append("a", "b", "c")
    await here.append("d")
    await here.service.create_subscription("orders", "f", "earliest")
    await here.service.skip_messages("orders", "f", 2)
    await forward_all(forwarder(here, there))
    assert ["c", "d"] == await values(there)


async def test_a_reset_while_it_runs_forwards_again(here: Serving, there: Serving) -> None:
    for value in "abc":
        await here.append(value)
    forwarding = forwarder(here, there)
    await forwarding.open()
    running = asyncio.ensure_future(forwarding.run())
    await until(lambda: forwarding.forwarded_count == 3)
    await here.service.reset_subscription("orders", "f", "earliest", partition=None, inclusive=True)
    await until(lambda: forwarding.forwarded_count == 6)
    forwarding.close()
    await running
    assert list("abcabc") == await values(there)


async def test_a_target_that_loses_a_write_gets_everything_in_order(here: Serving) -> None:
    engine = FaultyEngine(None)
    clock = ManualClock()
    for value in "abcdefgh":
        await here.append(value)
    async with serving(engine) as there:
        forwarding = forwarder(here, there, clock=clock)
        await forwarding.open()
        engine.fail_next("commit")
        running = asyncio.ensure_future(forwarding.run())
        async with asyncio.timeout(SECONDS_MAX):
            while forwarding.forwarded_count < 8:
                await ticks(50)
                clock.advance(100)
        forwarding.close()
        await running
        assert list("abcdefgh") == await values(there)


async def test_a_topic_of_the_same_broker_can_be_the_target(here: Serving) -> None:
    await here.append("a")
    await forward_all(forwarder(here, here))
    assert ["a"] == await values(here)


async def test_a_topic_is_not_forwarded_to_itself(here: Serving) -> None:
    await here.append("a")
    long = "persistent://public/default/orders"
    request = ForwardRequest(source="orders", target=long, subscription="f", start="earliest")
    with pytest.raises(InvalidArgument, match="itself"):
        await forwarder(here, here, request=request).open()
    assert [] == await here.service.subscriptions("orders")


async def test_an_empty_topic_is_caught_up(here: Serving, there: Serving) -> None:
    await here.log("orders")
    await forward_all(forwarder(here, there))
    assert [] == await values(there)


async def test_a_target_with_more_partitions_is_taken_one_with_fewer_is_not(
    here: Serving, there: Serving
) -> None:
    await here.log("orders", partitions=2)
    await here.append("a", index=1)
    await there.log("copy", partitions=3)
    await forward_all(forwarder(here, there))
    assert ["a"] == await values(there, index=1)
    await there.log("small", partitions=1)
    request = ForwardRequest(source="orders", target="small", subscription="g", start="latest")
    with pytest.raises(InvalidArgument, match="1 partitions, expected at least the 2"):
        await forwarder(here, there, request=request).open()


async def test_a_missing_source_raises(here: Serving, there: Serving) -> None:
    with pytest.raises(TopicNotFound):
        await forwarder(here, there).open()


async def test_a_final_error_of_one_partition_ends_all(here: Serving, there: Serving) -> None:
    await here.log("orders", partitions=2)
    await here.append("a", index=1)
    forwarding = forwarder(here, there)
    await forwarding.open()
    await (await there.log("copy", index=0)).terminate()
    with pytest.raises(TopicTerminated):
        await forwarding.run()


async def test_entries_can_be_changed(here: Serving, there: Serving) -> None:
    async def shout(entry: SourceEntry) -> Buffer | None:
        batch = copy_batch(entry)
        assert batch is not None
        values = [record.value or b"" for record in iterate_records(batch)]
        return build_batch([NewRecord(value.upper()) for value in values])

    await here.append("a", "b")
    await forward_all(forwarder(here, there, prepare=shout))
    assert ["A", "B"] == await values(there)
