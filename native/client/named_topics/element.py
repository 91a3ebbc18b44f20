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
        position: its place in the channel.
        timestamp_ms: when the server accepted it.
    """

    __slots__ = ("_commit", "binary_value", "channel", "position", "timestamp_ms", "value")

    def __init__(
        self,
        *,
        value: Any,
        binary_value: bytes | None,
        position: ChannelPosition,
        timestamp_ms: int,
        commit: QueueCommit,
    ) -> None:
        self.value = value
        self.binary_value = binary_value
        self.channel = position.channel
        self.position = position
        self.timestamp_ms = timestamp_ms
        self._commit = commit

    def __repr__(self) -> str:
        return f"Element({self.position}, {self.value!r})"

    async def commit(self) -> CommitResult:
        """Commit this element and all before it in its channel; see `Subscriber.commit`."""
        outcome = await self._commit(self.channel, self.position)
        return CommitResult.of(self.channel, self.position, outcome)
