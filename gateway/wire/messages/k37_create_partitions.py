"""CreatePartitions, key 37: increase the number of partitions."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Struct


class CreatePartitionsAssignment(Struct):
    """The brokers to place one new partition on."""

    broker_ids: list[Int32] = []


class CreatePartitionsTopic(Struct):
    """A topic and its new number of partitions in all."""

    name: str = ""
    count: Int32 = 0
    assignments: list[CreatePartitionsAssignment] | None = []


class CreatePartitionsRequest(ApiMessage, key=37, versions="0-3", flexible="2+"):
    """New partition count of each topic."""

    topics: list[CreatePartitionsTopic] = []
    timeout_ms: Int32 = 0
    validate_only: bool = False


class CreatePartitionsTopicResult(Struct):
    """Outcome for one topic."""

    name: str = ""
    error_code: Int16 = 0
    error_message: str | None = None


class CreatePartitionsResponse(ApiMessage, key=37, versions="0-3", flexible="2+"):
    """Outcome for each topic."""

    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = []


REQUEST = CreatePartitionsRequest
RESPONSE = CreatePartitionsResponse
