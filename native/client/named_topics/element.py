"""Element: a value that a subscriber has received, and the result of committing it.

Rule: plain values but for `commit`, which asks the subscriber.
Must not know: how elements are fetched.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from kledger.named_topics.model import (
    ILLEGAL_ARGUMENT,
    REJECTED,
    CommitOutcome,
    ElementFailure,
)
from kledger.native.channel_position import ChannelPosition
from kledger.native.errors import (
    FunctionFailed,
    IllegalArgument,
    IllegalState,
    KledgerError,
)


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


QueueCommit: TypeAlias = Callable[[int, ChannelPosition], Awaitable[CommitOutcome]]
OVERHEAD_BYTES = 200
"""What an element takes in memory beside its value."""


class Element:
    """A received value with its coordinates; the same object is pre-fetched and handed out.

    Attributes:
        value: of `deserializer` and of the converter, if there are any; else the stored bytes.
        binary_value: the stored bytes; None for a tombstone of a Kafka producer.
        channel: the number of its channel.
        offset: its Kafka offset in the partition that is the channel.
        timestamp_ms: when the server accepted it.
        generation: of its channel when it was fetched; for its subscriber.
        size: bytes in memory.
    """

    __slots__ = (
        "_commit", "binary_value", "channel", "generation", "offset", "size", "timestamp_ms",
        "value",
    )  # fmt: skip

    def __init__(  # noqa: PLR0917 - one call for each element, and keywords double its cost
        self,
        channel: int,
        generation: int,
        offset: int,
        timestamp_ms: int,
        data: bytes | None,
        commit: QueueCommit,
    ) -> None:
        """Args: data: as it is stored; commit: of its subscriber."""
        self.channel = channel
        self.generation = generation
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.value: Any = data
        self.binary_value = data
        self.size = OVERHEAD_BYTES + (0 if data is None else len(data))
        self._commit = commit

    @property
    def position(self) -> ChannelPosition:
        """Its position in the channel; made when requested, as few elements need it."""
        return ChannelPosition(self.channel, self.offset)

    def __repr__(self) -> str:
        return f"Element({self.position}, {self.value!r})"

    async def commit(self) -> CommitResult:
        """Commit this element and all before it in its channel; see `Subscriber.commit`."""
        position = self.position
        return CommitResult.of(self.channel, position, await self._commit(self.channel, position))


class FailedElement(Element):
    """In the place of an element for which a function of the group has failed.

    Attributes:
        error: what the receive raises that gets it.
    """

    __slots__ = ("error",)

    def __init__(
        self, channel: int, generation: int, failure: ElementFailure, commit: QueueCommit
    ) -> None:
        """Args: failure: as the server reports it; commit: of its subscriber."""
        super().__init__(channel, generation, failure.offset, 0, None, commit)
        self.error = FunctionFailed(f"channel {channel}, {failure.offset}: {failure.reason}")
