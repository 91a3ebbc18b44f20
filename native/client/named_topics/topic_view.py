"""What publishers and subscribers see of the named topic that made them.

Must not know: how they are made.
"""

from typing import Protocol

from kledger.named_topics.model import NamedTopicOptions


class TopicOfChannels(Protocol):
    """A `NamedTopic`."""

    @property
    def name(self) -> str:
        """The short name of the topic."""
        ...

    @property
    def channel_count(self) -> int:
        """How many channels it had when it was opened."""
        ...

    @property
    def options(self) -> NamedTopicOptions:
        """What it is."""
        ...
