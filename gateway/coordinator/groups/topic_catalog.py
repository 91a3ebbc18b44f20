"""Topic catalog: the topics of this node as groups of the consumer protocol see them.

Rule: a view of the registry and the access rules, never a copy.
Must not know: groups.
"""

from collections.abc import Iterator

from kledger.gateway.coordinator.consumer_messages import TopicMetadata
from kledger.security.acl_state import Operation, ResourceType
from kledger.security.authorizer import Authorizer
from kledger.security.principal import Principal
from kledger.topics import TopicRegistry


class RegistryCatalog:
    """The registry as the `TopicCatalog` that the groups' states read."""

    def __init__(self, registry: TopicRegistry, authorizer: Authorizer | None) -> None:
        """Show the topics; without an authorizer every client may describe all of them."""
        self._registry = registry
        self._authorizer = authorizer

    @property
    def epoch(self) -> int:
        """Return the number of the registry's last change."""
        return self._registry.epoch

    @property
    def rights_version(self) -> int:
        """Return the version of the access rules; 0 without an authorizer."""
        return 0 if self._authorizer is None else self._authorizer.version + 1

    def may_describe(self, principal: Principal, host: str, name: str) -> bool:
        """Return whether a client may describe the topic that has this name."""
        return self._authorizer is None or self._authorizer.authorize(
            principal, host, Operation.DESCRIBE, ResourceType.TOPIC, name
        )

    def find(self, name: str) -> TopicMetadata | None:
        """Return a topic by any spelling of its name."""
        topic = self._registry.get(name)
        return None if topic is None else TopicMetadata(topic.name, topic.id, topic.partition_count)

    def names(self) -> Iterator[str]:
        """Return the names of all topics."""
        return (topic.name for topic in self._registry.all())
