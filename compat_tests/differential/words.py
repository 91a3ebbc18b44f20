"""Words: the requests of the scripts, said shortly.

Rule: each builds one request for one topic or group; what a version has no field for is left out
when it is written, so the same words serve every version.
Must not know: connections.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from compat_tests.records import FIRST_TIMESTAMP_MS
from compat_tests.settings import dotted
from kledger.batches.builder import NO_PRODUCER, BatchProducer, NewRecord, build_batch
from kledger.gateway.wire.messages import k00_produce as k00
from kledger.gateway.wire.messages import k01_fetch as k01
from kledger.gateway.wire.messages import k02_list_offsets as k02
from kledger.gateway.wire.messages import k08_offset_commit as k08
from kledger.gateway.wire.messages import k09_offset_fetch as k09
from kledger.gateway.wire.messages import k19_create_topics as k19
from kledger.gateway.wire.primitives import ZERO_UUID

UNKNOWN_ID = UUID(int=5)
"""An id that no topic has."""
RECORDS_BY_ID = 13
"""From here on Produce and Fetch name topics by their ids."""
OFFSETS_BY_ID = 10
"""The same for OffsetCommit and OffsetFetch."""


def batch(
    *values: bytes,
    codec: int = 0,
    producer: BatchProducer = NO_PRODUCER,
    at_ms: int = FIRST_TIMESTAMP_MS,
    **changes: Any,
) -> bytes:
    """Build a batch of records with a key, a second apart."""
    records = [
        NewRecord(value, key=b"k", timestamp=at_ms + 1_000 * index)
        for index, value in enumerate(values)
    ]
    return bytes(build_batch(records, codec=codec, producer=producer, **changes))


def create_topic(
    name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> k19.CreateTopicsRequest:
    """Create one topic; keys of `configs` have underscores in place of dots."""
    settings = [
        k19.CreatableTopicConfig(name=key, value=value)
        for key, value in dotted(configs or {}).items()
    ]
    topic = k19.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, configs=settings
    )
    return k19.CreateTopicsRequest(topics=[topic])


def produce(
    topic: str, data: Mapping[int, bytes | None], *, topic_id: UUID = ZERO_UUID, **changes: Any
) -> k00.ProduceRequest:
    """Send records to partitions of one topic."""
    partitions = [k00.PartitionProduceData(index=one, records=data[one]) for one in data]
    named = k00.TopicProduceData(name=topic, topic_id=topic_id, partition_data=partitions)
    settings = {"acks": -1, "timeout_ms": 10_000} | changes
    return k00.ProduceRequest(topic_data=[named], **settings)


def fetch(
    topic: str,
    offsets: Mapping[int, int],
    *,
    topic_id: UUID = ZERO_UUID,
    partition_max_bytes: int = 1 << 20,
    leader_epoch: int = -1,
    **changes: Any,
) -> k01.FetchRequest:
    """Ask partitions of one topic for what is there, without waiting."""
    partitions = [
        k01.FetchPartition(
            partition=one,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
            current_leader_epoch=leader_epoch,
        )
        for one, offset in offsets.items()
    ]
    named = [k01.FetchTopic(topic=topic, topic_id=topic_id, partitions=partitions)]
    settings = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 24} | changes
    return k01.FetchRequest(topics=named if offsets else [], **settings)


def list_offsets(
    topic: str, times: Mapping[int, int], *, leader_epoch: int = -1, **changes: Any
) -> k02.ListOffsetsRequest:
    """Ask partitions of one topic for the offset of a time."""
    partitions = [
        k02.ListOffsetsPartition(
            partition_index=one, timestamp=at, current_leader_epoch=leader_epoch
        )
        for one, at in times.items()
    ]
    named = k02.ListOffsetsTopic(name=topic, partitions=partitions)
    return k02.ListOffsetsRequest(
        topics=[named], **{"replica_id": -1, "timeout_ms": 5_000} | changes
    )


def commit(
    group: str,
    topic: str,
    offsets: Mapping[int, int],
    *,
    topic_id: UUID = ZERO_UUID,
    metadata: str | None = "m",
    **changes: Any,
) -> k08.OffsetCommitRequest:
    """Commit offsets of one topic."""
    partitions = [
        k08.OffsetCommitRequestPartition(
            partition_index=one, committed_offset=offset, committed_metadata=metadata
        )
        for one, offset in offsets.items()
    ]
    named = k08.OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=partitions)
    return k08.OffsetCommitRequest(group_id=group, topics=[named], **changes)


def committed(
    group: str,
    topic: str | None,
    partitions: Sequence[int] = (0,),
    *,
    topic_id: UUID = ZERO_UUID,
    require_stable: bool = False,
    **member: Any,
) -> k09.OffsetFetchRequest:
    """Ask for committed offsets of one topic, or of all without one."""
    old = new = None
    if topic is not None:
        old = [k09.OffsetFetchRequestTopic(name=topic, partition_indexes=list(partitions))]
        new = [
            k09.OffsetFetchRequestTopics(
                name=topic, topic_id=topic_id, partition_indexes=list(partitions)
            )
        ]
    asked = k09.OffsetFetchRequestGroup(group_id=group, topics=new, **member)
    return k09.OffsetFetchRequest(
        group_id=group, topics=old, groups=[asked], require_stable=require_stable
    )
