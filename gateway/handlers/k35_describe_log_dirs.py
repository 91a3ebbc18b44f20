"""DescribeLogDirs, key 35, versions 1-5.

Behaviour:
- One log folder: the data folder, or ``memory``. All topics when the list is null.
- The size of a partition is that of its entries, without the entry log's framing; there are no
  followers, so no lag, and no future replicas.
- Closed partitions are not opened: their rows have the size.
- Unknown topics and partitions are left out, as Apache Kafka does.
- When the storage cannot be read, the folder carries the error and no topics.

Version notes:
- v3 adds a top-level error, v4 the size of the disk (KIP-827), v5 cordoning (KIP-1066): never.
"""

import shutil

from kledger.gateway.api_errors import error_code_of
from kledger.gateway.metadata.partition_lookup import LogOrOpenError, open_partitions
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.messages.k35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kledger.topics import Topic, TopicsError, UnknownPartition
from kledger.topics.stored_sizes import stored_sizes

KEY = 35
MIN_VERSION = 1
MAX_VERSION = 5


async def handle(
    context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Answer with the sizes of the partitions of the request."""
    path = context.services.store.path
    result = DescribeLogDirsResult(log_dir=context.services.log_dir)
    try:
        result.topics = await _all_sizes(context, request)
    except TopicsError as error:
        result.error_code = error_code_of(error)
    if path is not None:
        space = shutil.disk_usage(path)
        result.total_bytes, result.usable_bytes = space.total, space.free
    return DescribeLogDirsResponse(results=[result])


async def _all_sizes(
    context: RequestContext, request: DescribeLogDirsRequest
) -> list[DescribeLogDirsTopic]:
    stored = set(context.services.store.managed_ledger_names())
    wanted = _wanted(context, request)
    closed = [
        (topic, index)
        for topic, indexes in wanted.items()
        for index in indexes
        if not topic.is_open(index) and topic.ledger_name(index) in stored
    ]
    known = await stored_sizes(context.services.store, closed)
    logs = await open_partitions(each for each in closed if each not in known)
    # To be asked is no use of those that are open: they are closed when nothing else is.
    logs |= {(topic, log.index): log for topic in wanted for log in topic.open_partitions()}
    topics = []
    for topic, indexes in wanted.items():
        sizes = [
            DescribeLogDirsPartition(partition_index=index, partition_size=size)
            for index in sorted(indexes)
            if (size := _size(topic, logs.get((topic, index)), known.get((topic, index), 0)))
            is not None
        ]
        if sizes:
            topics.append(DescribeLogDirsTopic(name=topic.name, partitions=sizes))
    return topics


def _wanted(context: RequestContext, request: DescribeLogDirsRequest) -> dict[Topic, set[int]]:
    """Return those partitions asked for that exist."""
    registry = context.services.registry
    if request.topics is None:
        return {topic: set(topic.led_partitions()) for topic in registry.all()}
    wanted: dict[Topic, set[int]] = {}
    for asked in request.topics:
        topic = registry.get(asked.topic)
        if topic is not None:
            count = topic.partition_count
            wanted.setdefault(topic, set()).update(
                index for index in asked.partitions if 0 <= index < count and topic.leads(index)
            )
    return wanted


def _size(topic: Topic, log: LogOrOpenError | None, stored_size: int) -> int | None:
    """Return the size of a partition, or None when it was deleted meanwhile.

    The size of a closed one comes from its rows.
    """
    if topic.is_deleted or isinstance(log, UnknownPartition):
        return None
    if isinstance(log, TopicsError):
        raise log
    return stored_size if log is None else log.size_bytes
