"""Topic blocks: the parts of Metadata responses that describe one topic each, kept encoded.

Rule: a block is kept until its topic changes. Clients with different rights have different blocks,
as a block shows the operations that its client may perform, and other leaders while brokers move
(`shown_leaders`).
Must not know: requests, access rules.
"""

from collections.abc import Hashable, Mapping

from kledger.gateway.metadata.response_blocks import encode_topic
from kledger.gateway.metadata.topic_descriptions import describe_topic
from kledger.topics import Topic

BLOCKS_MAX = 50_000
"""Encoded topics that are kept; at the limit all are dropped, and encoded again on request."""


class TopicBlocks:
    """The blocks of one server."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._blocks: dict[Hashable, tuple[Topic, int, bytes]] = {}

    def block(
        self,
        topic: Topic,
        name: str,
        version: int,
        operations: int,
        shown_leaders: Mapping[int, int],
    ) -> bytes:
        """Return a topic's part, from the cache unless the topic has changed.

        Args:
            topic: what is described.
            name: the spelling that the client expects.
            version: of Metadata.
            operations: the bit field that is shown.
            shown_leaders: to this client.
        """
        key = name, version, operations, frozenset(shown_leaders.items())
        kept = self._blocks.get(key)
        if kept is not None and kept[0] is topic and kept[1] == topic.epoch:
            return kept[2]
        described = describe_topic(topic, name, self._node_id, operations, shown_leaders)
        block = encode_topic(described, version)
        if len(self._blocks) >= BLOCKS_MAX:
            self._blocks.clear()
        self._blocks[key] = (topic, topic.epoch, block)
        return block
