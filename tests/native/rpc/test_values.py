"""Values survive conversion to a message and back."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.ledger import Position
from kledger.native.broker import (
    EARLIEST,
    LATEST,
    ConsumerRequest,
    PartitionStats,
    RecordPosition,
    SeekTarget,
    SubscriptionStats,
    TopicStats,
)
from kledger.native.errors import InvalidArgument
from kledger.native.proto import kledger_native_pb2 as pb
from kledger.native.rpc import values
from kledger.subscriptions.model import ALL, Acknowledgement, Delivery, RecordMask, SubscriptionType
from tests.native.recording_broker import METRICS_CLIENT

POSITION = Position(7, -1)
REQUEST = ConsumerRequest(
    topic="orders",
    partition=2,
    subscription="s",
    type=SubscriptionType.KEY_SHARED,
    start=RecordPosition(POSITION, 3),
    is_start_inclusive=False,
    is_durable=False,
    consumer_name="c",
    priority_level=4,
    key_ranges=((1, 5), (9, 9)),
    unacked_max=0,
    unacked_subscription_max=6,
    failover_delay_ms=7,
    reads_compacted=True,
    is_continued=True,
)
STATS = SubscriptionStats(
    type="shared",
    backlog=1 << 40,
    unacknowledged=2,
    consumers=("a",),
    redelivery_rate=0.5,
    revision_num=3,
    is_under_revision=False,
)


@given(st.integers(min_value=-(1 << 70), max_value=1 << 2_000))
def test_any_mask_survives(records: int) -> None:
    assert records == values.mask_from(values.mask_to(records))


def test_full_mask_is_empty_and_other_masks_have_a_fixed_form() -> None:
    """Clients in other languages read this form."""
    forms = {ALL: b"", 0: b"\0", 0b101: b"\x05", 0x80: b"\x80\0", 0x1FF: b"\xff\x01", -2: b"\xfe"}
    assert forms == {records: values.mask_to(records) for records in forms}


@pytest.mark.parametrize("target", [RecordPosition(POSITION, 3), 0, 1 << 45, EARLIEST, LATEST])
def test_target_survives(target: SeekTarget) -> None:
    message = pb.Target.FromString(values.target_to(target).SerializeToString())
    assert target == values.target_from(message)


@pytest.mark.parametrize("message", [pb.Target(), pb.Target(edge="EDGE_UNSPECIFIED")])
def test_empty_or_unknown_target_is_refused(message: pb.Target) -> None:
    with pytest.raises(InvalidArgument):
        values.target_from(message)


def test_unknown_edge_of_a_target_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="'soon'"):
        values.target_to("soon")


def test_values_of_streams_survive() -> None:
    record_mask, acknowledgement = RecordMask(POSITION, 5), Acknowledgement(POSITION, ALL, 9)
    delivery = Delivery(POSITION, memoryview(b"batch"), 6, 2)
    assert record_mask == values.record_mask_from(values.record_mask_to(record_mask))
    assert acknowledgement == values.acknowledgement_from(
        values.acknowledgement_to(acknowledgement)
    )
    message = values.delivery_head(delivery, consumer_epoch=3)
    assert 3 == message.consumer_epoch
    assert delivery._replace(data=b"") == values.delivery_from(message)


@pytest.mark.parametrize("ranges", [None, (), ((1, 65_535),)])
def test_consumer_request_survives(ranges: tuple[tuple[int, int], ...] | None) -> None:
    request = replace(REQUEST, key_ranges=ranges)
    assert request == values.consumer_from(values.consumer_to(request))


def test_type_that_does_not_exist_is_refused() -> None:
    message = values.consumer_to(REQUEST)
    message.type = "loose"
    with pytest.raises(InvalidArgument, match=r"expected one of exclusive, .*, got 'loose'"):
        values.consumer_from(message)


def test_integers_survive() -> None:
    topic = TopicStats(name="orders", partitions=(PartitionStats(1, 2, 3),), subscriptions=("s",))
    assert topic == values.topic_stats_from(values.topic_stats_to(topic))
    for stats in (STATS, replace(STATS, type=None)):
        assert stats == values.subscription_stats_from(values.subscription_stats_to(stats))


def test_metrics_clients_survive() -> None:
    for client in (
        METRICS_CLIENT,
        replace(METRICS_CLIENT, client_id=None, subscriptions=(), pushed_at_ms=None),
        replace(METRICS_CLIENT, client_id=""),
    ):
        assert client == values.metrics_client_from(values.metrics_client_to(client))
