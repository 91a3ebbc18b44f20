"""Metadata put together from parts equals the whole message."""

from uuid import UUID

import pytest

from kledger.gateway.metadata.response_blocks import (
    MetadataHead,
    MetadataTail,
    encode_head,
    encode_topic,
    join_parts,
)
from kledger.gateway.wire.codec import encode
from kledger.gateway.wire.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def make_topics(count: int) -> list[MetadataResponseTopic]:
    return [
        MetadataResponseTopic(
            name=f"topic-{number}",
            topic_id=UUID(int=number + 1),
            partitions=[
                MetadataResponsePartition(
                    partition_index=index, leader_id=1, replica_nodes=[1], isr_nodes=[1]
                )
                for index in range(number % 3)
            ],
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("count", [0, 1, 3, 200])
@pytest.mark.parametrize("version", range(14))
def test_joined_parts_equal_the_encoded_message(version: int, count: int) -> None:
    broker = MetadataResponseBroker(node_id=1, host="localhost", port=9092)
    topics = make_topics(count)
    whole = MetadataResponse(
        brokers=[broker],
        cluster_id="abc",
        controller_id=1,
        topics=topics,
        cluster_authorized_operations=5 if 8 <= version <= 10 else -(2**31),
    )
    head = encode_head(MetadataHead(brokers=[broker], cluster_id="abc", controller_id=1), version)
    tail = MetadataTail(cluster_authorized_operations=whole.cluster_authorized_operations)
    blocks = [encode_topic(topic, version) for topic in topics]
    assert encode(whole, version) == join_parts(head, blocks, tail, version)
