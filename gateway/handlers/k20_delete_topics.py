"""DeleteTopics, key 20, versions 1-6.

Behaviour:
- Every topic asked for gets one entry in the answer, in the order of the request.
- A topic is named by name or, from version 6, by id; both or neither at once is refused for it.
- The answer leaves when the deletion is durable; the partitions' waiting fetches are told.

Version notes:
- v5 adds error messages (KIP-599), v6 topic ids (KIP-516).
"""

from collections import Counter

from gateway.context import RequestContext
from gateway.error_map import error_code_of
from gateway.wire.error_codes import ErrorCode
from gateway.wire.messages.k20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from gateway.wire.primitives import ZERO_UUID
from topics import Topic, TopicsError

KEY = 20
MIN_VERSION = 1
MAX_VERSION = 6


async def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete the topics one by one, and say of each what came of it."""
    asked = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    seen = Counter((state.name, state.topic_id) for state in asked)
    return DeleteTopicsResponse(
        responses=[
            await _delete(context, state, is_repeated=seen[state.name, state.topic_id] > 1)
            for state in asked
        ]
    )


async def _delete(
    context: RequestContext, state: DeleteTopicState, *, is_repeated: bool
) -> DeletableTopicResult:
    if is_repeated:
        return _refused(state, ErrorCode.INVALID_REQUEST, "the topic stands twice in the request")
    if (state.name is None) == (state.topic_id == ZERO_UUID):
        return _refused(
            state, ErrorCode.INVALID_REQUEST, "expected either a name or an id of the topic"
        )
    registry = context.services.registry
    topic = _find(context, state)
    if topic is None:
        unknown = (
            ErrorCode.UNKNOWN_TOPIC_ID
            if state.name is None
            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        return _refused(state, unknown, "no such topic")
    try:
        await registry.delete(topic.name)
    except TopicsError as error:
        return _refused(state, error_code_of(error), str(error))
    return DeletableTopicResult(name=topic.name, topic_id=topic.id)


def _find(context: RequestContext, state: DeleteTopicState) -> Topic | None:
    registry = context.services.registry
    return registry.get_by_id(state.topic_id) if state.name is None else registry.get(state.name)


def _refused(state: DeleteTopicState, code: ErrorCode, message: str) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=state.name, topic_id=state.topic_id, error_code=code, error_message=message
    )
