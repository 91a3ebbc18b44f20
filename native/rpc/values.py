"""Converts the values of `native.broker` to protobuf messages and back.

Rule: one pair of functions for each value; a wrong message raises InvalidArgument.
Must not know: calls, streams, connections.
"""

from collections.abc import Sequence
from typing import Any

from kledger.ledger import Buffer, Position
from kledger.native.broker import (
    EARLIEST,
    LATEST,
    ConsumerRequest,
    LedgerStats,
    MetricsClient,
    PartitionStats,
    PushedClientMetrics,
    RecordLocation,
    RecordPosition,
    SeekTarget,
    SubscriptionStats,
    TopicCompactionStatus,
    TopicInfo,
    TopicOffloadStatus,
    TopicStats,
)
from kledger.native.errors import InvalidArgument
from kledger.native.proto import kledger_native_pb2 as pb
from kledger.subscriptions.model import ALL, Acknowledgement, Delivery, RecordMask, SubscriptionType

_EDGES = {EARLIEST: pb.Target.EDGE_EARLIEST, LATEST: pb.Target.EDGE_LATEST}
_EDGE_NAMES = {number: name for name, number in _EDGES.items()}


def mask_to(records: int) -> bytes:
    """Write a mask of records; see `RecordMask` in the .proto file."""
    if records == ALL:
        return b""
    return records.to_bytes(records.bit_length() // 8 + 1, "little", signed=True)


def mask_from(data: bytes) -> int:
    """Read a mask of records."""
    return int.from_bytes(data, "little", signed=True) if data else ALL


def position_to(position: Position) -> pb.Position:
    """Write a position."""
    return pb.Position(ledger_id=position[0], entry_id=position[1])


def position_from(message: pb.Position) -> Position:
    """Read a position."""
    return Position(message.ledger_id, message.entry_id)


def record_position_to(record_position: RecordPosition) -> pb.RecordPosition:
    """Write the position of a record."""
    return pb.RecordPosition(
        position=position_to(record_position.position), batch_index=record_position.batch_index
    )


def record_position_from(message: pb.RecordPosition) -> RecordPosition:
    """Read the position of a record."""
    return RecordPosition(position_from(message.position), message.batch_index)


def location_to(record: RecordLocation) -> pb.RecordLocation:
    """Write the location of a record."""
    return pb.RecordLocation(
        record_position=record_position_to(record.record_position),
        batch_size=record.batch_size,
        offset=record.offset,
    )


def location_from(message: pb.RecordLocation) -> RecordLocation:
    """Read the location of a record."""
    return RecordLocation(
        record_position_from(message.record_position), message.batch_size, message.offset
    )


def target_to(target: SeekTarget) -> pb.Target:
    """Write a target.

    Raises:
        InvalidArgument: it is a word other than EARLIEST and LATEST.
    """
    if isinstance(target, RecordPosition):
        return pb.Target(record_position=record_position_to(target))
    if isinstance(target, int):
        return pb.Target(time_ms=target)
    if target not in _EDGES:
        raise InvalidArgument(f"expected {EARLIEST} or {LATEST}, got {target!r}")
    return pb.Target(edge=_EDGES[target])


def target_from(message: pb.Target) -> SeekTarget:
    """Read a target.

    Raises:
        InvalidArgument: it is empty, or of a newer version.
    """
    match message.WhichOneof("kind"):
        case "record_position":
            return record_position_from(message.record_position)
        case "time_ms":
            return message.time_ms
        case "edge" if message.edge in _EDGE_NAMES:
            return _EDGE_NAMES[message.edge]
        case _:
            raise InvalidArgument("a target is a record, a time or an edge, got none of them")


def record_mask_to(record_mask: RecordMask) -> pb.RecordMask:
    """Write records of an entry."""
    return pb.RecordMask(
        position=position_to(record_mask.position), records=mask_to(record_mask.records)
    )


def record_mask_from(message: pb.RecordMask) -> RecordMask:
    """Read records of an entry."""
    return RecordMask(position_from(message.position), mask_from(message.records))


def acknowledgement_to(acknowledgement: Acknowledgement) -> pb.Acknowledgement:
    """Write an acknowledgement."""
    return pb.Acknowledgement(
        position=position_to(acknowledgement.position),
        records=mask_to(acknowledgement.records),
        batch_size=acknowledgement.batch_size,
    )


def acknowledgement_from(message: pb.Acknowledgement) -> Acknowledgement:
    """Read an acknowledgement."""
    return Acknowledgement(
        position_from(message.position), mask_from(message.records), message.batch_size
    )


def delivery_head(delivery: Delivery, *, consumer_epoch: int) -> pb.Delivery:
    """Write a delivery without its data, which `DELIVERIES` adds."""
    return pb.Delivery(
        consumer_epoch=consumer_epoch,
        position=position_to(delivery.position),
        records=mask_to(delivery.records),
        redelivery_count=delivery.redelivery_count,
    )


def delivery_from(message: pb.Delivery) -> Delivery:
    """Read a delivery."""
    return Delivery(
        position_from(message.position),
        message.data,
        mask_from(message.records),
        message.redelivery_count,
    )


def consumer_to(request: ConsumerRequest) -> pb.OpenConsumer:
    """Write a consumer request."""
    return pb.OpenConsumer(
        topic=request.topic,
        partition=request.partition,
        subscription=request.subscription,
        type=request.type.value,
        start=target_to(request.start),
        is_start_inclusive=request.is_start_inclusive,
        is_durable=request.is_durable,
        consumer_name=request.consumer_name,
        priority_level=request.priority_level,
        is_sticky=request.key_ranges is not None,
        key_ranges=[
            pb.KeyRange(first=first, last=last) for first, last in request.key_ranges or ()
        ],
        unacked_max=request.unacked_max,
        unacked_subscription_max=request.unacked_subscription_max,
        failover_delay_ms=request.failover_delay_ms,
        reads_compacted=request.reads_compacted,
        is_continued=request.is_continued,
    )


def consumer_from(message: pb.OpenConsumer) -> ConsumerRequest:
    """Read a consumer request.

    Raises:
        InvalidArgument: the type of the subscription or its start is wrong.
    """
    try:
        kind = SubscriptionType(message.type)
    except ValueError:
        raise InvalidArgument(
            f"expected one of {', '.join(SubscriptionType)} as type, got {message.type!r}"
        ) from None
    ranges = tuple((each.first, each.last) for each in message.key_ranges)
    return ConsumerRequest(
        topic=message.topic,
        partition=message.partition,
        subscription=message.subscription,
        type=kind,
        start=target_from(message.start),
        is_start_inclusive=message.is_start_inclusive,
        is_durable=message.is_durable,
        consumer_name=message.consumer_name,
        priority_level=message.priority_level,
        key_ranges=ranges if message.is_sticky else None,
        unacked_max=message.unacked_max,
        unacked_subscription_max=message.unacked_subscription_max,
        failover_delay_ms=message.failover_delay_ms,
        reads_compacted=message.reads_compacted,
        is_continued=message.is_continued,
    )


def topic_info_to(info: TopicInfo) -> pb.LookupResponse:
    """Write the name and the partitions of a topic."""
    indexes = {address: index for index, address in enumerate(dict.fromkeys(info.leaders))}
    return pb.LookupResponse(
        name=info.name,
        partition_count=info.partition_count,
        brokers=indexes,
        leaders=[indexes[address] for address in info.leaders],
    )


def topic_info_from(message: pb.LookupResponse) -> TopicInfo:
    """Read the name and the partitions of a topic."""
    brokers = tuple(message.brokers)
    leaders = tuple([brokers[index] for index in message.leaders])
    return TopicInfo(message.name, message.partition_count, leaders)


def peeked_entry_to(entry: tuple[int, Position, bytes, int]) -> pb.PeekedEntry:
    """Write a peeked entry: its partition, position, batch and mask of records."""
    partition, position, data, records = entry
    return pb.PeekedEntry(
        partition=partition,
        position=position_to(position),
        data=bytes(data),
        records=mask_to(records),
    )


def peeked_entry_from(message: pb.PeekedEntry) -> tuple[int, Position, bytes, int]:
    """Read a peeked entry."""
    return (
        message.partition,
        position_from(message.position),
        message.data,
        mask_from(message.records),
    )


def compaction_status_to(status: TopicCompactionStatus) -> pb.GetCompactionStatusResponse:
    """Write the status of a compaction."""
    return pb.GetCompactionStatusResponse(
        state=status.state,
        error=status.error,
        started_ms=status.started_ms,
        ended_ms=status.ended_ms,
        horizons=[
            pb.CompactionHorizon(record=None if each is None else location_to(each))
            for each in status.horizons
        ],
    )


def compaction_status_from(message: pb.GetCompactionStatusResponse) -> TopicCompactionStatus:
    """Read the status of a compaction."""
    return TopicCompactionStatus(
        state=message.state,
        error=message.error,
        started_ms=message.started_ms if message.HasField("started_ms") else None,
        ended_ms=message.ended_ms if message.HasField("ended_ms") else None,
        horizons=tuple(
            location_from(each.record) if each.HasField("record") else None
            for each in message.horizons
        ),
    )


def offload_status_to(status: TopicOffloadStatus) -> pb.GetOffloadStatusResponse:
    """Write the status of an offload."""
    return pb.GetOffloadStatusResponse(
        state=status.state,
        error=status.error,
        ledgers_left=status.ledgers_left,
        ends=map(position_to, status.ends),
    )


def offload_status_from(message: pb.GetOffloadStatusResponse) -> TopicOffloadStatus:
    """Read the status of an offload."""
    return TopicOffloadStatus(
        state=message.state,
        error=message.error,
        ledgers_left=message.ledgers_left,
        ends=tuple(map(position_from, message.ends)),
    )


def _partition_stats_to(stats: PartitionStats) -> pb.PartitionStats:
    return pb.PartitionStats(
        log_start_offset=stats.log_start_offset,
        end_offset=stats.end_offset,
        size_bytes=stats.size_bytes,
        ledgers=[pb.LedgerStats(**each._asdict()) for each in stats.ledgers],
        reads=stats.reads,
    )


def _partition_stats_from(message: pb.PartitionStats) -> PartitionStats:
    ledgers = tuple(
        LedgerStats(
            ledger_id=each.ledger_id,
            entries=each.entries,
            size=each.size,
            closed_ms=each.closed_ms if each.HasField("closed_ms") else None,
            offloaded=each.offloaded,
            primary_deleted=each.primary_deleted,
        )
        for each in message.ledgers
    )
    return PartitionStats(
        message.log_start_offset,
        message.end_offset,
        message.size_bytes,
        ledgers,
        dict(message.reads),
    )


def topic_stats_to(stats: TopicStats) -> pb.GetTopicStatsResponse:
    """Write the numbers of a topic."""
    return pb.GetTopicStatsResponse(
        name=stats.name,
        partitions=map(_partition_stats_to, stats.partitions),
        subscriptions=stats.subscriptions,
    )


def topic_stats_from(message: pb.GetTopicStatsResponse) -> TopicStats:
    """Read the numbers of a topic."""
    return TopicStats(
        name=message.name,
        partitions=tuple(map(_partition_stats_from, message.partitions)),
        subscriptions=tuple(message.subscriptions),
    )


def subscription_stats_to(stats: SubscriptionStats) -> pb.GetSubscriptionStatsResponse:
    """Write the numbers of a subscription."""
    return pb.GetSubscriptionStatsResponse(
        type=stats.type,
        backlog=stats.backlog,
        unacknowledged=stats.unacknowledged,
        consumers=stats.consumers,
        redelivery_rate=stats.redelivery_rate,
        revision_num=stats.revision_num,
        is_under_revision=stats.is_under_revision,
    )


def subscription_stats_from(message: pb.GetSubscriptionStatsResponse) -> SubscriptionStats:
    """Read the numbers of a subscription."""
    return SubscriptionStats(
        type=message.type if message.HasField("type") else None,
        backlog=message.backlog,
        unacknowledged=message.unacknowledged,
        consumers=tuple(message.consumers),
        redelivery_rate=message.redelivery_rate,
        revision_num=message.revision_num,
        is_under_revision=message.is_under_revision,
    )


def metrics_client_to(client: MetricsClient) -> pb.MetricsClient:
    """Write a client that can push metrics."""
    return pb.MetricsClient(
        instance_id=client.instance_id,
        client_id=client.client_id,
        software=client.software,
        address=client.address,
        subscriptions=client.subscriptions,
        pushed_at_ms=client.pushed_at_ms,
    )


def metrics_client_from(message: pb.MetricsClient) -> MetricsClient:
    """Read a client that can push metrics."""
    return MetricsClient(
        instance_id=message.instance_id,
        client_id=message.client_id if message.HasField("client_id") else None,
        software=message.software,
        address=message.address,
        subscriptions=tuple(message.subscriptions),
        pushed_at_ms=message.pushed_at_ms if message.HasField("pushed_at_ms") else None,
    )


def client_metrics_to(metrics: PushedClientMetrics | None) -> pb.GetClientMetricsResponse:
    """Write the last metrics of a client; an empty response for None."""
    if metrics is None:
        return pb.GetClientMetricsResponse()
    return pb.GetClientMetricsResponse(client=metrics_client_to(metrics.client), data=metrics.data)


def client_metrics_from(message: pb.GetClientMetricsResponse) -> PushedClientMetrics | None:
    """Read the last metrics of a client."""
    if not message.HasField("client"):
        return None
    return PushedClientMetrics(metrics_client_from(message.client), message.data)


# Batches

_LENGTH_DELIMITED = 2
"""How protobuf names fields that begin with their length."""


class BatchField:
    """A repeated field of a message, whose items hold a batch, written with one copy of each batch.

    A message is the concatenation of its fields, in any order. protobuf itself would copy a batch
    into its item, the item into the list of the message, and that into the bytes to be sent.
    """

    def __init__(self, message: Any, field: str, data_field: str = "data") -> None:
        """Args: message: the class; field: of it; data_field: of the items, with the batch."""
        found = message.DESCRIPTOR.fields_by_name[field]
        data = found.message_type.fields_by_name[data_field]
        self._tag = _varint(found.number << 3 | _LENGTH_DELIMITED)
        self._data_tag = _varint(data.number << 3 | _LENGTH_DELIMITED)

    def pieces(self, item: Any, data: Buffer) -> Sequence[Buffer]:
        """Return the pieces of an item: all fields but the batch, and the batch."""
        head = item.SerializeToString() + self._data_tag + _varint(len(data))
        return (self._tag, _varint(len(head) + len(data)), head, data)


def _varint(value: int) -> bytes:
    """Return a number as protobuf writes it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


DELIVERIES = BatchField(pb.ConsumeResponse, "deliveries")
BATCHES = BatchField(pb.ProduceRequest, "batches")
