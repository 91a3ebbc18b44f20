"""Consumer interest plan: which topics the subscriptions of a consumer group stand for.

Rule: pure; names are taken as they are, regular expressions are RE2's and match whole names, so
that no expression can take more than linear time. What does not exist is no interest yet.
Must not know: groups, assignors.
"""

from collections.abc import Iterable

from kledger.gateway.coordinator.consumer_member_state import ConsumerMember
from kledger.gateway.coordinator.consumer_messages import TopicCatalog, TopicFact
from kledger.gateway.expressions import compile_expression


class Interests:
    """The topics of every subscription, as of one state of the catalog.

    Each expression is matched once, however many members use it.
    """

    __slots__ = ("_catalog", "_matches")

    def __init__(self, catalog: TopicCatalog) -> None:
        self._catalog = catalog
        self._matches: dict[str, tuple[TopicFact, ...]] = {}

    def of(self, member: ConsumerMember) -> dict[str, TopicFact]:
        """Return the topics that a member wants, by name."""
        named = (self._catalog.find(name) for name in member.topic_names)
        found = {fact.name: fact for fact in named if fact is not None}
        if member.topic_regex:
            found.update((fact.name, fact) for fact in self._matching(member.topic_regex))
        return found

    def of_all(self, members: Iterable[ConsumerMember]) -> dict[str, TopicFact]:
        """Return the topics that somebody wants, by name."""
        found: dict[str, TopicFact] = {}
        for member in members:
            found.update(self.of(member))
        return found

    def _matching(self, text: str) -> tuple[TopicFact, ...]:
        if text not in self._matches:
            expression = compile_expression(text)
            names = [name for name in self._catalog.names() if expression.fullmatch(name)]
            facts = (self._catalog.find(name) for name in names)
            self._matches[text] = tuple(fact for fact in facts if fact is not None)
        return self._matches[text]
