"""DeleteTopics, key 20: delete topics."""

from uuid import UUID

from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, Struct, field


class DeleteTopicState(Struct):
    """One topic to delete, by name or by id; from version 6 on."""

    name: str | None = None
    topic_id: UUID = ZERO_UUID


class DeleteTopicsRequest(ApiMessage, key=20, versions="1-6", flexible="4+"):
    """Topics to delete, by name, or from version 6 on by id."""

    topics: list[DeleteTopicState] = field(versions="6+", default=[])
    topic_names: list[str] = field(versions="0-5", default=[])
    timeout_ms: Int32 = 0


class DeletableTopicResult(Struct):
    """Outcome for one topic."""

    name: str | None = field(nullable="6+", default="")
    topic_id: UUID = field(versions="6+", default=ZERO_UUID)
    error_code: Int16 = 0
    error_message: str | None = field(versions="5+", default=None)


class DeleteTopicsResponse(ApiMessage, key=20, versions="1-6", flexible="4+"):
    """Outcome for each topic."""

    throttle_time_ms: Int32 = 0
    responses: list[DeletableTopicResult] = []


REQUEST = DeleteTopicsRequest
RESPONSE = DeleteTopicsResponse
