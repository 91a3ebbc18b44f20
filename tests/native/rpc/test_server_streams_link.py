"""What producer and consumer streams share, tested at the socket."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest

from kledger.native.broker import PERMITS_PER_CALL_MAX
from kledger.native.errors import KledgerError, Unavailable
from kledger.native.proto import kledger_native_pb2 as pb
from kledger.native.rpc.protocol import CALLS, VERSION_KEY
from kledger.native.rpc.server_streams import error_for_client, error_of_request
from tests.native.recording_broker import RecordingBroker, batch
from tests.native.rpc.connected_pair import TEST_SECONDS, serving

QUIET_SECONDS = 0.05
"""Time in which what must not happen would have been seen."""
OPEN = pb.OpenProducer(topic="orders", partition=2, name="p")


@asynccontextmanager
async def stream(
    broker: RecordingBroker, name: str = "Produce", serializer: Any = None
) -> AsyncIterator[Any]:
    """Open a stream by hand."""
    call = CALLS[name]
    async with (
        asyncio.timeout(TEST_SECONDS),
        serving(broker) as (_, port),
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        yield channel.stream_stream(
            call.path,
            request_serializer=serializer or call.request.SerializeToString,
            response_deserializer=call.response.FromString,
        )(metadata=((VERSION_KEY, "1"),))


async def error_of(call: Any) -> tuple[str, str]:
    """Wait for the end of a stream; return its code and text."""

    async def read_on() -> None:
        while (response := await call.read()) is not grpc.aio.EOF:
            if response.HasField("end"):
                await call.done_writing()

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await read_on()
    return dict(caught.value.trailing_metadata())["kledger-error"], caught.value.details()


async def test_first_message_of_a_stream_must_open_a_link() -> None:
    broker = RecordingBroker()
    async with stream(broker) as call:
        await call.write(pb.ProduceRequest(batches=[pb.Batch(number=1, data=b"x")]))
        assert "invalid_argument" == (await error_of(call))[0]
    assert [] == broker.calls


async def test_stream_without_a_message_ends() -> None:
    broker = RecordingBroker()
    async with stream(broker) as call:
        await call.done_writing()
        assert grpc.aio.EOF is await call.read()
    assert [] == broker.calls


async def test_requests_in_the_first_message_are_answered_before_the_end() -> None:
    broker = RecordingBroker()
    async with stream(broker) as call:
        batches = [pb.Batch(number=n, data=batch(b"%d" % n)) for n in (7, 8, 9)]
        await call.write(pb.ProduceRequest(open=OPEN, batches=batches))
        await call.done_writing()
        assert pb.ProduceResponse() == await call.read(), "it is open"
        numbers: list[int] = []
        while (response := await call.read()) is not grpc.aio.EOF:
            numbers += [receipt.number for receipt in response.receipts]
        assert [7, 8, 9] == numbers
        assert grpc.StatusCode.OK == await call.code()
    assert ("p", "close") == broker.calls[-1]


async def test_client_that_ended_its_side_gets_pending_answers() -> None:
    broker = RecordingBroker()
    async with stream(broker) as call:
        await call.write(pb.ProduceRequest(open=OPEN))
        await call.read()
        broker.links[0].hold = hold = asyncio.Event()
        await call.write(pb.ProduceRequest(batches=[pb.Batch(number=7, data=batch(b"x"))]))
        await call.done_writing()
        reading = asyncio.ensure_future(call.read())
        await asyncio.wait([reading], timeout=QUIET_SECONDS)
        assert not reading.done()
        hold.set()
        assert 7 == (await reading).receipts[0].number
        assert grpc.aio.EOF is await call.read()


async def test_link_of_a_client_that_vanishes_is_closed_without_waiting_for_answers() -> None:
    broker = RecordingBroker()
    async with stream(broker) as call:
        await call.write(pb.ProduceRequest(open=OPEN))
        await call.read()
        broker.links[0].hold = hold = asyncio.Event()
        await call.write(pb.ProduceRequest(batches=[pb.Batch(number=1, data=batch(b"x"))]))
        while not broker.batches:
            await broker.changed.wait()
        call.cancel()
        await broker.happened("p", "close")
        hold.set()


async def test_mistake_of_the_broker_ends_the_stream_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = RecordingBroker()
    broker.fail_next = RuntimeError("a mistake")
    async with stream(broker) as call:
        await call.write(pb.ProduceRequest(open=OPEN))
        code, text = await error_of(call)
        assert "internal" == code
        assert "a mistake" in text
    assert "a native request failed" in caplog.text


@pytest.mark.parametrize(
    "calls",
    [
        [pb.ConsumerCall()],
        [pb.ConsumerCall(permits=0)],
        [pb.ConsumerCall(permits=-1)],
        [pb.ConsumerCall(permits=PERMITS_PER_CALL_MAX + 1)],
    ],
)
async def test_request_that_cannot_be_ends_the_stream(calls: Sequence[pb.ConsumerCall]) -> None:
    broker = RecordingBroker()
    opening = pb.OpenConsumer(
        topic="orders", type="shared", start=pb.Target(time_ms=0), consumer_name="c"
    )
    async with stream(broker, "Consume") as call:
        await call.write(pb.ConsumeRequest(open=opening, calls=calls))
        assert "invalid_argument" == (await error_of(call))[0]
    assert ("c", "close") == broker.calls[-1]


async def test_bytes_that_are_no_message_are_the_clients_mistake(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Malformed requests must not fill the log with tracebacks."""
    broker = RecordingBroker()
    opening = pb.ProduceRequest(open=OPEN).SerializeToString()
    async with stream(broker, serializer=bytes) as call:
        await call.write(opening)
        await call.write(b"\xff\xff")
        assert "invalid_argument" == (await error_of(call))[0]
    async with stream(broker, serializer=bytes) as call:
        await call.write(b"\xff\xff")
        assert "invalid_argument" == (await error_of(call))[0]
    assert not caplog.records


async def test_answer_of_a_failed_request_is_its_error() -> None:
    async def fail(error: Exception | None) -> None:
        if error is not None:
            raise error

    assert await error_of_request(fail(None)) is None
    expected = pb.Error(code="unavailable", message="later")
    assert expected == await error_of_request(fail(Unavailable("later")))
    found = await error_of_request(fail(ValueError("odd")))
    assert found is not None
    assert ("internal", True) == (found.code, "odd" in found.message)
    assert type(error_for_client(ValueError("odd"))) is KledgerError
