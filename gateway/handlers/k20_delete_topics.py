"""DeleteTopics, key 20, versions 1-6.

Behaviour:
- Every topic gets one entry, in the order of the request; a repeated topic, also once by name and
  once by id, is refused.
- A topic has a name or, from version 6, an id in the request; both or neither is refused.
- A client that may not delete the cluster's topics must be allowed to delete each topic; the
  refusal of an id has the name only if the client may describe the topic.
- All topics that may be deleted are deleted in one step. The answer is sent when that is durable;
  waiting fetches of their partitions are answered, the offsets that groups committed are deleted
  too, and the records are deleted in the background.
- Deleted partitions count against the client's `controller_mutation_rate`.

Version notes:
- v5 adds error messages and refuses requests over the quota (KIP-599), v6 topic ids (KIP-516).
"""

from collections.abc import Callable, Hashable
from typing import TypeAlias

from kledger.gateway.api_errors import ApiError, code_and_message_of
from kledger.gateway.quotas.mutation_quota import MutationQuota
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.security.acl_state import Operation, ResourceType
from kledger.topics import Topic, TopicsError

KEY = 20
MIN_VERSION = 1
MAX_VERSION = 6

STRICT_QUOTA_SINCE = 5

Outcome: TypeAlias = Callable[[DeleteTopicState, Topic], DeletableTopicResult]


async def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete the topics that may be deleted together, and answer for each."""
    asked = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    same: dict[Hashable, list[DeleteTopicState]] = {}
    for state in asked:
        topic = _find(context, state)
        # A name and an id of one topic are one, unless the client may not know that.
        is_known = topic is not None and not _refusal(context, topic.name, is_audited=False)
        key: Hashable = topic.id if topic and is_known else (state.name, state.topic_id)
        same.setdefault(key, []).append(state)
    quota = MutationQuota(
        context.services.quotas,
        context.peer.principal,
        context.client_id,
        is_strict=context.version >= STRICT_QUOTA_SINCE,
    )
    found = [
        (states[0], _check(context, states[0], quota) if len(states) == 1 else _repeated(states))
        for states in same.values()
    ]
    context.wait_ms = quota.wait_ms
    outcome = await _delete(context, [each for _, each in found if isinstance(each, Topic)])
    return DeleteTopicsResponse(
        responses=[
            outcome(state, each) if isinstance(each, Topic) else each for state, each in found
        ]
    )


async def _delete(context: RequestContext, topics: list[Topic]) -> Outcome:
    """Delete topics in one step; return a function that makes the entry of each."""
    services = context.services
    try:
        deleted = {topic.id for topic in await services.registry.delete_many(topics)}
    except TopicsError as error:
        refusal = code_and_message_of(error)
        return lambda state, _: _refused(state, *refusal)
    for topic in topics:
        if topic.id in deleted:
            context.audit("deleted topic", topic=topic.name)
    await services.groups.offsets.forget_topics(deleted)
    return lambda state, topic: (
        DeletableTopicResult(name=topic.name, topic_id=topic.id)
        if topic.id in deleted
        else _unknown(state)
    )


def _check(
    context: RequestContext, state: DeleteTopicState, quota: MutationQuota
) -> Topic | DeletableTopicResult:
    """Return a topic that may be deleted, or why it may not."""
    if (state.name is None) == (state.topic_id == ZERO_UUID):
        message = (
            "Neither topic name nor id were specified."
            if state.name is None
            else "You may not specify both topic name and topic id."
        )
        return _refused(state, ErrorCode.INVALID_REQUEST, message)
    topic = _find(context, state)
    if topic is None and state.name is None:
        return _unknown(state)
    name = (state.name or "") if topic is None else topic.name
    if refused := _refusal(context, name):
        may_describe = context.authorize(
            Operation.DESCRIBE, ResourceType.TOPIC, name, is_audited=False
        )
        if topic is None and may_describe:
            return _unknown(state)
        answer = _refused(state, refused, "Authorization failed.")
        if may_describe:
            answer.name = name
        return answer
    if topic is None:
        return _unknown(state)
    try:
        quota.charge(topic.partition_count)
    except ApiError as error:
        return _refused(state, *code_and_message_of(error))
    return topic


def _refusal(context: RequestContext, name: str, *, is_audited: bool = True) -> ErrorCode:
    may_delete = context.authorize(
        Operation.DELETE, ResourceType.CLUSTER, is_audited=False
    ) or context.authorize(Operation.DELETE, ResourceType.TOPIC, name, is_audited=is_audited)
    return ErrorCode.NONE if may_delete else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _find(context: RequestContext, state: DeleteTopicState) -> Topic | None:
    registry = context.services.registry
    return registry.get_by_id(state.topic_id) if state.name is None else registry.get(state.name)


def _unknown(state: DeleteTopicState) -> DeletableTopicResult:
    if state.name is None:
        message = "This server does not host this topic ID: there is no such topic."
        return _refused(state, ErrorCode.UNKNOWN_TOPIC_ID, message)
    message = (
        f"This server does not host this topic-partition: the topic {state.name!r} does not exist."
    )
    return _refused(state, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)


def _repeated(states: list[DeleteTopicState]) -> DeletableTopicResult:
    """Refuse one topic under all the names and ids it was asked for by."""
    merged = DeleteTopicState(
        name=next((state.name for state in states if state.name is not None), None),
        topic_id=next((each.topic_id for each in states if each.topic_id != ZERO_UUID), ZERO_UUID),
    )
    message = f"Duplicate topic name: expected once in the request, got {len(states)} times"
    return _refused(merged, ErrorCode.INVALID_REQUEST, message)


def _refused(state: DeleteTopicState, code: ErrorCode, message: str) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=state.name, topic_id=state.topic_id, error_code=code, error_message=message
    )
