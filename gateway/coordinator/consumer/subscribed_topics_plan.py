"""Consumer interest plan: which topics the subscriptions of a consumer group stand for.

Rule: pure; names are taken as they are, regular expressions are RE2's and match whole names, so
that no expression can take more than linear time. What does not exist is no interest yet.
Must not know: groups, assignors.
"""

from collections.abc import Iterable

from kledger.gateway.coordinator.consumer.consumer_member_state import ConsumerMember
from kledger.gateway.coordinator.consumer_messages import TopicCatalog, TopicMetadata
from kledger.gateway.regex import compile_regex


class SubscribedTopics:
    """The topics of every subscription, as of one state of the catalog.

    Each expression is matched once, however many members use it.
    """

    __slots__ = ("_catalog", "_matches")

    def __init__(self, catalog: TopicCatalog) -> None:
        self._catalog = catalog
        self._matches: dict[str, tuple[TopicMetadata, ...]] = {}

    def of(self, member: ConsumerMember) -> dict[str, TopicMetadata]:
        """Return the topics that a member wants, by name."""
        named = (self._catalog.find(name) for name in member.topic_names)
        found = {
            topic_metadata.name: topic_metadata
            for topic_metadata in named
            if topic_metadata is not None
        }
        if member.topic_regex:
            found.update(
                (topic_metadata.name, topic_metadata)
                for topic_metadata in self._matching(member.topic_regex)
            )
        return found

    def of_all(self, members: Iterable[ConsumerMember]) -> dict[str, TopicMetadata]:
        """Return the topics that somebody wants, by name."""
        found: dict[str, TopicMetadata] = {}
        for member in members:
            found.update(self.of(member))
        return found

    def _matching(self, text: str) -> tuple[TopicMetadata, ...]:
        if text not in self._matches:
            expression = compile_regex(text)
            names = [name for name in self._catalog.names() if expression.fullmatch(name)]
            facts = (self._catalog.find(name) for name in names)
            self._matches[text] = tuple(
                topic_metadata for topic_metadata in facts if topic_metadata is not None
            )
        return self._matches[text]
