"""Payload: what the values hold: words in random order, so that a codec has something to do."""

from __future__ import annotations

import random

_WORDS = (b"delay", b"carrier", b"origin", b"runway", b"weather", b"scheduled", b"arrival", b"gate")
VALUES_COUNT = 256


def payload_values(record_bytes: int, *, count: int = VALUES_COUNT) -> list[bytes]:
    """Make values of one size, the same in every run; a load goes round in them."""
    source = random.Random(record_bytes)
    return [_value(source, record_bytes) for _ in range(count)]


def json_values(record_bytes: int, *, count: int = VALUES_COUNT) -> list[bytes]:
    """Make objects in JSON of one size; their `amount` counts from 0, the rest is words."""
    heads = [b'{"amount": %d, "text": "' % number for number in range(count)]
    texts = payload_values(record_bytes, count=count)
    return [
        head + text[: record_bytes - len(head) - 2] + b'"}'
        for head, text in zip(heads, texts, strict=True)
    ]


def _value(source: random.Random, size: int) -> bytes:
    pieces = bytearray()
    while len(pieces) < size:
        pieces += source.choice(_WORDS) + b"=%d;" % source.randrange(100_000)
    return bytes(pieces[:size])
