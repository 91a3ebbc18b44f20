"""OTLP: the form in which clients push metrics.

Rule: what is kept can be read by whoever asks for it, so what cannot be read is refused.
Must not know: who pushes, what is done with it.
"""


class InvalidMetrics(ValueError):
    """Bytes that are no metrics."""


def check_metrics(data: bytes) -> None:
    """Look whether bytes are MetricsData of OpenTelemetry.

    Raises:
        InvalidMetrics: they are not.
    """
    # Most servers see no client that pushes.
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - when the first pushes
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData  # noqa: PLC0415 - so, too

    try:
        MetricsData.FromString(data)
    except DecodeError as error:
        raise InvalidMetrics(f"{len(data)} bytes that are no metrics: {error}") from None
