"""Words for the tests of telemetry."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from kledger.gateway.regex import Regex
from kledger.gateway.telemetry.telemetry_state import TelemetryClient

ID = UUID("f1234567-89ab-cdef-8123-456789abcdef")
CLIENT = TelemetryClient(
    client_id="app", software_name="lib", software_version="1.0", address="10.0.0.1", port=4000
)


@dataclass(frozen=True)
class Wish:
    """A subscription."""

    name: str = "all"
    metrics: tuple[str, ...] = ("*",)
    interval_ms: int = 1_000
    matches: Mapping[str, Regex] = field(default_factory=dict)


def numbered(number: int) -> UUID:
    """Return one of many ids."""
    return UUID(int=number + 1_000)


def metrics_data(**gauges: float) -> bytes:
    """Return metrics as a client pushes them; an underscore in a name is a dot."""
    data: Any = MetricsData()
    scope = data.resource_metrics.add().scope_metrics.add()
    for name, value in gauges.items():
        metric = scope.metrics.add(name=name.replace("_", "."))
        metric.gauge.data_points.add(as_double=value, time_unix_nano=1_700_000_000_000_000_000)
    serialized: bytes = data.SerializeToString()
    return serialized
