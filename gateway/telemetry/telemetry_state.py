"""Telemetry state: which clients push their metrics, which metrics, and how often.

Rule: a client is identified by the instance id in its requests. It may request its subscription or
push once in an interval, and push once more after every answer; its metrics are computed again when
subscriptions have changed. Errors and their order are Kafka's. Source: KIP-714, Kafka's
ClientMetricsManager.
Must not know: clocks, requests, the content of metrics.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

from kledger.batches.checksum import crc32c
from kledger.batches.compression import Codec
from kledger.gateway.regex import Regex
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.gateway.wire.uuid_text import uuid_text

INSTANCES_MAX: Final = 16_384
"""Clients at a time; a new one replaces the one with the oldest request."""
IDLE_MS_MIN: Final = 60_000
IDLE_INTERVALS: Final = 3
"""A client expires after this many intervals without a request, but not before IDLE_MS_MIN."""
INTERVAL_MS_MAX: Final = 300_000
"""The longest interval of a client, also when its subscriptions have longer ones."""
ALL_METRICS: Final = "*"
RESERVED_IDS: Final = {ZERO_UUID, UUID(int=1)}
ACCEPTED_CODECS: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""Offered to clients, best first; a push without compression is accepted too."""

_ERRORS_THAT_ALLOW_GET: Final = {
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
}
"""After one of these a client may request its subscription at once."""


class MetricsSubscription(Protocol):
    """The metrics that matching clients shall push."""

    @property
    def name(self) -> str:
        """The name of the subscription."""
        ...

    @property
    def metrics(self) -> tuple[str, ...]:
        """Prefixes of metrics' names; `ALL_METRICS` for all."""
        ...

    @property
    def interval_ms(self) -> int:
        """How often clients push."""
        ...

    @property
    def matches(self) -> Mapping[str, Regex]:
        """Expressions by attribute of a client; each must match the whole value."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryClient:
    """The attributes of a client, without its instance id."""

    client_id: str | None
    software_name: str
    software_version: str
    address: str
    port: int

    def is_matched(self, instance_id: UUID, expressions: Mapping[str, Regex]) -> bool:
        """Return whether every expression matches; without expressions every client matches."""
        attributes = {
            "client_instance_id": uuid_text(instance_id),
            "client_id": self.client_id,
            "client_software_name": self.software_name,
            "client_software_version": self.software_version,
            "client_source_address": self.address,
            "client_source_port": str(self.port),
        }
        return all(
            (value := attributes.get(name)) is not None and expression.fullmatch(value)
            for name, expression in expressions.items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedMetrics:
    """The metrics that one client shall push.

    Attributes:
        version: of the subscriptions that it is computed from.
        subscription_id: changes with the other fields; every push of the client has it.
        names: the subscriptions that match.
    """

    version: int
    subscription_id: int
    names: tuple[str, ...]
    metrics: tuple[str, ...]
    interval_ms: int


def requested_metrics_of(
    instance_id: UUID,
    client: TelemetryClient,
    subscriptions: Iterable[MetricsSubscription],
    version: int,
) -> RequestedMetrics:
    """Join the subscriptions that match a client."""
    matching = [each for each in subscriptions if client.is_matched(instance_id, each.matches)]
    metrics = {metric for each in matching for metric in each.metrics}
    if ALL_METRICS in metrics:
        metrics = {ALL_METRICS}
    ordered = tuple(sorted(metrics))
    interval_ms = min([INTERVAL_MS_MAX, *(each.interval_ms for each in matching)])
    return RequestedMetrics(
        version=version,
        subscription_id=subscription_id_of(instance_id, ordered, interval_ms),
        names=tuple(sorted(each.name for each in matching)),
        metrics=ordered,
        interval_ms=interval_ms,
    )


def subscription_id_of(instance_id: UUID, metrics: Iterable[str], interval_ms: int) -> int:
    """Return the id of a client's metrics; Kafka's, except for the order of the metrics."""
    checksum = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode())
    halves = (instance_id.int >> 64) ^ instance_id.int
    number = (checksum ^ (halves >> 32) ^ halves) & 0xFFFF_FFFF
    return number - (1 << 32) if number >> 31 else number


@dataclass(slots=True, kw_only=True)
class ClientInstance:
    """One client.

    Attributes:
        connection_id: the connection of its first request; it is removed with it.
        last_get_ms: time of its last successful request for a subscription.
        last_push_ms: time of its last push that was not too early.
        last_error: of its last push; NONE after a successful request for a subscription.
    """

    id: UUID
    client: TelemetryClient
    connection_id: int
    requested: RequestedMetrics
    expires_ms: int = 0
    last_get_ms: int | None = None
    last_push_ms: int | None = None
    is_terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE

    def admit_get(self, now_ms: int) -> ErrorCode:
        """Return whether it may request its subscription now, and record the request."""
        is_due = self._is_due(self.last_get_ms, now_ms) and self._is_due(self.last_push_ms, now_ms)
        if is_due:
            self.last_get_ms = now_ms
        elif self.last_error not in _ERRORS_THAT_ALLOW_GET:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        self.last_error = ErrorCode.NONE
        return ErrorCode.NONE

    def admit_push(
        self,
        *,
        subscription_id: int,
        is_terminating: bool,
        codec: int,
        size: int,
        size_max: int,
        now_ms: int,
    ) -> ErrorCode:
        """Return whether a push is accepted, and record it.

        Args:
            subscription_id: in the push.
            is_terminating: the client ends; it may push so at any time, once.
            codec: the compression of the metrics.
            size: bytes of the compressed metrics.
            size_max: how many bytes they may have.
            now_ms: monotonic.
        """
        self.last_error = self._push_error(subscription_id, is_terminating, codec, now_ms)
        if self.last_error is ErrorCode.NONE and size > size_max:
            self.last_error = ErrorCode.TELEMETRY_TOO_LARGE
        self.is_terminating = is_terminating
        return self.last_error

    def _push_error(
        self, subscription_id: int, is_terminating: bool, codec: int, now_ms: int
    ) -> ErrorCode:
        if self.is_terminating:
            return ErrorCode.INVALID_REQUEST
        if not self._admit_by_interval(now_ms) and not is_terminating:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if subscription_id != self.requested.subscription_id:
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if codec != Codec.NONE and codec not in ACCEPTED_CODECS:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return ErrorCode.NONE

    def _admit_by_interval(self, now_ms: int) -> bool:
        """Record a push, unless it is too early.

        The first one after an answer never is: clients send it after half to one and a half
        intervals.
        """
        is_answered = self.last_get_ms is not None and (
            self.last_push_ms is None or self.last_get_ms > self.last_push_ms
        )
        if not is_answered and not self._is_due(self.last_push_ms, now_ms):
            return False
        self.last_push_ms = now_ms
        return True

    def _is_due(self, since_ms: int | None, now_ms: int) -> bool:
        return since_ms is None or now_ms - since_ms >= self.requested.interval_ms


class TelemetryState:
    """All clients with a recent request, ascending by its time."""

    def __init__(self) -> None:
        self._instances: dict[UUID, ClientInstance] = {}
        self._of_connection: dict[int, UUID] = {}
        """The newest instance of each connection."""

    def __len__(self) -> int:
        return len(self._instances)

    def __contains__(self, instance_id: UUID) -> bool:
        return instance_id in self._instances

    def get(self, instance_id: UUID) -> ClientInstance | None:
        """Return one client; None if it is unknown."""
        return self._instances.get(instance_id)

    def instances(self) -> Iterable[ClientInstance]:
        """Return all clients."""
        return self._instances.values()

    def touch(
        self,
        instance_id: UUID,
        client: TelemetryClient,
        connection_id: int,
        *,
        subscriptions: Iterable[MetricsSubscription],
        version: int,
        now_ms: int,
    ) -> ClientInstance:
        """Return the instance of the client of a request, marked as the newest.

        It is a fresh one for a client that is new or expired, or whose subscriptions have changed.
        """
        found = self._instances.pop(instance_id, None)
        if found is not None and found.expires_ms <= now_ms:
            self._forget_connection(found)
            found = None
        if found is None or found.requested.version < version:
            if found is not None:
                self._forget_connection(found)
                client = found.client
            requested = requested_metrics_of(instance_id, client, subscriptions, version)
            found = ClientInstance(
                id=instance_id, client=client, connection_id=connection_id, requested=requested
            )
            self._of_connection[connection_id] = instance_id
        found.expires_ms = now_ms + max(IDLE_MS_MIN, IDLE_INTERVALS * found.requested.interval_ms)
        self._instances[instance_id] = found
        if len(self._instances) > INSTANCES_MAX:
            self._remove(next(iter(self._instances.values())))
        return found

    def disconnected(self, connection_id: int) -> None:
        """Remove the instance of a closed connection."""
        instance_id = self._of_connection.pop(connection_id, None)
        if instance_id is not None:
            self._instances.pop(instance_id, None)

    def expire(self, now_ms: int) -> None:
        """Remove expired clients."""
        for each in list(self._instances.values()):
            if each.expires_ms <= now_ms:
                self._remove(each)

    def _remove(self, instance: ClientInstance) -> None:
        del self._instances[instance.id]
        self._forget_connection(instance)

    def _forget_connection(self, instance: ClientInstance) -> None:
        if self._of_connection.get(instance.connection_id) == instance.id:
            del self._of_connection[instance.connection_id]
