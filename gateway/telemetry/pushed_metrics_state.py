"""Pushed metrics: the last push of each client.

Rule: a push is kept for some time after its connection is closed, because the last push of a failed
client is the interesting one. Over a limit the oldest pushes are removed.
Must not know: clocks, the content of a push.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kledger.gateway.telemetry.telemetry_state import INSTANCES_MAX, TelemetryClient

PUSHES_MAX: Final = INSTANCES_MAX
PUSHED_BYTES_MAX: Final = 64 << 20
"""Bytes of all pushes together, decompressed."""
RETENTION_MS: Final = 3_600_000
"""How long a push is kept without a newer one of its client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """The last push of one client.

    Attributes:
        number: ascending over all pushes to the server.
        names: the subscriptions that it is for.
        pushed_at_ms: milliseconds since 1970.
        expires_ms: monotonic.
        is_last: the client announced that it ends.
        data: OTLP's MetricsData, decompressed.
    """

    instance_id: UUID
    number: int
    client: TelemetryClient
    names: tuple[str, ...]
    pushed_at_ms: int
    expires_ms: int
    is_last: bool
    data: bytes


class PushedMetrics:
    """The last push of each client, the oldest first."""

    def __init__(self, *, bytes_max: int = PUSHED_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._pushes: dict[UUID, Push] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._pushes)

    def get(self, instance_id: UUID) -> Push | None:
        """Return the last push of a client; None if it has expired."""
        return self._pushes.get(instance_id)

    def pushes(self) -> Iterable[Push]:
        """Return all pushes, the oldest first."""
        return self._pushes.values()

    def put(self, push: Push) -> None:
        """Keep a push in place of the client's earlier one."""
        self._remove(push.instance_id)
        self._pushes[push.instance_id] = push
        self.size_bytes += len(push.data)
        while self.size_bytes > self._bytes_max or len(self._pushes) > PUSHES_MAX:
            self._remove(next(iter(self._pushes)))

    def expire(self, now_ms: int) -> None:
        """Remove expired pushes."""
        while self._pushes:
            oldest = next(iter(self._pushes.values()))
            if oldest.expires_ms > now_ms:
                return
            self._remove(oldest.instance_id)

    def _remove(self, instance_id: UUID) -> None:
        push = self._pushes.pop(instance_id, None)
        if push is not None:
            self.size_bytes -= len(push.data)
