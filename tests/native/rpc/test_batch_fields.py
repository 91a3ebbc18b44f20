"""Messages with batches: protobuf reads what it would have written itself."""

import pytest

from kledger.ledger import Buffer, Position
from kledger.native.proto import kledger_native_pb2 as pb
from kledger.native.rpc.protocol import serialized
from kledger.native.rpc.values import BATCHES, DELIVERIES, delivery_from, delivery_head
from kledger.subscriptions.model import ALL, Delivery

SIZES = [0, 1, 127, 128, 16_383, 16_384, 70_000]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_batches_are_read_as_protobuf_writes_them(size: int, kind: type[Buffer]) -> None:
    pieces: list[Buffer] = []
    for number in (1, 2):
        head = pb.Batch(number=number, is_resent=number == 2)
        pieces += BATCHES.pieces(head, kind(bytes(size)))
    expected = pb.ProduceRequest(
        batches=[
            pb.Batch(number=1, data=bytes(size)),
            pb.Batch(number=2, data=bytes(size), is_resent=True),
        ]
    )
    assert expected == pb.ProduceRequest.FromString(b"".join(pieces))


@pytest.mark.parametrize("records", [ALL, 0b101, 1 << 1_000])
@pytest.mark.parametrize("size", SIZES)
def test_deliveries_come_back_with_what_follows_them(size: int, records: int) -> None:
    delivery = Delivery(Position(5, 120), bytes(size), records, 3)
    rest = pb.ConsumeResponse(receipts=[pb.AcknowledgeReceipt(request=7)])
    pieces = DELIVERIES.pieces(delivery_head(delivery, consumer_epoch=9), delivery.data)
    message = pb.ConsumeResponse.FromString(b"".join([*pieces, rest.SerializeToString()]))
    assert ([delivery], [9]) == (
        [delivery_from(each) for each in message.deliveries],
        [each.consumer_epoch for each in message.deliveries],
    )
    assert [7] == [each.request for each in message.receipts]


def test_messages_and_their_bytes_are_serialized_alike() -> None:
    message = pb.ProduceRequest(batches=[pb.Batch(number=1, data=b"x")])
    assert message.SerializeToString() == serialized(message)
    assert message.SerializeToString() == serialized(message.SerializeToString())
