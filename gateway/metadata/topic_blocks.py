"""Topic blocks: the parts of Metadata responses that describe one topic each, kept encoded.

Rule: a block is kept until its topic changes. Clients with different rights have different blocks,
as a block shows the operations that its client may perform. Partitions of a broker that seems to be
lost have no leader until it was taken over: clients request metadata again and again then, instead
of connecting to the old address, and waiting there for another request timeout.
Must not know: requests, access rules.
"""

from typing import TYPE_CHECKING

from kledger.gateway.metadata.response_blocks import encode_topic
from kledger.gateway.metadata.topic_descriptions import describe_topic
from kledger.topics import Topic

if TYPE_CHECKING:
    from kledger.gateway.brokers import Brokers

BLOCKS_MAX = 50_000
"""Encoded topics that are kept; at the limit all are dropped, and encoded again on request."""


class TopicBlocks:
    """The blocks of one server."""

    def __init__(self, node_id: int, brokers: "Brokers") -> None:
        self._node_id = node_id
        self._brokers = brokers
        self._blocks: dict[tuple[str, int, int], tuple[Topic, int, bytes]] = {}

    def block(self, topic: Topic, name: str, version: int, operations: int) -> bytes:
        """Return a topic's part, from the cache unless the topic has changed or a broker is lost.

        Args:
            topic: what is described.
            name: the spelling that the client expects.
            version: of Metadata.
            operations: the bit field that is shown.
        """
        if silent_ids := self._brokers.silent_ids:
            described = describe_topic(topic, name, self._node_id, operations, silent_ids)
            return encode_topic(described, version)
        key = (name, version, operations)
        kept = self._blocks.get(key)
        if kept is not None and kept[0] is topic and kept[1] == topic.epoch:
            return kept[2]
        block = encode_topic(describe_topic(topic, name, self._node_id, operations), version)
        if len(self._blocks) >= BLOCKS_MAX:
            self._blocks.clear()
        self._blocks[key] = (topic, topic.epoch, block)
        return block
