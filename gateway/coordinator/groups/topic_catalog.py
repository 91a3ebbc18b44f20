"""Topic catalog: the topics of this node as groups of the consumer protocol see them.

Rule: a view of the registry, never a copy.
Must not know: groups.
"""

from collections.abc import Iterator

from kledger.gateway.coordinator.consumer_messages import TopicMetadata
from kledger.topics import TopicRegistry


class RegistryCatalog:
    """The registry as the `TopicCatalog` that the groups' states read."""

    def __init__(self, registry: TopicRegistry) -> None:
        self._registry = registry

    @property
    def epoch(self) -> int:
        """Return the number of the registry's last change."""
        return self._registry.epoch

    def find(self, name: str) -> TopicMetadata | None:
        """Return a topic by any spelling of its name."""
        topic = self._registry.get(name)
        return None if topic is None else TopicMetadata(topic.name, topic.id, topic.partition_count)

    def names(self) -> Iterator[str]:
        """Return the names of all topics."""
        return (topic.name for topic in self._registry.all())
