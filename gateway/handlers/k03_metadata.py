"""Metadata, key 3, versions 0-13.

Behaviour:
- An empty list in version 0, and null later, requests all topics; an empty list later only the
  brokers.
- A missing topic is created, if the server and the request allow it, before the answer is sent, so
  that the answer names its leader: some clients give up on LEADER_NOT_AVAILABLE. For a client over
  its `controller_mutation_rate` no topic is created.
- A bad name is INVALID_TOPIC_EXCEPTION for its topic; the others are answered, each once. Of an id
  and a name, the id counts.
- One node: it leads and replicates everything and is the controller. No topic is internal, since
  groups and transactions live outside of topics, and Spark drops internal ones.
- A topic's part of the answer is kept encoded until the topic changes.

Version notes:
- v4 auto-creation flag (KIP-204), v7 leader epochs (KIP-320), v8 authorized operations (KIP-430;
  v11 drops the cluster's), v10 topic ids (KIP-516), v12 topics by id alone: unknown is
  UNKNOWN_TOPIC_ID with a null name; v13 top-level error (KIP-1102), never set.
"""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kledger.gateway.metadata.authorized_operations import CLUSTER_OPERATIONS
from kledger.gateway.metadata.response_blocks import (
    MetadataHead,
    MetadataTail,
    encode_head,
    encode_topic,
    join_parts,
)
from kledger.gateway.metadata.topic_descriptions import (
    describe_missing_topic,
    describe_topic,
    missing_topic_error,
    without_duplicates,
)
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseBroker,
)
from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.topics import Topic, TopicsError

if TYPE_CHECKING:
    from kledger.gateway.services import Services

KEY = 3
MIN_VERSION = 0
MAX_VERSION = 13

BLOCKS_MAX = 50_000
"""Encoded topics that are kept; at the limit all are dropped, and encoded again on request."""


def bind(
    services: "Services",
) -> Callable[[RequestContext, MetadataRequest], bytes | Coroutine[Any, Any, bytes]]:
    """Return the handler of one server, which keeps that server's encoded topics."""
    return _MetadataHandler(services).handle


class _MetadataHandler:
    def __init__(self, services: "Services") -> None:
        self._registry = services.registry
        self._config = services.config
        self._blocks: dict[tuple[str, int, bool], tuple[Topic, int, bytes]] = {}
        self._listing: tuple[tuple[int, int, bool], list[bytes]] | None = None

    def handle(
        self, context: RequestContext, request: MetadataRequest
    ) -> bytes | Coroutine[Any, Any, bytes]:
        """Answer at once, unless topics must be created first."""
        asked = request.topics
        if asked is None or (context.version == 0 and not asked):
            return self._joined(context.version, request, self._all(context.version, request))
        found = [(one, self._find(one)) for one in without_duplicates(asked)]
        if self._config.auto_create_topics_enable and request.allow_auto_topic_creation:
            missing = [
                one.name
                for one, topic in found
                if topic is None and one.name is not None and one.topic_id == ZERO_UUID
            ]
            if missing:
                return self._create(context, request, missing)
        return self._answer(
            context.version,
            request,
            [(one, topic or missing_topic_error(one.name)) for one, topic in found],
        )

    def _find(self, asked: MetadataRequestTopic) -> Topic | None:
        if asked.topic_id != ZERO_UUID or asked.name is None:
            return self._registry.get_by_id(asked.topic_id)
        return self._registry.get(asked.name)

    async def _create(
        self, context: RequestContext, request: MetadataRequest, missing: list[str]
    ) -> bytes:
        """Create topics, then answer; another client may create the same ones meanwhile."""
        failed: dict[str, TopicsError] = {}
        charge = partial(
            context.services.quotas.charge_mutations,
            context.peer.principal,
            context.client_id or "",
        )
        for name in dict.fromkeys(missing):
            if charge(0):
                break
            try:
                await self._registry.create(
                    name,
                    partitions=self._config.num_partitions,
                    configs={},
                    replication=self._config.default_replication_factor,
                )
                charge(self._config.num_partitions)
            except TopicsError as error:
                failed[name] = error
        entries = [
            (one, self._find(one) or failed.get(one.name or "") or missing_topic_error(one.name))
            for one in without_duplicates(request.topics or ())
        ]
        return self._answer(context.version, request, entries)

    def _answer(
        self,
        version: int,
        request: MetadataRequest,
        entries: "Sequence[tuple[MetadataRequestTopic, Topic | TopicsError]]",
    ) -> bytes:
        with_operations = request.include_topic_authorized_operations
        topics = []
        for asked, found in entries:
            if isinstance(found, TopicsError):
                topics.append(encode_topic(describe_missing_topic(asked, found, version), version))
            else:
                topics.append(self._block(found, asked, version, with_operations))
        return self._joined(version, request, topics)

    def _all(self, version: int, request: MetadataRequest) -> list[bytes]:
        """Return the parts of all topics; again the same ones while no topic has changed.

        Consoles and clients with patterns ask for all of them every few seconds.
        """
        with_operations = request.include_topic_authorized_operations
        key = (self._registry.epoch, version, with_operations)
        if self._listing is None or self._listing[0] != key:
            topics = self._registry.all()
            parts = [self._block(one, None, version, with_operations) for one in topics]
            self._listing = key, parts
        return self._listing[1]

    def _joined(self, version: int, request: MetadataRequest, topics: list[bytes]) -> bytes:
        tail = MetadataTail()
        if request.include_cluster_authorized_operations:
            tail.cluster_authorized_operations = CLUSTER_OPERATIONS
        return join_parts(self._head(version), topics, tail, version)

    def _head(self, version: int) -> bytes:
        config = self._config
        broker = MetadataResponseBroker(
            node_id=config.node_id, host=config.advertised_host, port=config.advertised_port
        )
        head = MetadataHead(
            brokers=[broker], cluster_id=config.cluster_id, controller_id=config.node_id
        )
        return encode_head(head, version)

    def _block(
        self, topic: Topic, asked: MetadataRequestTopic | None, version: int, with_operations: bool
    ) -> bytes:
        """Return a topic's part, from the cache unless the topic has changed.

        A topic has several spellings; a client expects the one of its request.
        """
        name = topic.name
        if asked is not None and asked.name and asked.topic_id == ZERO_UUID:
            name = asked.name
        key = (name, version, with_operations)
        kept = self._blocks.get(key)
        if kept is not None and kept[0] is topic and kept[1] == topic.epoch:
            return kept[2]
        description = describe_topic(topic, name, self._config.node_id, with_operations)
        block = encode_topic(description, version)
        if len(self._blocks) >= BLOCKS_MAX:
            self._blocks.clear()
        self._blocks[key] = (topic, topic.epoch, block)
        return block
