"""OTLP: the form in which clients push metrics.

Rule: metrics that cannot be parsed are refused, so all that are kept can be read later. Protobuf's
own code parses without a pause, so long data is parsed in parts.
Must not know: clients, the use of the metrics.
"""

from typing import TYPE_CHECKING

from kledger.batches.pacing import STEPS_PER_PAUSE, Pause, no_pause

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

PIECE_BYTES_MAX = 32 << 10
"""Bytes that are parsed at once; 0.7 ms in the worst case, empty messages."""
DEPTH_MAX = 100
"""Messages within messages, as in protobuf's own code."""
_DELIMITED = 2
_VARINT_BITS_MAX = 63


class InvalidMetrics(ValueError):
    """Bytes that are no metrics."""


def check_metrics(data: bytes, pause: Pause = no_pause) -> None:
    """Check that bytes are MetricsData of OpenTelemetry.

    Args:
        data: all of them.
        pause: see `batches.pacing`.

    Raises:
        InvalidMetrics: they are not.
    """
    # Late, as most servers have no client that pushes.
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - at the first push
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData  # noqa: PLC0415 - as above

    try:
        _PacedCheck(pause).check(MetricsData.DESCRIPTOR, memoryview(data))
    except (DecodeError, InvalidMetrics) as error:
        raise InvalidMetrics(f"{len(data)} bytes that are no metrics: {error}") from None


class _PacedCheck:
    """Parses a message in parts: a run of whole fields is a message of the same kind."""

    def __init__(self, pause: Pause) -> None:
        self._pause = pause
        self._steps = 0

    def check(self, kind: "Descriptor", data: memoryview, depth: int = 0) -> None:
        if len(data) <= PIECE_BYTES_MAX:
            self._parse(kind, data)
            return
        if depth == DEPTH_MAX:
            raise InvalidMetrics(f"more than {DEPTH_MAX} messages within each other")
        start = position = 0
        while position < len(data):
            begin = position
            tag, content, position = self._field(data, begin)
            if position - start <= PIECE_BYTES_MAX:
                continue
            self._parse(kind, data[start:begin])
            start = begin
            if position - begin > PIECE_BYTES_MAX:
                field = kind.fields_by_number.get(tag >> 3)
                if tag & 7 == _DELIMITED and field is not None and field.message_type is not None:
                    self.check(field.message_type, data[content:position], depth + 1)
                else:
                    self._parse(kind, data[begin:position])
                start = position
        self._parse(kind, data[start:])

    def _parse(self, kind: "Descriptor", data: memoryview) -> None:
        from google.protobuf.message_factory import GetMessageClass  # noqa: PLC0415 - as above

        if data:
            GetMessageClass(kind).FromString(bytes(data))
            self._pause()

    def _field(self, data: memoryview, position: int) -> tuple[int, int, int]:
        """Return the tag, where the content begins, and where the field ends."""
        self._steps += 1
        if self._steps == STEPS_PER_PAUSE:
            self._steps = 0
            self._pause()
        tag, content = _read_varint(data, position)
        match tag & 7:
            case 0:  # a number
                _, end = _read_varint(data, content)
            case 1:  # eight bytes
                end = content + 8
            case 2:  # _DELIMITED: text, bytes or a message
                size, content = _read_varint(data, content)
                end = content + size
            case 5:  # four bytes
                end = content + 4
            case other:
                raise InvalidMetrics(f"field of wire type {other} at byte {position}")
        if end > len(data):
            raise InvalidMetrics(f"field ends at byte {end}, its message at {len(data)}")
        return tag, content, end


def _read_varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift <= _VARINT_BITS_MAX:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise InvalidMetrics(f"number before byte {position} has no end")
