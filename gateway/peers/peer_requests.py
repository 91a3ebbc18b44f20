"""Peer requests: the two requests between brokers, made of questions about one partition each.

    WriteTxnMarkers 1       write the end of a transaction into a partition
    AddPartitionsToTxn 4    does a transaction include a partition?
    AddPartitionsToTxn 5    the same; add the partition if it does not

Rule: pure. Answers are matched to questions by the order of the request.
Must not know: connections, leaders, coordinators.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from kledger.gateway.coordinator.transactions.txn_state import ProducerIdAndEpoch
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kledger.gateway.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kledger.offsets import TopicPartition
from kledger.topics import TransactionEnd

MARKERS_VERSION: Final = 1
INCLUSIONS_VERSION: Final = 5


class Marker(NamedTuple):
    """The end of a producer's transaction in a partition.

    Attributes:
        end: what this broker, its coordinator, has decided.
        topic_id: of the topic, as a later one of its name is another; None: it is OFFSETS_TOPIC.
    """

    end: TransactionEnd
    topic_partition: TopicPartition
    topic_id: UUID | None = None


class Inclusion(NamedTuple):
    """Whether a producer's transaction includes a partition.

    Attributes:
        is_added: it does from now on.
    """

    transactional_id: str
    producer: ProducerIdAndEpoch
    is_added: bool
    topic_partition: TopicPartition


Indexes: TypeAlias = dict[str, list[int]]
"""Partitions by topic."""
MarkerGroups: TypeAlias = dict[TransactionEnd, Indexes]
InclusionGroups: TypeAlias = dict[tuple[str, ProducerIdAndEpoch, bool], Indexes]


def marker_groups(markers: Iterable[Marker]) -> MarkerGroups:
    """Return markers by what one part of a request has in common, and by topic."""
    groups: MarkerGroups = {}
    for end, (topic, index), _ in markers:
        groups.setdefault(end, {}).setdefault(topic, []).append(index)
    return groups


def markers_request(groups: MarkerGroups) -> WriteTxnMarkersRequest:
    """Return the request that writes markers."""
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=end.producer_id,
                producer_epoch=end.epoch,
                transaction_result=end.is_commit,
                topics=[
                    WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                    for topic, indexes in topics.items()
                ],
                coordinator_epoch=end.coordinator_epoch,
            )
            for end, topics in groups.items()
        ]
    )


def marker_codes(
    markers: Iterable[Marker], groups: MarkerGroups, response: WriteTxnMarkersResponse
) -> Iterator[tuple[Marker, ErrorCode]]:
    """Iterate over the answers of a response, as long as they answer the request."""
    asked = {marker[:2]: marker for marker in markers}
    for end, result in zip(groups, response.markers, strict=False):
        for topic in result.topics:
            for one in topic.partitions:
                topic_partition = TopicPartition(topic.name, one.partition_index)
                marker = asked.get((end, topic_partition))
                if marker is not None:
                    yield marker, ErrorCode(one.error_code)


def inclusion_groups(inclusions: Iterable[Inclusion]) -> InclusionGroups:
    """Return questions by what one part of a request has in common, and by topic."""
    groups: InclusionGroups = {}
    for transactional_id, producer, is_added, (topic, index) in inclusions:
        topics = groups.setdefault((transactional_id, producer, is_added), {})
        topics.setdefault(topic, []).append(index)
    return groups


def inclusions_request(groups: InclusionGroups) -> AddPartitionsToTxnRequest:
    """Return the request that verifies and adds partitions."""
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                verify_only=not is_added,
                topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                    for topic, indexes in topics.items()
                ],
            )
            for (transactional_id, producer, is_added), topics in groups.items()
        ]
    )


def inclusion_codes(
    groups: InclusionGroups, response: AddPartitionsToTxnResponse
) -> Iterator[tuple[Inclusion, ErrorCode]]:
    """Iterate over the answers of a response, as long as they answer the request."""
    for group, result in zip(groups, response.results_by_transaction, strict=False):
        for topic in result.topic_results:
            for one in topic.results_by_partition:
                topic_partition = TopicPartition(topic.name, one.partition_index)
                yield Inclusion(*group, topic_partition), ErrorCode(one.partition_error_code)
