"""Unknown partitions: whether a request names a topic or partition that this broker does not know.

Rule: another broker may have just created it, so a broker that is not alone looks before it
refuses a request. Produce and Fetch are not among these requests, as their handlers take frames:
`produce.unknown_topics` does the same for Produce, and every client repeats its Fetch.
Must not know: where changes come from.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.gateway.wire.schema import ApiMessage

if TYPE_CHECKING:
    from kledger.topics import TopicRegistry


class PartitionFields(NamedTuple):
    """The fields of a request that name partitions.

    Attributes:
        partition_index: empty if the list of partitions has their indexes themselves.
    """

    topics: str = "topics"
    name: str = "name"
    partitions: str = "partitions"
    partition_index: str = "partition_index"


PARTITION_FIELDS: Final = {
    2: PartitionFields(),
    8: PartitionFields(),
    21: PartitionFields(),
    23: PartitionFields(name="topic", partition_index="partition"),
    24: PartitionFields(topics="v3_and_below_topics", partition_index=""),
    28: PartitionFields(),
    47: PartitionFields(),
    61: PartitionFields(partitions="partition_indexes", partition_index=""),
}
"""By API key. Later versions of AddPartitionsToTxn (24) come from brokers alone."""


def names_unknown_partition(
    request: ApiMessage, fields: PartitionFields, registry: "TopicRegistry"
) -> bool:
    """Return whether a topic, or a partition of it, is not known here."""
    for asked in getattr(request, fields.topics):
        topic_id = getattr(asked, "topic_id", ZERO_UUID)
        topic = (
            registry.get(getattr(asked, fields.name))
            if topic_id == ZERO_UUID
            else registry.get_by_id(topic_id)
        )
        if topic is None:
            return True
        for each in getattr(asked, fields.partitions):
            index = getattr(each, fields.partition_index) if fields.partition_index else each
            if index >= topic.partition_count:
                return True
    return False
