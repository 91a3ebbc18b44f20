"""Telemetry: the metrics that clients push, checked and kept in memory.

Rule: `telemetry_state` decides which client may push, and when; `pushed_metrics_state` keeps the
last push of each, decompressed. Large or compressed pushes are checked off the event loop, and an
older push never replaces a newer one. Nothing is stored.
Must not know: messages, the users of the metrics.
"""

import logging
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kledger.batches.compression import Codec, decompress, release
from kledger.batches.errors import BatchError, DecompressedTooLarge
from kledger.batches.pacing import Pause, no_pause
from kledger.gateway.config import GatewayConfig
from kledger.gateway.configs.client_metrics import ClientMetricsSubscriptions
from kledger.gateway.telemetry.otlp import InvalidMetrics, check_metrics
from kledger.gateway.telemetry.pushed_metrics_state import RETENTION_MS, Push, PushedMetrics
from kledger.gateway.telemetry.telemetry_state import (
    RESERVED_IDS,
    ClientInstance,
    TelemetryClient,
    TelemetryState,
)
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.runtime.blocking import PoolClosed
from kledger.runtime.clock import Clock
from kledger.runtime.compute_pool import ComputePool
from kledger.runtime.entropy import Entropy
from kledger.runtime.logs import RateLimitedLog
from kledger.runtime.timers import Timers

SWEEP_MS: Final = 60_000
"""How often expired clients and pushes are removed."""
PLAIN_BYTES_FACTOR: Final = 4
"""How many times `telemetry.max.bytes` a decompressed push may have."""
WARNINGS_PER_SECOND: Final = 1
"""Log lines about clients whose pushes cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSnapshot:
    """One client at one moment.

    Attributes:
        names: the subscriptions that it matches; of a disconnected one, at its last push.
        push: its last push, None without one.
    """

    instance_id: UUID
    client: TelemetryClient
    names: tuple[str, ...]
    push: Push | None


class ClientTelemetry:
    """The clients of one server that use telemetry."""

    def __init__(
        self,
        client_metrics: ClientMetricsSubscriptions,
        compute_pool: ComputePool,
        *,
        config: GatewayConfig,
        clock: Clock,
        timers: Timers,
        entropy: Entropy,
    ) -> None:
        self._client_metrics = client_metrics
        self._config = config
        self._clock = clock
        self._timers = timers
        self._entropy = entropy
        self._long_calls = compute_pool
        self._state = TelemetryState()
        self._pushed = PushedMetrics()
        self._push_count = 0
        self._is_sweeping = False
        self._warnings = RateLimitedLog(logging.getLogger(__name__), WARNINGS_PER_SECOND, clock)

    @property
    def bytes_max(self) -> int:
        """How large a push may be, as it comes."""
        return self._config.telemetry_max_bytes

    def subscribe(
        self, client: TelemetryClient, connection_id: int, instance_id: UUID
    ) -> tuple[ErrorCode, ClientInstance]:
        """Return which metrics a client should push, or why it may not ask now.

        Args:
            client: as its request names it.
            connection_id: of the connection of that request.
            instance_id: of the client; zero for a new one, which gets an id.
        """
        if instance_id == ZERO_UUID:
            instance_id = self._new_id()
        instance = self._touch_instance(client, connection_id, instance_id)
        return instance.admit_get(self._clock.monotonic_ms()), instance

    async def push(
        self,
        client: TelemetryClient,
        connection_id: int,
        instance_id: UUID,
        *,
        subscription_id: int,
        is_terminating: bool,
        codec: int,
        data: bytes,
    ) -> ErrorCode:
        """Take what a client says of itself, or say why not; see `ClientInstance.admit_push`."""
        if instance_id in RESERVED_IDS:
            return ErrorCode.INVALID_REQUEST
        instance = self._touch_instance(client, connection_id, instance_id)
        error = instance.admit_push(
            subscription_id=subscription_id,
            is_terminating=is_terminating,
            codec=codec,
            size=len(data),
            size_max=self.bytes_max,
            now_ms=self._clock.monotonic_ms(),
        )
        if error is ErrorCode.NONE and data:
            return await self._store_push(instance, codec, data)
        return error

    def disconnected(self, connection_id: int) -> None:
        """Remove the client of a closed connection; its last push is kept for RETENTION_MS."""
        self._state.disconnected(connection_id)

    def clients(self) -> list[ClientSnapshot]:
        """Return connected clients and those with a push, ascending by the time of their push."""
        self._expire()
        silent = [
            _snapshot(each, None)
            for each in self._state.instances()
            if self._pushed.get(each.id) is None
        ]
        return [*silent, *(self._snapshot_of_push(push) for push in self._pushed.pushes())]

    def client(self, instance_id: UUID) -> ClientSnapshot | None:
        """Return one client; None if it is unknown."""
        self._expire()
        push = self._pushed.get(instance_id)
        if push is not None:
            return self._snapshot_of_push(push)
        instance = self._state.get(instance_id)
        return None if instance is None else _snapshot(instance, None)

    def _snapshot_of_push(self, push: Push) -> ClientSnapshot:
        instance = self._state.get(push.instance_id)
        if instance is not None:
            return _snapshot(instance, push)
        return ClientSnapshot(
            instance_id=push.instance_id,
            client=push.client,
            names=push.names,
            push=push,
        )

    def _touch_instance(
        self, client: TelemetryClient, connection_id: int, instance_id: UUID
    ) -> ClientInstance:
        if not self._is_sweeping:
            self._is_sweeping = True
            self._timers.call_after(SWEEP_MS, self._sweep)
        return self._state.touch(
            instance_id,
            client,
            connection_id,
            subscriptions=self._client_metrics.subscriptions().values(),
            version=self._client_metrics.version,
            now_ms=self._clock.monotonic_ms(),
        )

    def _new_id(self) -> UUID:
        instance_id = self._entropy.uuid4()
        while instance_id in self._state:
            instance_id = self._entropy.uuid4()
        return instance_id

    async def _store_push(self, instance: ClientInstance, codec: int, data: bytes) -> ErrorCode:
        self._push_count += 1
        number, is_last = self._push_count, instance.is_terminating
        client, names = instance.client, instance.requested.names
        size_max, compute_pool = PLAIN_BYTES_FACTOR * self.bytes_max, self._long_calls
        try:
            if codec == Codec.NONE and compute_pool.fits_in_tick(len(data)):
                plain = _decompress(codec, data, size_max)
            else:
                plain = await compute_pool.run(
                    _decompress, codec, data, size_max, compute_pool.yield_gil
                )
        except DecompressedTooLarge:
            return ErrorCode.TELEMETRY_TOO_LARGE
        except (BatchError, InvalidMetrics) as error:
            self._warnings.warning("metrics of %s: %s", client.address, error)
            return ErrorCode.INVALID_RECORD
        except PoolClosed:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED  # the server stops: the client retries
        kept = self._pushed.get(instance.id)
        if kept is None or kept.number < number:
            self._pushed.put(
                Push(
                    instance_id=instance.id,
                    number=number,
                    client=client,
                    names=names,
                    pushed_at_ms=self._clock.now_ms(),
                    expires_ms=self._clock.monotonic_ms() + RETENTION_MS,
                    is_last=is_last,
                    data=plain,
                )
            )
        return ErrorCode.NONE

    def _sweep(self) -> None:
        """Remove what has expired, and repeat while there is a client or a push."""
        self._is_sweeping = False  # after a fault below, the next request starts sweeping again
        self._expire()
        self._is_sweeping = bool(self._state or self._pushed)
        if self._is_sweeping:
            self._timers.call_after(SWEEP_MS, self._sweep)

    def _expire(self) -> None:
        now_ms = self._clock.monotonic_ms()
        self._state.expire(now_ms)
        self._pushed.expire(now_ms)


def _snapshot(instance: ClientInstance, push: Push | None) -> ClientSnapshot:
    return ClientSnapshot(
        instance_id=instance.id,
        client=instance.client,
        names=instance.requested.names,
        push=push,
    )


def _decompress(codec: int, data: bytes, size_max: int, pause: Pause = no_pause) -> bytes:
    """Return decompressed metrics.

    Raises:
        BatchError: they cannot be decompressed.
        InvalidMetrics: they are no metrics.
    """
    body = decompress(codec, data, size_max, pause)
    plain = bytes(body)
    release(body)
    check_metrics(plain, pause)
    return plain
