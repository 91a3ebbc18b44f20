"""Telemetry: what clients push of themselves, taken and kept in memory.

Rule: who may push, and when, is decided by `telemetry_state`; what was pushed last is kept by
`pushed_metrics_state`, as it came, decompressed and readable. What is large or compressed is read
off the loop, and an older push never replaces a newer one. Nothing outlives the server.
Must not know: messages, who looks at the metrics.
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
"""How often those are looked for who were silent for too long."""
PLAIN_BYTES_FACTOR: Final = 4
"""How much larger than `telemetry.max.bytes` a push may be when it is decompressed."""
WARNINGS_PER_SECOND: Final = 1
"""About clients whose pushes cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSnapshot:
    """One client, for who looks.

    Attributes:
        names: the subscriptions that it matches, or did when it pushed last.
        push: what it pushed last.
    """

    instance_id: UUID
    client: TelemetryClient
    names: tuple[str, ...]
    push: Push | None


class ClientTelemetry:
    """The clients of one server that know of telemetry."""

    def __init__(
        self,
        client_metrics: ClientMetricsSubscriptions,
        *,
        config: GatewayConfig,
        clock: Clock,
        timers: Timers,
        entropy: Entropy,
        compute_pool: ComputePool,
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
        """A connection is closed; what its client pushed stays for a while."""
        self._state.disconnected(connection_id)

    def clients(self) -> list[ClientSnapshot]:
        """Return who is there and who pushed lately, the last one that pushed comes last."""
        self._expire()
        silent = [
            _snapshot(each, None)
            for each in self._state.instances()
            if self._pushed.get(each.id) is None
        ]
        return [*silent, *(self._snapshot_of_push(push) for push in self._pushed.pushes())]

    def client(self, instance_id: UUID) -> ClientSnapshot | None:
        """Return one of them."""
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
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED  # the server is about to end: another time
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
        """Look for what has expired, as long as there is something."""
        self._is_sweeping = False  # whoever is heard of after a fault begins again
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
    """Return metrics as they are without compression.

    Raises:
        BatchError: they cannot be decompressed.
        InvalidMetrics: they are something else.
    """
    body = decompress(codec, data, size_max, pause)
    plain = bytes(body)
    release(body)
    check_metrics(plain, pause)
    return plain
