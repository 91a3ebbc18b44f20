"""Brokers: the brokers that clients are shown, and which of them coordinates what.

Rule: a single server is its only broker; `cluster_brokers` has those of a cluster.
Must not know: partitions, requests.
"""

from collections.abc import Collection, Mapping, Sequence, Set
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from kledger.gateway.config import GatewayConfig


class AdvertisedAddress(NamedTuple):
    """A listener, and what clients of it connect to."""

    name: str
    host: str
    port: int


class BrokerAddress(NamedTuple):
    """A broker, and what clients of one listener connect to."""

    broker_id: int
    host: str
    port: int


class Brokers(Protocol):
    """What handlers ask."""

    def all(self, listener: AdvertisedAddress) -> Sequence[BrokerAddress]:
        """Return every broker that clients of a listener can reach, by id, at least this one.

        Args:
            listener: of this broker, that the client connected to.
        """
        ...

    def coordinator_id(self, shard: int) -> int:
        """Return the broker that coordinates the groups or transactional ids of a shard."""
        ...

    def coordinated_shards(self, count: int) -> Collection[int]:
        """Return which of so many shards this broker coordinates."""
        ...

    def moves_within(self, milliseconds: int) -> Mapping[int, int]:
        """Return the brokers that moved to another address less than so long ago.

        Returns: by broker, the leader epoch that began with its last move.
        """
        ...

    @property
    def silent_ids(self) -> Set[int]:
        """Brokers that seem to be lost, until they are taken over."""
        ...

    @property
    def controller_id(self) -> int:
        """The broker that clients ask for changes; every broker can make them."""
        ...


class OneBroker:
    """The broker of a server that is alone."""

    def __init__(self, config: "GatewayConfig") -> None:
        self._config = config

    def all(self, listener: AdvertisedAddress) -> Sequence[BrokerAddress]:
        """Return this broker."""
        return (BrokerAddress(self._config.node_id, listener.host, listener.port),)

    def coordinator_id(self, shard: int) -> int:
        """Return this broker."""
        return self._config.node_id

    def coordinated_shards(self, count: int) -> Collection[int]:
        """Return all."""
        return range(count)

    def moves_within(self, milliseconds: int) -> Mapping[int, int]:
        """Return none: a broker that takes over from this one has another id."""
        return {}

    @property
    def silent_ids(self) -> Set[int]:
        """None: this broker answers."""
        return frozenset()

    @property
    def controller_id(self) -> int:
        """This broker."""
        return self._config.node_id
