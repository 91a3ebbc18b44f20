"""Consumer messages: requests to a group of the consumer protocol, and their results.

Rule: commands and results are frozen values, free of API versions. Partitions carry the id of their
topic, so that a topic created again under an old name is another one.
Must not know: the wire's message classes, the state that handles them.

Source: KIP-848.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias
from uuid import UUID

from kledger.gateway.wire.error_codes import ErrorCode
from kledger.security.principal import ANONYMOUS, Principal

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
UNCHANGED_TIMEOUT: Final = -1


class TopicIdPartition(NamedTuple):
    """One partition of one topic."""

    topic_id: UUID
    partition: int


Partitions: TypeAlias = frozenset[TopicIdPartition]


class TopicMetadata(NamedTuple):
    """What groups need of a topic."""

    name: str
    topic_id: UUID
    partition_count: int


class TopicCatalog(Protocol):
    """The topics that exist and which clients may describe them, read-only.

    Attributes:
        epoch: changes whenever a topic is created, deleted or grows.
        rights_version: changes with the access rules; 0 if every client may describe every topic.
    """

    @property
    def epoch(self) -> int:
        """Return the number of the last change."""
        ...

    @property
    def rights_version(self) -> int:
        """Return the version of the access rules."""
        ...

    def may_describe(self, principal: Principal, host: str, name: str) -> bool:
        """Return whether a client may describe the topic that has this name."""
        ...

    def find(self, name: str) -> TopicMetadata | None:
        """Return a topic by any spelling of its name."""
        ...

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatCommand:
    """One heartbeat of a member; a field of None has not changed since the last heartbeat.

    Attributes:
        waiter: the waiter to answer; filled in by the coordinator.
        principal: in whose name the member acts.
        owned: the partitions that the client reports to own.
    """

    group_id: str
    member_id: str
    epoch: int
    client_id: str
    client_host: str
    principal: Principal = ANONYMOUS
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = UNCHANGED_TIMEOUT
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Partitions | None = None
    waiter: int = 0

    @property
    def is_full(self) -> bool:
        """Whether the member sends all fields, as clients do after they missed an answer."""
        has_subscription = self.topic_names is not None or self.topic_regex is not None
        return self.epoch == JOIN_EPOCH or (
            self.rebalance_timeout_ms != UNCHANGED_TIMEOUT
            and has_subscription
            and self.owned is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResult:
    """The answer to a heartbeat; an assignment of None has not changed."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None
