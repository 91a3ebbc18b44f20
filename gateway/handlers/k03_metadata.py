"""Metadata, key 3, versions 0-13.

Behaviour:
- An empty list in version 0, and null later, requests all topics; an empty list later only the
  brokers.
- A missing topic is created, if the server and the request allow it, before the answer is sent, so
  that the answer names its leader: some clients give up on LEADER_NOT_AVAILABLE. For a client over
  its `controller_mutation_rate` no topic is created.
- A bad name is INVALID_TOPIC_EXCEPTION for its topic; the others are answered, each once. Of an id
  and a name, the id counts.
- What the client may not describe is TOPIC_AUTHORIZATION_FAILED, by name whether it exists or not,
  and is left out of a listing. A missing topic that the client may not create is so, too.
- One node: it leads and replicates everything and is the controller. No topic is internal, since
  groups and transactions live outside of topics, and Spark drops internal ones.
- A topic's part of the answer is kept encoded until the topic changes, a client's listing until
  any topic or access rule does.

Version notes:
- v4 auto-creation flag (KIP-204), v7 leader epochs (KIP-320), v8 authorized operations (KIP-430;
  v11 drops the cluster's), v10 topic ids (KIP-516), v12 topics by id alone: unknown is
  UNKNOWN_TOPIC_ID with a null name; v13 top-level error (KIP-1102), never set.
"""

from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kledger.gateway.api_errors import ApiError
from kledger.gateway.metadata.authorized_operations import OPERATIONS_NOT_REQUESTED
from kledger.gateway.metadata.response_blocks import (
    MetadataHead,
    MetadataTail,
    encode_head,
    encode_topic,
    join_parts,
)
from kledger.gateway.metadata.shown_leaders import shown_brokers, shown_leaders
from kledger.gateway.metadata.topic_blocks import TopicBlocks
from kledger.gateway.metadata.topic_descriptions import (
    describe_missing_topic,
    missing_topic_error,
    without_duplicates,
)
from kledger.gateway.request_context import RequestContext
from kledger.gateway.topic_creation import create_topics
from kledger.gateway.topic_rights import (
    find_described,
    find_requested,
    may_create,
    refusal_of,
    visible_topics,
)
from kledger.gateway.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseBroker,
)
from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.security.acl_state import ResourceType
from kledger.topics import Topic, TopicsError

if TYPE_CHECKING:
    from kledger.gateway.services import Services

KEY = 3
MIN_VERSION = 0
MAX_VERSION = 13

LISTINGS_MAX = 64
"""Listings of all topics that are kept, each of one version and client."""

FoundTopic: TypeAlias = Topic | TopicsError | ApiError


def bind(
    services: "Services",
) -> Callable[[RequestContext, MetadataRequest], bytes | Coroutine[Any, Any, bytes]]:
    """Return the handler of one server, which keeps that server's encoded topics."""
    return _MetadataHandler(services).handle


class _View(NamedTuple):
    """A request, and how its client sees leaders."""

    context: RequestContext
    request: MetadataRequest
    shown_leaders: Mapping[int, int]

    def operations(self, topic: str) -> int:
        """Return what the client may do with a topic, if it wants to know."""
        if not self.request.include_topic_authorized_operations:
            return OPERATIONS_NOT_REQUESTED
        return self.context.authorized_operations(ResourceType.TOPIC, topic)


class _MetadataHandler:
    def __init__(self, services: "Services") -> None:
        self._registry = services.registry
        self._config = services.config
        self._blocks = TopicBlocks(services.config.node_id)
        self._listings: dict[Hashable, tuple[int, list[bytes]]] = {}

    def handle(
        self, context: RequestContext, request: MetadataRequest
    ) -> bytes | Coroutine[Any, Any, bytes]:
        """Answer at once, unless topics must be created first."""
        view = _View(context, request, shown_leaders(context.services.brokers, context.peer))
        asked = request.topics
        if asked is None or (context.version == 0 and not asked):
            return self._all(view)
        found = [(one, find_described(context, one)) for one in without_duplicates(asked)]
        if self._config.auto_create_topics_enable and request.allow_auto_topic_creation:
            missing = [
                one.name
                for one, topic in found
                if topic is None and one.name is not None and one.topic_id == ZERO_UUID
            ]
            if missing:
                return self._create(view, found, missing)
        entries = [(one, topic or missing_topic_error(one.name)) for one, topic in found]
        return self._answer(view, entries)

    async def _create(
        self,
        view: _View,
        found: Sequence[tuple[MetadataRequestTopic, Topic | ApiError | None]],
        missing: list[str],
    ) -> bytes:
        """Create topics, then answer; another client may create the same ones meanwhile."""
        context = view.context
        refused = {name for name in missing if not may_create(context, name)}
        allowed = [name for name in dict.fromkeys(missing) if name not in refused]
        failed = await create_topics(context, allowed)
        entries: list[tuple[MetadataRequestTopic, FoundTopic]] = []
        for one, topic in found:
            name = one.name or ""
            answer: FoundTopic | None = topic or find_requested(context, one) or failed.get(name)
            if name in refused:
                answer = refusal_of(name)
            entries.append((one, answer or missing_topic_error(one.name)))
        return self._answer(view, entries)

    def _answer(
        self, view: _View, entries: Sequence[tuple[MetadataRequestTopic, FoundTopic]]
    ) -> bytes:
        version, topics = view.context.version, []
        for asked, found in entries:
            if isinstance(found, Topic):
                topics.append(self._block(view, found, asked))
                continue
            operations = view.operations(asked.name or "")
            missing = describe_missing_topic(asked, found, version, operations)
            topics.append(encode_topic(missing, version))
        return self._joined(view, topics)

    def _all(self, view: _View) -> bytes:
        """Answer with all topics; with the same parts again while no topic has changed.

        Consoles and clients with patterns ask for all of them every few seconds.
        """
        context, request, shown = view
        key: Hashable = context.version, request.include_topic_authorized_operations
        if (authorizer := context.services.authorizer) is not None:
            key = key, context.peer.principal, context.peer.host, authorizer.version
        key = key, frozenset(shown.items())
        epoch = self._registry.epoch
        kept = self._listings.get(key)
        if kept is None or kept[0] != epoch:
            parts = [self._block(view, topic, None) for topic in visible_topics(context)]
            if len(self._listings) >= LISTINGS_MAX:
                self._listings.clear()
            kept = self._listings[key] = epoch, parts
        return self._joined(view, kept[1])

    def _joined(self, view: _View, topics: list[bytes]) -> bytes:
        tail, context = MetadataTail(), view.context
        if view.request.include_cluster_authorized_operations:
            tail.cluster_authorized_operations = context.visible_cluster_operations()
        return join_parts(self._head(view), topics, tail, context.version)

    def _head(self, view: _View) -> bytes:
        context = view.context
        brokers = context.services.brokers
        head = MetadataHead(
            brokers=[
                MetadataResponseBroker(node_id=node_id, host=host, port=port)
                for node_id, host, port in shown_brokers(brokers, context.advertised, context.peer)
            ],
            cluster_id=self._config.cluster_id,
            controller_id=brokers.controller_id,
        )
        return encode_head(head, context.version)

    def _block(self, view: _View, topic: Topic, asked: MetadataRequestTopic | None) -> bytes:
        """Return a topic's part. It has several spellings; a client expects that of its request."""
        name, operations = topic.name, view.operations(topic.name)
        if asked is not None and asked.name and asked.topic_id == ZERO_UUID:
            name = asked.name
        return self._blocks.block(topic, name, view.context.version, operations, view.shown_leaders)
