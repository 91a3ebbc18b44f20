"""What is metrics, and what is not."""

import pytest

from gateway.otlp import InvalidMetrics, check_metrics
from tests.gateway.telemetry_words import metrics_data


def test_metrics_are_metrics() -> None:
    check_metrics(metrics_data(a_b=1.5))
    check_metrics(b"")


@pytest.mark.parametrize("data", [b"garbage", metrics_data(a_b=1.5)[:-1], b"\x0a\xff"])
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidMetrics, match=f"{len(data)} bytes that are no metrics"):
        check_metrics(data)
