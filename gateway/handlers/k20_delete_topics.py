"""DeleteTopics, key 20, versions 1-6.

Behaviour:
- Every topic asked for gets one entry in the answer, in the order of the request; one that is
  asked for twice, be it once by name and once by id, is refused.
- A topic is named by name or, from version 6, by id; both or neither at once is refused for it.
- The answer leaves when the deletion is durable; the partitions' waiting fetches are told, and the
  offsets that groups committed for it go with it.
- Partitions that go count against the client's `controller_mutation_rate`.

Version notes:
- v5 adds error messages and refuses what is over the quota (KIP-599), v6 topic ids (KIP-516).
"""

from collections.abc import Hashable

from gateway.context import RequestContext
from gateway.mutation_quota import MutationQuota
from gateway.refusals import Refused, refusal_of
from gateway.wire.error_codes import ErrorCode
from gateway.wire.messages.k20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from gateway.wire.primitives import ZERO_UUID
from topics import Topic, TopicsError, UnknownTopic

KEY = 20
MIN_VERSION = 1
MAX_VERSION = 6

STRICT_QUOTA_SINCE = 5


async def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete the topics one by one, and say of each what came of it."""
    asked = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    same: dict[Hashable, list[DeleteTopicState]] = {}
    for state in asked:
        topic = _find(context, state)
        key: Hashable = (state.name, state.topic_id) if topic is None else topic.id
        same.setdefault(key, []).append(state)
    quota = MutationQuota(context, strict_since=STRICT_QUOTA_SINCE)
    return DeleteTopicsResponse(
        responses=[
            await _delete(context, states[0], quota) if len(states) == 1 else _repeated(states)
            for states in same.values()
        ]
    )


async def _delete(
    context: RequestContext, state: DeleteTopicState, quota: MutationQuota
) -> DeletableTopicResult:
    if (state.name is None) == (state.topic_id == ZERO_UUID):
        return _refused(
            state, ErrorCode.INVALID_REQUEST, "expected either a name or an id of the topic"
        )
    topic = _find(context, state)
    if topic is None:
        return _unknown(state)
    try:
        quota.charge(topic.partition_count)
        await context.services.registry.delete(topic.name, topic_id=topic.id)
    except UnknownTopic:
        return _unknown(state)
    except (Refused, TopicsError) as error:
        return _refused(state, *refusal_of(error))
    await context.services.groups.offsets.forget_topic(topic.id)
    return DeletableTopicResult(name=topic.name, topic_id=topic.id)


def _find(context: RequestContext, state: DeleteTopicState) -> Topic | None:
    registry = context.services.registry
    return registry.get_by_id(state.topic_id) if state.name is None else registry.get(state.name)


def _unknown(state: DeleteTopicState) -> DeletableTopicResult:
    by_id = state.name is None
    code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _refused(state, code, "no such topic")


def _repeated(states: list[DeleteTopicState]) -> DeletableTopicResult:
    """Refuse one topic under all the names and ids it was asked for by."""
    merged = DeleteTopicState(
        name=next((state.name for state in states if state.name is not None), None),
        topic_id=next((each.topic_id for each in states if each.topic_id != ZERO_UUID), ZERO_UUID),
    )
    message = f"expected once in the request, got {len(states)} times"
    return _refused(merged, ErrorCode.INVALID_REQUEST, message)


def _refused(state: DeleteTopicState, code: ErrorCode, message: str) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=state.name, topic_id=state.topic_id, error_code=code, error_message=message
    )
