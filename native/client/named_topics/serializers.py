"""Serializers: from values to stored bytes and back, as hooks of publishers and subscribers.

Rule: any pair of functions will do; these are given. What one writes the other reads.
Must not know: publishers, subscribers.
"""

import json
from typing import Any


def to_json(value: Any) -> bytes:
    """Return a value as JSON in UTF-8. Raises TypeError for what JSON does not have."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def from_json(data: bytes) -> Any:
    """Return the value of JSON. Raises ValueError for anything else."""
    return json.loads(data)
