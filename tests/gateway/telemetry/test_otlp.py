"""What is metrics, and what is not."""

import pytest

from kledger.gateway.telemetry.otlp import DEPTH_MAX, PIECE_BYTES_MAX, InvalidMetrics, check_metrics
from tests.gateway.telemetry_words import metrics_data


def test_metrics_are_metrics() -> None:
    check_metrics(metrics_data(a_b=1.5))
    check_metrics(b"")


@pytest.mark.parametrize("data", [b"garbage", metrics_data(a_b=1.5)[:-1], b"\x0a\xff"])
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidMetrics, match=f"{len(data)} bytes that are no metrics"):
        check_metrics(data)


def field(number: int, content: bytes) -> bytes:
    """A field of protobuf that holds bytes."""
    size, digits = len(content), bytearray()
    while size > 0x7F:
        digits.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((number << 3 | 2, *digits, size)) + content


LONG = {
    "many": metrics_data(a_b=1.5) * 2_000,
    "empty": b"\x0a\x00" * 100_000,
    "in one": field(1, field(2, b"\x12\x00" * 100_000)),
    "text": field(1, field(3, b"s" * 2 * PIECE_BYTES_MAX)),
    "unknown": field(15, b"\xff" * 2 * PIECE_BYTES_MAX),
}


@pytest.mark.parametrize("kind", LONG)
def test_long_metrics_are_parsed_with_pauses(kind: str) -> None:
    pauses: list[None] = []
    check_metrics(LONG[kind], lambda: pauses.append(None))
    assert pauses


@pytest.mark.parametrize(
    "data",
    [
        LONG["many"][:-1],
        LONG["many"] + b"garbage" + LONG["many"],
        field(1, field(2, b"\x12\x00" * 50_000 + b"\x12\x01\xff" + b"\x12\x00" * 50_000)),
        field(1, field(3, b"\xff" * 2 * PIECE_BYTES_MAX)),
        LONG["empty"] + b"\x0b",
        LONG["empty"] + b"\xff" * 11,
    ],
)
def test_damage_within_long_metrics_is_found(data: bytes) -> None:
    with pytest.raises(InvalidMetrics, match="no metrics"):
        check_metrics(data)


def test_depth_is_limited() -> None:
    """Attributes may hold lists of lists."""
    value = field(1, bytes(2 * PIECE_BYTES_MAX))
    for _ in range(DEPTH_MAX // 2):
        value = field(5, field(1, value))
    with pytest.raises(InvalidMetrics, match="within each other"):
        check_metrics(field(1, field(1, field(1, field(2, value)))))
