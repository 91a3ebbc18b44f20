"""TopicLookup: topics by the bytes that stand for them on the wire.

Rule: what was found once is kept until anything changes in the registry; a hot request then costs
one look into a dictionary, and no name is decoded twice.
Must not know: requests.
"""

import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kledger.topics import Topic, TopicRegistry


class TopicLookup:
    """The registry, asked with names in UTF-8 or with the 16 bytes of an id."""

    __slots__ = ("_by_id", "_by_name", "_epoch", "_registry")

    def __init__(self, registry: "TopicRegistry") -> None:
        self._registry = registry
        self._epoch = registry.epoch
        self._by_name: dict[bytes, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}

    def by_name(self, name: bytes) -> "Topic | None":
        """Return the topic of that name, or None."""
        if self._epoch != self._registry.epoch:
            self._forget()
        topic = self._by_name.get(name)
        if topic is None:
            topic = self._registry.get(name.decode("utf-8", "replace"))
            if topic is not None:
                self._by_name[name] = topic
        return topic

    def by_id(self, topic_id: bytes) -> "Topic | None":
        """Return the topic with that id, or None."""
        if self._epoch != self._registry.epoch:
            self._forget()
        topic = self._by_id.get(topic_id)
        if topic is None:
            topic = self._registry.get_by_id(uuid.UUID(bytes=topic_id))
            if topic is not None:
                self._by_id[topic_id] = topic
        return topic

    def _forget(self) -> None:
        self._epoch = self._registry.epoch
        self._by_name.clear()
        self._by_id.clear()
