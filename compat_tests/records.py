"""Records: what the clients of the tests send, the same for all of them.

Rule: deterministic within a run, so that a reader knows what a writer in another language wrote.
Timestamps are of the last hours: retention would be right to remove older records.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

FIRST_TIMESTAMP_MS = (int(time.time()) - 3 * 3600) * 1000
STEP_MS = 1_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_WORDS = ("delay", "carrier", "origin", "gate", "runway", "weather", "départ", "航班")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One record; headers may repeat a name and keep their order."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int


def samples(count: int, *, seed: int = 1) -> list[Sample]:
    """Make records with null and empty keys and values, repeated headers and rising timestamps."""
    source = random.Random(seed)
    return [_sample(index, source) for index in range(count)]


def _sample(index: int, source: random.Random) -> Sample:
    text = " ".join(source.choices(_WORDS, k=source.randrange(1, 60)))
    key = None if index % 7 == 3 else f"key-{index % 10}".encode()
    # One client refuses a record that has neither key nor value.
    value = None if key and index % 11 == 5 else f"{index}:{text}".encode()
    headers = (("index", str(index).encode()), ("tag", b"a"), ("tag", b"")) if index % 3 else ()
    return Sample(
        key=key,
        value=b"" if index % 13 == 6 else value,
        headers=headers,
        timestamp_ms=FIRST_TIMESTAMP_MS + index * STEP_MS,
    )
