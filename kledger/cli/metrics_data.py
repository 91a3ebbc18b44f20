"""The metrics of a Kafka client, as numbers with names, from OpenTelemetry's MetricsData.

Rule: every data point is one Measurement, whatever its kind; of a distribution, count and sum.
Must not know: terminals, servers.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from math import isfinite

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Metric,
    MetricsData,
    NumberDataPoint,
)

NO_VALUE_FLAG = 1
TEMPORALITIES: dict[int, str] = {
    AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA: "since the last push",
    AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE: "since the start",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One number.

    Attributes:
        kind: `gauge`, or `sum` and the like with the time that they cover.
        value: None if the client has measured nothing yet (Java clients send NaN).
        count: the number of values in a distribution, None for others.
    """

    name: str
    kind: str
    value: float | None
    count: int | None
    unit: str
    attributes: dict[str, object]

    def fields(self) -> dict[str, object]:
        """Return all of it by name."""
        return asdict(self)


def parse_metrics(data: bytes) -> list[Measurement]:
    """Return the measurements of a push, sorted by name.

    Raises:
        google.protobuf.message.DecodeError: the data is no MetricsData.
    """
    found = [
        each
        for resource in MetricsData.FromString(data).resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for each in _points(metric, _attributes(resource.resource.attributes))
    ]
    return sorted(found, key=lambda each: (each.name, sorted(map(str, each.attributes.items()))))


def _points(metric: Metric, common: dict[str, object]) -> Iterator[Measurement]:
    shape = metric.WhichOneof("data")
    if shape is None:
        return
    content = getattr(metric, shape)
    kind = shape.replace("_", " ")
    covered = TEMPORALITIES.get(getattr(content, "aggregation_temporality", 0))
    for point in content.data_points:
        is_number = isinstance(point, NumberDataPoint)
        value = _number(point) if is_number else point.sum
        is_measured = value is not None and isfinite(value) and not point.flags & NO_VALUE_FLAG
        yield Measurement(
            name=metric.name,
            kind=kind if covered is None else f"{kind} {covered}",
            value=value if is_measured else None,
            count=None if is_number else point.count,
            unit=metric.unit,
            attributes=common | _attributes(point.attributes),
        )


def _number(point: NumberDataPoint) -> float | None:
    shape = point.WhichOneof("value")
    return None if shape is None else float(getattr(point, shape))


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, object]:
    return {pair.key: _plain(pair.value) for pair in pairs}


def _plain(value: AnyValue) -> object:
    """Return a value that JSON has; lists and maps as text."""
    shape = value.WhichOneof("value")
    content: object = None if shape is None else getattr(value, shape)
    return content if isinstance(content, str | bool | int | float | None) else str(content)
