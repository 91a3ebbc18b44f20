"""Topic rights: which of the topics that a Metadata request names the client may see and create.

Rule: a response does not reveal whether a topic exists that the client may not describe.
Must not know: how topics are described or created.

Source: Apache Kafka's KafkaApis.handleTopicMetadataRequest.
"""

from kledger.gateway.api_errors import ApiError
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k03_metadata import MetadataRequestTopic
from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.security.acl_state import Operation, ResourceType
from kledger.topics import Topic


def find_requested(context: RequestContext, asked: MetadataRequestTopic) -> Topic | None:
    """Return the topic that a request names; of an id and a name, the id counts."""
    registry = context.services.registry
    if asked.topic_id != ZERO_UUID or asked.name is None:
        return registry.get_by_id(asked.topic_id)
    return registry.get(asked.name)


def find_described(context: RequestContext, asked: MetadataRequestTopic) -> Topic | ApiError | None:
    """Return a topic that the client may describe; the refusal; None if there is no topic."""
    topic = find_requested(context, asked)
    if topic is None and (asked.topic_id != ZERO_UUID or asked.name is None):
        return None
    name = topic.name if topic is not None else asked.name or ""
    may_see = context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name)
    return topic if may_see else refusal_of(name)


def visible_topics(context: RequestContext) -> list[Topic]:
    """Return all topics that the client may describe, by name."""
    topics = context.services.registry.all()
    if context.services.authorizer is None:
        return list(topics)
    return [
        topic
        for topic in topics
        if context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic.name, is_audited=False)
    ]


def may_create(context: RequestContext, name: str) -> bool:
    """Return whether the client may create a topic: any in the cluster, or this one."""
    return context.authorize(
        Operation.CREATE, ResourceType.CLUSTER, is_audited=False
    ) or context.authorize(Operation.CREATE, ResourceType.TOPIC, name)


def refusal_of(name: str) -> ApiError:
    """Return the error of a topic that the client may not see or create."""
    return ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"not authorized for topic {name!r}")
