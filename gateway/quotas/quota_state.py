"""Quota state: how much clients may use, and how long a client waits after using more.

Rule: a quota is a rate. A client can use later what it has not used, up to the rate times the
seconds of the quota's window; a client in debt waits until the rate has paid it. Of all entities
that match a client, the quota of the most specific one applies, in Kafka's order (KIP-13, KIP-55).
Quotas of addresses (KIP-612) are independent of the others.
Must not know: clocks, connections, how quotas are stored.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Final

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE = "producer_byte_rate", "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"
BUCKETS_MAX: Final = 10_000
"""Clients with a count of their own; beyond it, those with the oldest use start again."""
THROTTLE_MS_MAX: Final = 2**31 - 1

Entity = tuple[tuple[str, str | None], ...]
"""Pairs of type and name, by type; None is the default of that type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaWindows:
    """How much a client may save, in seconds of a rate.

    The defaults are the samples of Apache Kafka's quota windows: ten full ones, and for changes of
    topics, where Kafka counts tokens (KIP-599), all eleven.
    """

    rate_s: int = 10
    mutation_s: int = 11

    def of(self, key: str) -> int:
        """Return the window of one quota."""
        return self.mutation_s if key == CONTROLLER_MUTATION_RATE else self.rate_s


@dataclass(slots=True)
class TokenBucket:
    """The amount that one client, or several that share it, may still use; negative is debt."""

    level: float
    at_ms: int
    rate: float
    full: float

    def refill(self, now_ms: int) -> None:
        """Add the rate since the last call."""
        self.level = min(self.full, self.level + self.rate * (now_ms - self.at_ms) / 1000)
        self.at_ms = now_ms

    def wait_ms(self, amount: float = 0.0) -> int:
        """Return how long it takes until that much more is available."""
        missing = amount - self.level
        return min(ceil(missing / self.rate * 1000), THROTTLE_MS_MAX) if missing > 0 else 0


class QuotaState:
    """The quotas of one server, and their use.

    Attributes:
        quotas: by entity.
        is_limiting: whether requests of any client are limited; read before each of them.
    """

    __slots__ = ("_buckets", "_windows", "is_limiting", "quotas")

    def __init__(self, windows: QuotaWindows | None = None) -> None:
        self.quotas: dict[Entity, dict[str, float]] = {}
        self.is_limiting = False
        self._windows = windows or QuotaWindows()
        self._buckets: dict[tuple[str, Entity], TokenBucket] = {}

    def apply(self, entity: Entity, quotas: Mapping[str, float]) -> None:
        """Set all quotas of an entity; an empty set removes the entity."""
        if quotas:
            self.quotas[entity] = dict(quotas)
        else:
            self.quotas.pop(entity, None)
        self.is_limiting = any(kind != IP for each in self.quotas for kind, _ in each)

    def rate_of(self, key: str, user: str, client_id: str) -> tuple[Entity, float] | None:
        """Return the quota that holds for a client, and the key of the clients that share it."""
        for entity in _candidates(user, client_id):
            rate = self.quotas.get(entity, {}).get(key)
            if rate is not None:
                named = {USER: user, CLIENT_ID: client_id}
                return tuple((kind, named[kind]) for kind, _ in entity), rate
        return None

    def charge(self, key: str, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Count a client's use; a negative amount returns it.

        Args:
            key: the quota.
            user: the principal's name.
            client_id: of the client's requests.
            amount: in the unit of the quota's rate per second.
            now_ms: monotonic.

        Returns:
            For how many milliseconds the client is to wait.
        """
        bucket = self._bucket(key, self.rate_of(key, user, client_id), now_ms)
        if bucket is None:
            return 0
        bucket.level -= amount
        return bucket.wait_ms()

    def admit(self, key: str, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Count a client's use in advance, unless it exceeds what is left.

        An amount above the whole window is admitted when the window is full, as it never were
        otherwise.

        Returns:
            0, or for how many milliseconds the client waits, and nothing is counted.
        """
        return _admit(self._bucket(key, self.rate_of(key, user, client_id), now_ms), amount)

    def admit_connection(self, host: str, now_ms: int) -> int:
        """Count a connection of an address as `admit` does, with its answer."""
        key = CONNECTION_CREATION_RATE
        for name in (host, None):
            rate = self.quotas.get(((IP, name),), {}).get(key)
            if rate is not None:
                return _admit(self._bucket(key, (((IP, host),), rate), now_ms), 1)
        return 0

    def window_of(self, key: str, user: str, client_id: str) -> float | None:
        """Return the most that a client can save; None: there is no limit."""
        found = self.rate_of(key, user, client_id)
        return None if found is None else found[1] * self._windows.of(key)

    def _bucket(
        self, key: str, found: tuple[Entity, float] | None, now_ms: int
    ) -> TokenBucket | None:
        """Return the bucket of a quota, and mark it as the newest one."""
        if found is None:
            return None
        sharers, rate = found
        full = rate * self._windows.of(key)
        bucket = self._buckets.pop((key, sharers), None)
        if bucket is None:
            bucket = TokenBucket(full, now_ms, rate, full)
            if len(self._buckets) >= BUCKETS_MAX:
                del self._buckets[next(iter(self._buckets))]
        self._buckets[key, sharers] = bucket
        bucket.rate, bucket.full = rate, full
        bucket.refill(now_ms)
        return bucket


def _admit(bucket: TokenBucket | None, amount: float) -> int:
    if bucket is None:
        return 0
    wait_ms = bucket.wait_ms(min(amount, bucket.full))
    if not wait_ms:
        bucket.level -= amount
    return wait_ms


def _candidates(user: str, client_id: str) -> Iterator[Entity]:
    """Yield every entity that matches a client, the most specific one first."""
    for name in (user, None):
        for client in (client_id, None):
            yield (CLIENT_ID, client), (USER, name)
        yield ((USER, name),)
    for client in (client_id, None):
        yield ((CLIENT_ID, client),)
