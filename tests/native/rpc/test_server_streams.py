"""Producers and consumers on the server's side: what bounds the memory they take."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from kledger.ledger import Position
from kledger.native.broker import ConsumerRequest
from kledger.native.config import NativeConfig
from kledger.native.errors import KledgerError, NotAllowed, Unavailable
from kledger.native.proto import kledger_native_pb2 as pb
from kledger.native.rpc.protocol import serialized
from kledger.native.rpc.server_streams import ConsumerStream, ProducerStream
from kledger.native.rpc.sessions import OpenSessions
from kledger.runtime.tasks import Supervisor
from kledger.subscriptions.model import RecordMask, SubscriptionType
from tests.native.recording_broker import (
    Deliveries,
    Endings,
    RecordingBroker,
    RecordingLink,
    batch,
    delivery,
)
from tests.native.rpc.connected_pair import GRACE_MS, TEST_SECONDS, Pair, pair

SIZE = 100_000
OPEN = pb.OpenConsumer(topic="t", type="shared", start=pb.Target(time_ms=0), consumer_name="c")


async def join(both: Pair, taken: Deliveries) -> RecordingLink:
    request = ConsumerRequest(
        topic="t", partition=0, subscription="s", type=SubscriptionType.SHARED, consumer_name="c"
    )
    link = await both.client.open_consumer(request, deliver=taken, on_ended=Endings())
    link.add_permits(1_000)
    while not both.broker.links[0].permits:
        await both.broker.changed.wait()
    return both.broker.links[0]


async def test_permits_go_to_the_broker_as_far_as_memory_allows() -> None:
    """A client that gives 1,000 permits for large records gets them all, and few at a time."""
    config = NativeConfig(delivery_bytes_max=5 * SIZE)
    taken = Deliveries()
    async with pair(config) as both:
        link = await join(both, taken)
        served = most = 0
        while served < 300:
            while not link.permits:
                await both.broker.changed.wait()
            step, link.permits = link.permits, 0
            most = max(most, step)
            link.deliver([delivery(served + n, size=SIZE) for n in range(step)])
            served += step
        assert served == len(await taken.first(served))
        assert [Position(3, n) for n in range(served)] == [each.position for each in taken.seen]
        assert most <= 7, "what the window takes, and what a first guess may be wrong"


async def test_stopped_reader_gets_nothing_beyond_the_window() -> None:
    """Its event loop does not run: the server holds at most the window for it."""
    config = NativeConfig(delivery_bytes_max=10 * SIZE)
    async with pair(config) as both:
        call = both.client._connection.stream("Consume")
        permits = [pb.ConsumerCall(permits=100_000)]
        await call.write(pb.ConsumeRequest(open=OPEN, calls=permits))
        await call.read()
        link = both.broker.links[0]
        delivered = 0
        # The client reads no more: the sockets and the window fill, then permits stop.
        for _ in range(10_000):
            if link.permits > 0:
                count, link.permits = link.permits, 0
                link.deliver([delivery(n, size=SIZE) for n in range(count)])
                delivered += count
            await asyncio.sleep(0)
        assert delivered * SIZE < 40 * 1024 * 1024
        seen = 0
        while seen < delivered:
            seen += len((await call.read()).deliveries)
        while not link.permits:
            await both.broker.changed.wait()
        call.cancel()


async def test_readers_that_stand_still_share_one_limit() -> None:
    """Each of the eight alone would get twenty; behind the first ones they get one at a time."""
    config = NativeConfig(delivery_bytes_max=20 * SIZE, delivery_bytes_total_max=24 * SIZE)
    async with pair(config) as both:
        calls = []
        most = 0
        for _ in range(8):
            calls.append(both.client._connection.stream("Consume"))
            permits = [pb.ConsumerCall(permits=100_000)]
            await calls[-1].write(pb.ConsumeRequest(open=OPEN, calls=permits))
            await calls[-1].read()
            for _ in range(500):
                for link in [each for each in both.broker.links if each.permits > 0]:
                    count, link.permits = link.permits, 0
                    link.deliver([delivery(n, size=SIZE) for n in range(count)])
                most = max(most, both.server.delivery_bytes_waiting)
                await asyncio.sleep(0)
        assert both.server.delivery_bytes_waiting >= 8 * SIZE, "the sockets take no more"
        assert most <= 48 * SIZE, "the limit, and what first guesses may be wrong"
        for call in calls:
            call.cancel()
        while both.server.stream_count:
            await both.server._stream_ended.wait()
        assert 0 == both.server.delivery_bytes_waiting


async def test_producer_with_too_much_in_work_is_not_read() -> None:
    config = NativeConfig(produce_bytes_max=3 * SIZE)
    async with pair(config) as both:
        link = await both.client.open_producer("t", 0, name="p", on_ended=Endings())
        both.broker.links[0].hold = hold = asyncio.Event()
        sending = [asyncio.ensure_future(link.send(batch(b"x", size=SIZE))) for _ in range(100)]
        while len(both.broker.batches) < 4:
            await both.broker.changed.wait()
        for _ in range(500):
            await asyncio.sleep(0)
        # The messages that were on their way when the limit was reached, and none behind.
        assert len(both.broker.batches) < 10
        hold.set()
        receipts = await asyncio.gather(*sending)
        assert [10 * n for n in range(100)] == [receipt.base_offset for receipt in receipts]


async def test_consumer_with_too_many_acknowledgements_in_work_is_not_read() -> None:
    def begun() -> int:
        return sum(call[1] == "acknowledge" for call in both.broker.calls)

    async with pair(NativeConfig(acknowledgements_max=10)) as both:
        call = both.client._connection.stream("Consume")
        await call.write(pb.ConsumeRequest(open=OPEN))
        await call.read()
        both.broker.links[0].hold = hold = asyncio.Event()
        for number in range(50):
            asked = pb.ConsumerCall(acknowledge=pb.Acknowledge(request=number))
            await call.write(pb.ConsumeRequest(calls=[asked]))
        while begun() < 11:
            await both.broker.changed.wait()
        for _ in range(500):
            await asyncio.sleep(0)
        assert 11 == begun()
        hold.set()
        answered: list[int] = []
        while len(answered) < 50:
            answered += [each.request for each in (await call.read()).receipts]
        assert list(range(50)) == answered
        call.cancel()


class UnreadContext:
    """A stream whose client sends without end and reads no answer."""

    def __init__(self) -> None:
        self.sent = 0

    async def read(self) -> pb.ProduceRequest:
        self.sent += 1
        data = batch(b"x", size=SIZE)
        opening = pb.OpenProducer(topic="t") if self.sent == 1 else None
        return pb.ProduceRequest(open=opening, batches=[pb.Batch(number=self.sent, data=data)])

    async def write(self, response: pb.ProduceResponse) -> None:
        if response.receipts:
            await asyncio.Event().wait()


async def test_producer_that_reads_no_answer_is_not_read() -> None:
    """Unread answers would fill the memory."""
    broker, supervisor, context = RecordingBroker(), Supervisor(), UnreadContext()
    config = NativeConfig(produce_bytes_max=10 * SIZE)
    running = asyncio.ensure_future(
        ProducerStream(OpenSessions(broker), context, supervisor, config).run()
    )
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert 10 == context.sent == len(broker.batches)
    running.cancel()
    await asyncio.wait([running])
    assert ("", "close") == broker.calls[-1]
    await supervisor.close()


class ThrottledSession(OpenSessions):
    """A session of a client that is over its quota with everything it sends or gets."""

    def __init__(self, broker: RecordingBroker) -> None:
        super().__init__(broker)
        self.resumes: list[Callable[[], None]] = []

    def count_produced(self, size: int, resume: Callable[[], None]) -> bool:
        assert size >= 0
        self.resumes.append(resume)
        return True

    count_delivered = count_produced


async def test_producer_over_its_quota_waits_for_its_next_message() -> None:
    broker, supervisor, context = RecordingBroker(), Supervisor(), UnreadContext()
    session = ThrottledSession(broker)
    stream = ProducerStream(session, context, supervisor, NativeConfig())
    running = asyncio.ensure_future(stream.run())
    for count in (1, 2, 3):
        for _ in range(100):
            await asyncio.sleep(0)
        assert count == len(broker.batches) == len(session.resumes)
        session.resumes[-1]()
    running.cancel()
    await asyncio.wait([running])
    await supervisor.close()


async def test_consumer_over_its_quota_gets_no_permits() -> None:
    session = ThrottledSession(RecordingBroker())
    async with slow_consumer(session) as (context, link, broker):
        (resume,) = session.resumes
        context.gate.set()
        context.say(pb.ConsumerCall(permits=7))
        acknowledge = pb.Acknowledge(request=1)
        context.say(pb.ConsumerCall(acknowledge=acknowledge))
        while not any(response.receipts for response in context.responses):  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert 9 == link.permits, "acknowledged meanwhile"
        resume()
        await broker.happened("c", "permits", 7)
        assert 16 == link.permits


class SlowContext:
    """A stream whose client reads one message, then none until the test allows it."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[pb.ConsumeRequest] = asyncio.Queue()
        self.responses: list[pb.ConsumeResponse] = []
        self.gate = asyncio.Event()

    async def read(self) -> pb.ConsumeRequest:
        return await self.requests.get()

    async def write(self, written: pb.ConsumeResponse | bytes) -> None:
        response = pb.ConsumeResponse.FromString(serialized(written))
        self.responses.append(response)
        if response.deliveries:
            await self.gate.wait()

    def say(self, *calls: pb.ConsumerCall) -> None:
        self.requests.put_nowait(pb.ConsumeRequest(calls=calls))

    def written(self) -> list[tuple[int, int]]:
        """The entries that were written, and their epochs."""
        return [
            (each.position.entry_id, each.consumer_epoch)
            for response in self.responses
            for each in response.deliveries
        ]


@asynccontextmanager
async def slow_consumer(
    session: OpenSessions | None = None,
) -> AsyncIterator[tuple[SlowContext, RecordingLink, RecordingBroker]]:
    """A consumer with 10 permits, of which the link has used 1 for what is being written."""
    supervisor, context = Supervisor(), SlowContext()
    session = session or OpenSessions(RecordingBroker())
    broker = session.broker
    assert isinstance(broker, RecordingBroker)
    stream = ConsumerStream(session, context, supervisor, NativeConfig())
    context.requests.put_nowait(pb.ConsumeRequest(open=OPEN))
    running = asyncio.ensure_future(stream.run())
    async with asyncio.timeout(TEST_SECONDS):
        context.say(pb.ConsumerCall(permits=10))
        await broker.happened("c", "permits", 10)
        (link,) = broker.links
        link.permits -= 1
        link.deliver([delivery(0)])
        while not context.written():  # noqa: ASYNC110 (ticks of the loop, no time)
            await asyncio.sleep(0)
        yield context, link, broker
    running.cancel()
    await asyncio.wait([running])
    await supervisor.close()


async def test_unwritten_deliveries_are_dropped_by_a_full_redelivery() -> None:
    async with slow_consumer() as (context, link, _):
        link.permits -= 5
        link.deliver([delivery(1), delivery(2, count=4)])
        context.say(
            pb.ConsumerCall(acknowledge=pb.Acknowledge(request=7)),
            pb.ConsumerCall(redeliver=pb.Redeliver(is_all=True, consumer_epoch=1)),
        )
        while link.permits < 9:  # noqa: ASYNC110 (ticks of the loop, no time)
            await asyncio.sleep(0)
        assert 9 == link.permits, "of the five that were dropped; the client gives the other one"
        link.deliver([delivery(0), delivery(1)])
        context.gate.set()
        while len(context.written()) < 3:  # noqa: ASYNC110 (ticks of the loop, no time)
            await asyncio.sleep(0)
        assert [(0, 0), (0, 1), (1, 1)] == context.written()
        receipts = [each.request for response in context.responses for each in response.receipts]
        assert [7] == receipts


async def test_redelivery_of_some_records_drops_nothing() -> None:
    async with slow_consumer() as (context, link, broker):
        link.deliver([delivery(1)])
        mask = pb.RecordMask(position=pb.Position(ledger_id=3, entry_id=9))
        context.say(pb.ConsumerCall(redeliver=pb.Redeliver(masks=[mask])))
        await broker.happened("c", "redeliver", RecordMask(Position(3, 9)))
        context.gate.set()
        while len(context.written()) < 2:  # noqa: ASYNC110 (ticks of the loop, no time)
            await asyncio.sleep(0)
        assert [(0, 0), (1, 0)] == context.written()


@pytest.mark.parametrize(
    ("error", "expected"),
    [(None, [0]), (NotAllowed("the right is gone"), [0]), (Unavailable("no"), [0, 1])],
)
async def test_unwritten_deliveries_are_dropped_by_a_reset_and_without_the_right(
    error: KledgerError | None, expected: list[int]
) -> None:
    async with slow_consumer() as (context, link, _):
        link.deliver([delivery(1)])
        link.on_ended(error)
        context.gate.set()
        while not context.responses[-1].HasField("end"):  # noqa: ASYNC110 (ticks of the loop)
            await asyncio.sleep(0)
        assert expected == [entry_id for entry_id, _ in context.written()]


async def test_epoch_that_goes_back_is_refused() -> None:
    async with slow_consumer() as (context, *_):
        for epoch in (2, 1):
            redeliver = pb.Redeliver(is_all=True, consumer_epoch=epoch)
            context.say(pb.ConsumerCall(redeliver=redeliver))
        context.gate.set()
        while not context.responses[-1].HasField("end"):  # noqa: ASYNC110 (ticks of the loop)
            await asyncio.sleep(0)
        error = context.responses[-1].end.error
        assert "invalid_argument" == error.code
        assert "consumer epoch 1, expected at least 2" == error.message


async def test_two_positions_in_a_cumulative_acknowledgement_are_refused() -> None:
    async with pair() as both:
        call = both.client._connection.stream("Consume")
        both_places = pb.Acknowledge(
            request=5,
            is_cumulative=True,
            acknowledgements=[pb.Acknowledgement(), pb.Acknowledgement()],
        )
        calls = [pb.ConsumerCall(acknowledge=both_places)]
        await call.write(pb.ConsumeRequest(open=OPEN, calls=calls))
        await call.read()
        receipt = (await call.read()).receipts[0]
        assert (5, "invalid_argument") == (receipt.request, receipt.error.code)
        call.cancel()


async def test_stopping_server_ends_every_link() -> None:
    ended = Endings()
    async with pair() as both:
        await both.client.open_producer("t", 0, name="p", on_ended=ended)
        assert 1 == both.server.stream_count
        await both.server.stop(grace_ms=GRACE_MS)
        await both.server.stop(grace_ms=GRACE_MS)
        assert 0 == both.server.stream_count
        error = await ended.first()
        assert (Unavailable, "the server is stopping") == (type(error), str(error))
