"""Element: a value that a subscriber has received, and the result of committing it.

Rule: plain values but for `commit`, which asks the subscriber.
Must not know: how elements are fetched.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from kledger.named_topics.model import (
    ILLEGAL_ARGUMENT,
    REJECTED,
    CommitOutcome,
)
from kledger.native.channel_position import ChannelPosition
from kledger.native.client.named_topics.subscriber_state import FetchedElement
from kledger.native.errors import IllegalArgument, IllegalState, KledgerError


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What became of one commit.

    Attributes:
        channel: where.
        position: the one that was to be committed, as the caller gave it.
        status: "committed", "already_committed", "nothing_to_commit", "unowned" (committed, though
            the subscriber does not own the channel) or "rejected".
        error: why it was rejected; None otherwise.
    """

    channel: int
    position: Any
    status: str
    error: KledgerError | None = None

    @property
    def is_success(self) -> bool:
        """Whether it was not rejected."""
        return self.status != REJECTED

    @classmethod
    def of(cls, channel: int, position: object, outcome: CommitOutcome) -> "CommitResult":
        """Return the result of what the server answers."""
        error: KledgerError | None = None
        if outcome.status == REJECTED:
            kind = IllegalArgument if outcome.error == ILLEGAL_ARGUMENT else IllegalState
            error = kind(outcome.reason)
        return cls(channel, position, outcome.status, error)


QueueCommit: TypeAlias = Callable[[int, ChannelPosition], "asyncio.Future[CommitOutcome]"]


class Element:
    """A received value with its coordinates.

    Attributes:
        value: of `deserializer` and of the converter, if there are any; else the stored bytes.
        binary_value: the stored bytes; None for a tombstone of a Kafka producer.
        channel: the number of its channel.
        timestamp_ms: when the server accepted it.
    """

    __slots__ = ("_commit", "_offset", "binary_value", "channel", "timestamp_ms", "value")

    def __init__(self, value: Any, fetched: FetchedElement, commit: QueueCommit) -> None:
        """Args: fetched: what the value was made of."""
        self.value = value
        self.channel, _, self._offset, self.timestamp_ms, self.binary_value = fetched
        self._commit = commit

    @property
    def position(self) -> ChannelPosition:
        """Its place in the channel; made when asked for, as few elements need it."""
        return ChannelPosition(self.channel, self._offset)

    def __repr__(self) -> str:
        return f"Element({self.position}, {self.value!r})"

    async def commit(self) -> CommitResult:
        """Commit this element and all before it in its channel; see `Subscriber.commit`."""
        position = self.position
        return CommitResult.of(self.channel, position, await self._commit(self.channel, position))
