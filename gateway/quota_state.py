"""Quota state: how much clients may use, and how long one that used more has to wait.

Rule: a quota is a rate. What was not used may be used later, up to `WINDOW_S` seconds' worth, which
is what the ten full samples of Apache Kafka's quota window come to; who is in debt waits until the
rate has paid it. Of all entities that fit a client the most special one that sets this quota holds,
in Kafka's order (KIP-13, KIP-55).
Must not know: clocks, connections, how quotas are stored.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Final

USER, CLIENT_ID = "user", "client-id"
PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE = "producer_byte_rate", "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
WINDOW_S: Final = 10
BUCKETS_MAX: Final = 10_000
"""Clients that are told apart; of more, those that were heard of longest ago begin anew."""
THROTTLE_MS_MAX: Final = 2**31 - 1

Entity = tuple[tuple[str, str | None], ...]
"""Pairs of type and name, by type; None is the default of that type."""


@dataclass(slots=True)
class Bucket:
    """What one client, or several that share it, may still use; negative is debt."""

    level: float
    at_ms: int


class QuotaState:
    """The quotas of one server and what was used of them.

    Attributes:
        quotas: by entity.
        is_limiting: whether there is any quota at all; looked at before each request.
    """

    __slots__ = ("_buckets", "is_limiting", "quotas")

    def __init__(self) -> None:
        self.quotas: dict[Entity, dict[str, float]] = {}
        self.is_limiting = False
        self._buckets: dict[tuple[str, Entity], Bucket] = {}

    def apply(self, entity: Entity, quotas: Mapping[str, float]) -> None:
        """Set all quotas of an entity; none: the entity is forgotten."""
        if quotas:
            self.quotas[entity] = dict(quotas)
        else:
            self.quotas.pop(entity, None)
        self.is_limiting = bool(self.quotas)

    def rate_of(self, key: str, user: str, client_id: str) -> tuple[Entity, float] | None:
        """Return the quota that holds for a client, and with whom it shares it."""
        for entity in _candidates(user, client_id):
            rate = self.quotas.get(entity, {}).get(key)
            if rate is not None:
                named = {USER: user, CLIENT_ID: client_id}
                return tuple((kind, named[kind]) for kind, _ in entity), rate
        return None

    def charge(self, key: str, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Count what a client used; a negative amount gives it back.

        Args:
            key: the quota.
            user: the principal's name.
            client_id: as the client gave it.
            amount: in the unit of the quota's rate per second.
            now_ms: monotonic.

        Returns:
            For how many milliseconds the client is to wait.
        """
        found = self.rate_of(key, user, client_id)
        if found is None:
            return 0
        sharers, rate = found
        bucket = self._filled(key, sharers, rate, now_ms)
        bucket.level -= amount
        if bucket.level >= 0:
            return 0
        return min(ceil(-bucket.level / rate * 1000), THROTTLE_MS_MAX)

    def _filled(self, key: str, sharers: Entity, rate: float, now_ms: int) -> Bucket:
        """Return a bucket with what came in since it was last looked at, as the newest one."""
        full = rate * WINDOW_S
        bucket = self._buckets.pop((key, sharers), None)
        if bucket is None:
            bucket = Bucket(full, now_ms)
            if len(self._buckets) >= BUCKETS_MAX:
                del self._buckets[next(iter(self._buckets))]
        self._buckets[key, sharers] = bucket
        bucket.level = min(full, bucket.level + rate * (now_ms - bucket.at_ms) / 1000)
        bucket.at_ms = now_ms
        return bucket


def _candidates(user: str, client_id: str) -> Iterator[Entity]:
    """Yield every entity that fits a client, the most special one first."""
    for name in (user, None):
        for client in (client_id, None):
            yield (CLIENT_ID, client), (USER, name)
        yield ((USER, name),)
    for client in (client_id, None):
        yield ((CLIENT_ID, client),)
