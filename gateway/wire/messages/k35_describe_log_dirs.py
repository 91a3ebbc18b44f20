"""DescribeLogDirs, key 35: space used by partitions on disk."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Int64, Struct, field


class DescribableLogDirTopic(Struct):
    """Partitions of one topic."""

    topic: str = ""
    partitions: list[Int32] = []


class DescribeLogDirsRequest(ApiMessage, key=35, versions="1-5", flexible="2+"):
    """The requested partitions; null means all."""

    topics: list[DescribableLogDirTopic] | None = []


class DescribeLogDirsPartition(Struct):
    """The size in bytes of one partition."""

    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: bool = False


class DescribeLogDirsTopic(Struct):
    """Partitions of one topic in a folder."""

    name: str = ""
    partitions: list[DescribeLogDirsPartition] = []


class DescribeLogDirsResult(Struct):
    """One log folder; its sizes in bytes are -1 if unknown."""

    error_code: Int16 = 0
    log_dir: str = ""
    topics: list[DescribeLogDirsTopic] = []
    total_bytes: Int64 = field(versions="4+", default=-1)
    usable_bytes: Int64 = field(versions="4+", default=-1)
    is_cordoned: bool = field(versions="5+", default=False)


class DescribeLogDirsResponse(ApiMessage, key=35, versions="1-5", flexible="2+"):
    """Log folders and the partitions in them."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(versions="3+", default=0)
    results: list[DescribeLogDirsResult] = []


REQUEST = DescribeLogDirsRequest
RESPONSE = DescribeLogDirsResponse
