"""Consumer interest plan: which topics the subscriptions of a consumer group stand for.

Rule: pure; names are taken as they are, regular expressions are RE2's and match whole names, so
that no expression can take more than linear time. What does not exist is no interest yet.
Must not know: groups, assignors.
"""

from collections.abc import Iterable
from typing import Any, Protocol

from gateway.coordinator.consumer_member_state import ConsumerMember
from gateway.coordinator.consumer_messages import TopicCatalog, TopicFact


class _Expression(Protocol):
    """A compiled expression."""

    def fullmatch(self, text: str) -> object | None:
        """Return something if all of the text matches."""
        ...


class InvalidRegex(ValueError):
    """The text is not a regular expression of RE2."""


def check_regex(text: str) -> None:
    """Make sure that an expression can be used.

    Raises:
        InvalidRegex: with what is wrong, in RE2's words.
    """
    _compiled(text)


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
            expression = _compiled(text)
            names = [name for name in self._catalog.names() if expression.fullmatch(name)]
            facts = (self._catalog.find(name) for name in names)
            self._matches[text] = tuple(fact for fact in facts if fact is not None)
        return self._matches[text]


def _compiled(text: str) -> _Expression:
    # Late, because it takes longer than the rest of the room, and few groups need it.
    import re2  # noqa: PLC0415

    options = re2.Options()
    options.log_errors = False
    try:
        expression: _Expression = re2.compile(text, options=options)
    except re2.error as error:
        raise InvalidRegex(_words(error)) from None
    return expression


def _words(error: Any) -> str:
    """Return what RE2 says, which the library hands on as bytes."""
    said = error.args[0] if error.args else b""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)
