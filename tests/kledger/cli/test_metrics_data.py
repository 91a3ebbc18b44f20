"""What is in OpenTelemetry's MetricsData."""

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    MetricsData,
)

from kledger.cli.metrics_data import Measurement, parse_metrics

DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


def pushed() -> tuple[Any, Any]:
    """Return a push, and where its metrics go."""
    data: Any = MetricsData()
    resource = data.resource_metrics.add()
    resource.resource.attributes.add(key="group").value.string_value = "g"
    return data, resource.scope_metrics.add().metrics


def measured(data: Any) -> list[tuple[object, ...]]:
    found = parse_metrics(data.SerializeToString())
    return [(each.name, each.kind, each.value, each.count) for each in found]


def test_every_kind_has_measurements() -> None:
    data, metrics = pushed()
    metrics.add(name="e").gauge.data_points.add(as_int=7)
    metrics.add(name="d").gauge.data_points.add(as_double=0.5)
    for name, temporality in (("c", DELTA), ("b", CUMULATIVE)):
        total = metrics.add(name=name).sum
        total.aggregation_temporality = temporality
        total.data_points.add(as_double=3.0)
    histogram = metrics.add(name="a").histogram
    histogram.aggregation_temporality = DELTA
    histogram.data_points.add(count=4, sum=9.0)
    metrics.add(name="f").summary.data_points.add(count=2, sum=1.0)
    exponential = metrics.add(name="g").exponential_histogram
    exponential.data_points.add(count=1, sum=5.0)
    metrics.add(name="h")
    assert measured(data) == [
        ("a", "histogram since the last push", 9.0, 4),
        ("b", "sum since the start", 3.0, None),
        ("c", "sum since the last push", 3.0, None),
        ("d", "gauge", 0.5, None),
        ("e", "gauge", 7.0, None),
        ("f", "summary", 1.0, 2),
        ("g", "exponential histogram", 5.0, 1),
    ]


def test_what_was_not_measured_has_no_value() -> None:
    data, metrics = pushed()
    metrics.add(name="a").gauge.data_points.add()
    metrics.add(name="b").gauge.data_points.add(as_double=1.0, flags=1)
    metrics.add(name="c").gauge.data_points.add(as_double=float("nan"))
    metrics.add(name="d").summary.data_points.add(count=0, sum=float("inf"))
    assert [None] * 4 == [value for _, _, value, _ in measured(data)]


def test_attributes_are_those_of_the_client_and_of_the_point() -> None:
    data, metrics = pushed()
    metric = metrics.add(name="m", unit="ms")
    for broker in ("2", "1"):
        point = metric.gauge.data_points.add(as_double=1.0)
        point.attributes.add(key="broker").value.string_value = broker
        point.attributes.add(key="busy").value.bool_value = True
        point.attributes.add(key="parts").value.array_value.values.add(int_value=1)
    point.attributes.add(key="none")
    first, second = parse_metrics(data.SerializeToString())
    assert Measurement(
        name="m", kind="gauge", value=1.0, count=None, unit="ms", attributes=first.attributes
    ) == first  # fmt: skip
    assert {"group": "g", "broker": "1", "busy": True, "none": None} == {
        key: value for key, value in first.attributes.items() if key != "parts"
    }
    assert isinstance(first.attributes["parts"], str)
    assert "2" == second.attributes["broker"]
    assert {"name", "kind", "value", "count", "unit", "attributes"} == first.fields().keys()


def test_nothing_is_in_nothing() -> None:
    assert [] == parse_metrics(b"")
    with pytest.raises(DecodeError):
        parse_metrics(b"garbage")
