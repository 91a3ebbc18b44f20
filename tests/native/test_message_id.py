"""Coordinates of a record: identity, order, bytes, and acknowledgements."""

from typing import Any

import pytest

from kledger.ledger import Position
from kledger.native.broker import NO_RECORD, RecordLocation, RecordPosition
from kledger.native.errors import InvalidArgument
from kledger.native.message_id import MessageId
from kledger.subscriptions.model import ALL, Acknowledgement


def test_identity_is_the_four_numbers() -> None:
    one = MessageId(5, 120, 3, 1, batch_size=7, link=object())
    other = MessageId(5, 120, 3, 1)
    assert one == other
    assert hash(one) == hash(other)
    assert one != MessageId(5, 120, 3, 2)
    assert "5:120:3:1" == str(one)


def test_order_follows_the_records_of_a_partition() -> None:
    ordered = [MessageId(5, 9, 4), MessageId(5, 10, 0), MessageId(5, 10, 1), MessageId(6, 0, 0)]
    assert ordered == sorted(set(ordered))


def test_bytes_bring_back_all_but_the_link() -> None:
    one = MessageId(1 << 40, 120, 3, 1, batch_size=7, link=object())
    back = MessageId.from_bytes(one.to_bytes())
    assert (one, 7, None) == (back, back.batch_size, back.link)
    assert MessageId(-1, -1, -1, 0) == MessageId.from_bytes(MessageId(-1, -1).to_bytes())


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x02" + bytes(28), bytes(30), "text", None])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidArgument):
        MessageId.from_bytes(data)


def test_record_position_round_trip() -> None:
    record_position = RecordPosition(Position(5, 120), 3)
    found = MessageId.at(RecordLocation(record_position, 4, 70), 1)
    assert record_position == found.record_position
    assert (MessageId(5, 120, 3, 1), 4, 70) == (found, found.batch_size, found.offset)
    assert (MessageId(-1, -1, -1, 1), None) == (
        MessageId.at(NO_RECORD, 1), MessageId.at(NO_RECORD, 1).offset
    )  # fmt: skip


@pytest.mark.parametrize(
    ("index", "size", "alone", "upto"),
    [
        (0, 1, ALL, ALL),
        (-1, 0, ALL, ALL),
        (-1, 3, ALL, ALL),
        (0, 3, 0b001, 0b001),
        (1, 3, 0b010, 0b011),
        (2, 3, 0b100, ALL),
    ],
)
def test_acknowledgements_of_a_record(index: int, size: int, alone: int, upto: int) -> None:
    id_ = MessageId(5, 120, index, 1, size)
    assert Acknowledgement(Position(5, 120), alone, size) == id_.acknowledgement()
    assert Acknowledgement(Position(5, 120), upto, size) == id_.acknowledgement_upto()


@pytest.mark.parametrize("id_", [MessageId(5, 120, 0), MessageId(5, 120, 3, batch_size=3)])
def test_record_of_an_unknown_batch_cannot_be_acknowledged(id_: MessageId) -> None:
    with pytest.raises(InvalidArgument, match="its batch is unknown"):
        id_.acknowledgement()


@pytest.mark.parametrize("numbers", [(1 << 63, 0), (0, 0, 1 << 31), ("a", 0), (0, 0, 0, 0.5)])
def test_id_with_wrong_numbers_is_refused(numbers: tuple[Any, ...]) -> None:
    id_ = MessageId(*numbers)
    with pytest.raises(InvalidArgument, match="message id"):
        id_.check()
    with pytest.raises(InvalidArgument, match="message id"):
        id_.to_bytes()
