"""Calls with one answer, without a connection in between."""

from kledger.native.proto import kledger_native_pb2 as pb
from kledger.native.rpc.unary_calls import UNARY
from tests.native.recording_broker import RecordingBroker


async def test_absent_partition_means_all_of_them() -> None:
    broker = RecordingBroker()
    target = pb.Target(edge=pb.Target.EDGE_LATEST)
    request = pb.ResetSubscriptionRequest(topic="t", name="s", target=target)
    await UNARY["ResetSubscription"](broker, request)
    request.partition = 0
    await UNARY["ResetSubscription"](broker, request)
    assert [
        ("reset_subscription", "t", "s", "latest", None, False),
        ("reset_subscription", "t", "s", "latest", 0, False),
    ] == broker.calls


async def test_answer_of_a_look_ahead_keeps_masks() -> None:
    request = pb.PeekRequest(topic="t", name="s", count=2)
    answer = await UNARY["Peek"](RecordingBroker(), request)
    assert [(1, b"\x05"), (2, b"")] == [(each.partition, each.records) for each in answer.entries]
