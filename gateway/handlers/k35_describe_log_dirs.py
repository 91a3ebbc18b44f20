"""DescribeLogDirs, key 35, versions 1-5.

Behaviour:
- One log folder: the data folder, or ``memory``. All topics when the list is null.
- The size of a partition is that of its entries, without the entry log's framing; there are no
  followers, so no lag, and no future replicas.
- Unknown topics and partitions are left out, as Apache Kafka does.

Version notes:
- v3 adds a top-level error, v4 the size of the disk (KIP-827), v5 cordoning (KIP-1066): never.
"""

import shutil

from gateway.context import RequestContext
from gateway.wire.messages.k35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from topics import Topic

KEY = 35
MIN_VERSION = 1
MAX_VERSION = 5


async def handle(
    context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Tell the sizes of the partitions asked for."""
    registry = context.services.registry
    wanted: list[tuple[Topic, list[int]]] = []
    if request.topics is None:
        wanted = [(topic, list(range(topic.partition_count))) for topic in registry.all()]
    else:
        for asked in request.topics:
            topic = registry.get(asked.topic)
            if topic is not None:
                known = [i for i in asked.partitions if 0 <= i < topic.partition_count]
                wanted.append((topic, known))
    path = context.services.store.path
    result = DescribeLogDirsResult(
        log_dir="memory" if path is None else str(path),
        topics=[await _sizes(topic, indexes) for topic, indexes in wanted],
    )
    if path is not None:
        space = shutil.disk_usage(path)
        result.total_bytes, result.usable_bytes = space.total, space.free
    return DescribeLogDirsResponse(results=[result])


async def _sizes(topic: Topic, indexes: list[int]) -> DescribeLogDirsTopic:
    return DescribeLogDirsTopic(
        name=topic.name,
        partitions=[
            DescribeLogDirsPartition(
                partition_index=index,
                partition_size=(await topic.open_partition(index)).size_bytes,
            )
            for index in indexes
        ],
    )
